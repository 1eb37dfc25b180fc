import { Kafka, Partitioners, logLevel } from 'kafkajs'
import { Reading, inParallel, partitionOf, produceAll, tell, transactAll, transactionalId, valueOf, work } from './told.mjs'

const kafka = new Kafka({
  clientId: work.client_id,
  brokers: work.bootstrap.split(','),
  sasl: { mechanism: 'plain', username: work.user, password: work.password },
  logLevel: logLevel.NOTHING
})
const messagesOf = (worker, seqs) =>
  seqs.map((seq) => ({ partition: partitionOf(seq), value: valueOf(worker, seq) }))

// The library has one request in flight then, as it asks for with idempotence.
async function produce (worker) {
  const producer = kafka.producer({
    idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner
  })
  await producer.connect()
  await produceAll(worker, (seqs) => producer.send({ topic: work.topic, messages: messagesOf(worker, seqs) }))
  await producer.disconnect()
}

async function transact (worker) {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId: transactionalId(worker),
    createPartitioner: Partitioners.DefaultPartitioner
  })
  await producer.connect()
  let transaction
  const one = async (seqs) => {
    transaction = await producer.transaction()
    await transaction.send({ topic: work.topic, messages: messagesOf(worker, seqs) })
    const offset = String(seqs[seqs.length - 1] + 1)
    await transaction.sendOffsets({
      consumerGroupId: `${work.group}-${worker}`,
      topics: [{ topic: work.topic, partitions: [{ partition: 0, offset }] }]
    })
    await transaction.commit()
  }
  await transactAll(worker, one, async () => {
    if (transaction?.isActive()) await transaction.abort()
  })
  await producer.disconnect()
}

async function consume (reading) {
  const consumer = kafka.consumer({ groupId: work.group })
  // Its own commits, as often as asked for; a failed one ends up here and in a crash or a retry.
  consumer.on(consumer.events.CRASH, ({ payload }) => tell('commit_failed', String(payload.error).slice(0, 300)))
  await consumer.connect()
  await consumer.subscribe({ topic: work.topic, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 1000,
    eachMessage: async ({ partition, message }) => reading.got(partition, message.offset)
  })
  await reading.done
  await consumer.disconnect()
}

const reading = work.role === 'consume' ? new Reading() : null
const roles = { produce, transact, consume: () => consume(reading) }
await inParallel(roles[work.role])
tell('end')
process.exit(0)
