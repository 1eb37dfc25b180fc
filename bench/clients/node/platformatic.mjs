import { Consumer, MessagesStreamModes, MessagesStreamFallbackModes, Producer } from '@platformatic/kafka'
import { COMMIT_EVERY_MS, Reading, inParallel, partitionOf, produceAll, tell, short, transactAll, transactionalId, valueOf, work } from './told.mjs'

const base = {
  clientId: work.client_id,
  bootstrapBrokers: work.bootstrap.split(','),
  sasl: { mechanism: 'PLAIN', username: work.user, password: work.password }
}
const messagesOf = (worker, seqs) =>
  seqs.map((seq) => ({ topic: work.topic, partition: partitionOf(seq), value: valueOf(worker, seq) }))

async function produce (worker) {
  const producer = new Producer({ ...base, idempotent: true })
  await produceAll(worker, (seqs) => producer.send({ messages: messagesOf(worker, seqs) }))
  await producer.close()
}

async function transact (worker) {
  const producer = new Producer({ ...base, idempotent: true, transactionalId: transactionalId(worker) })
  let transaction
  const one = async (seqs) => {
    transaction = await producer.beginTransaction()
    await transaction.send({ messages: messagesOf(worker, seqs) })
    await transaction.commit()
  }
  await transactAll(worker, one, async () => {
    if (transaction && !transaction.completed) await transaction.abort()
  })
  await producer.close()
}

async function consume (reading) {
  const consumer = new Consumer({ ...base, groupId: work.group })
  const stream = await consumer.consume({
    topics: [work.topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    autocommit: COMMIT_EVERY_MS
  })
  stream.on('autocommit', (error) => error && tell('commit_failed', short(error)))
  stream.on('error', (error) => tell('error', short(error)))
  stream.on('data', (message) => reading.got(message.partition, message.offset))
  await reading.done
  await stream.close()
  await consumer.close(true)
}

const reading = work.role === 'consume' ? new Reading() : null
const roles = { produce, transact, consume: () => consume(reading) }
await inParallel(roles[work.role])
tell('end')
process.exit(0)
