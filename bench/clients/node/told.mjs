// What the drivers for Node share; the work and the lines are those of bench/clients/drivers/told.py.
import { readFileSync, writeSync } from 'node:fs'

export const COMMIT_EVERY_MS = 1000
const TRIES_OF_A_TRANSACTION = 5
const SEND_AT_ONCE = 50

export const work = JSON.parse(readFileSync(process.argv[2], 'utf8'))
export const partitionOf = (seq) => seq % work.partitions
export const transactionalId = (worker) => `${work.client_id}-${worker}`
export const valueOf = (worker, seq) => Buffer.from(`${worker}:${seq}:`.padEnd(work.record_bytes, 'x'))
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

let told = ''
function flush () {
  const text = told
  told = ''
  for (let rest = Buffer.from(text); rest.length;) {
    try {
      rest = rest.subarray(writeSync(1, rest))
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
    }
  }
}

export function tell (...words) {
  told += words.join(' ').replaceAll('\n', ' ') + '\n'
  flush()
}

// The causes first: the frame around them says little.
export function short (error) {
  const text = (each) => [...(each?.errors ?? []).map(text), `${each?.name}: ${each?.message}`].join(' < ')
  return text(error).slice(0, 300)
}

// All of a producer's records, as many at a time as a user would send together, each send awaited.
export async function produceAll (worker, send) {
  for (let first = 0; first < work.records; first += SEND_AT_ONCE) {
    const seqs = range(first, Math.min(first + SEND_AT_ONCE, work.records))
    try {
      await send(seqs)
    } catch (error) {
      for (const seq of seqs) tell('fail', worker, seq, short(error))
      continue
    }
    for (const seq of seqs) tell('ack', worker, seq)
  }
}

// `one(seqs)` begins, sends and commits; `abort()` ends what failed.
export async function transactAll (worker, one, abort) {
  for (let first = 0; first < work.records; first += work.per_transaction) {
    const seqs = range(first, Math.min(first + work.per_transaction, work.records))
    for (let left = TRIES_OF_A_TRANSACTION; ;) {
      try {
        await one(seqs)
        for (const seq of seqs) tell('ack', worker, seq)
        break
      } catch (error) {
        tell('commit_failed', short(error))
        if (--left === 0) throw error
        await abort()
      }
    }
  }
}

// What the group has read in all; `done` is kept once it is everything, or the time is up.
export class Reading {
  #seen = new Set()
  #end
  constructor () {
    this.done = new Promise((resolve) => {
      this.#end = () => {
        tell('closing', Date.now())
        this.#end = () => {}
        clearTimeout(timer)
        resolve()
      }
    })
    const timer = setTimeout(() => this.#end(), work.within_s * 1000)
  }

  got (partition, offset) {
    tell('read', partition, offset)
    this.#seen.add(`${partition}/${offset}`)
    if (this.#seen.size >= work.records) this.#end()
  }
}

export async function inParallel (run) {
  await Promise.all(range(0, work.workers).map(async (worker) => {
    try {
      await run(worker)
    } catch (error) {
      tell('broke', short(error))
    }
  }))
}

export function range (first, end) {
  return Array.from({ length: end - first }, (_, index) => first + index)
}
