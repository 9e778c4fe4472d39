// Push items to kvqueue's queues from Node, in transactions of your own.
//
//     const fdb = require('foundationdb')
//     fdb.setAPIVersion(720)
//     const kvqueue = require('./kvqueue')
//
//     const db = fdb.open('embedded:/var/lib/kvqueue')   // or the path of a cluster file
//     const emails = Buffer.from('emails')
//     await kvqueue.push(db, emails, Buffer.from('hello'))         // a transaction of its own
//     await db.doTn(async tn => {
//       tn.set('orders/7', 'paid')
//       await kvqueue.push(tn, emails, Buffer.from('thank you'))   // both happen, or neither
//     })
//
// Works with the package `foundationdb` of npm. Copy this file next to your program. docs/KEYSPACE.md of kvqueue describes what
// it writes. A database or transaction that is scoped to a subspace makes no difference: keys begin with `prefix`.
//
// Given a database, a push is retried as every FoundationDB transaction is. If the outcome of a commit is unknown, the
// retry may push the items a second time. `kvqueue push --idempotency-key` and the HTTP API recognise such a repetition.

'use strict'

const fdb = require('foundationdb')

// A stamp has two bytes for the number of the push in its transaction.
const MOST = 1 << 16
// FoundationDB's limit for a value. Longer payloads go through `kvqueue push` or HTTP, which split them.
const LONGEST = 100000
// The code of a versionstamp in a tuple.
const STAMP = Buffer.from([0x33])
const NONE = Buffer.alloc(0)

/** The queue is frozen: it is being moved to another database, or has been moved. Push to the database that it is moved to. */
class Frozen extends Error {
  constructor(message) {
    super(message)
    this.name = 'Frozen'
  }
}

/** Adds an item to a queue. `to` is a transaction, or a database. */
function push(to, queue, payload, options) {
  return pushMany(to, queue, [payload], options)
}

/** Adds items to a queue, in their order. `prefix` is the setting `prefix` of kvqueue's configuration, as a Buffer. */
async function pushMany(to, queue, payloads, { prefix = NONE } = {}) {
  checkQueue(queue)
  checkBytes('prefix', prefix)
  const checked = Array.from(payloads, checkedPayload)
  if (to instanceof fdb.Database) return to.doTn(tn => write(tn, queue, checked, prefix))
  if (!(to instanceof fdb.Transaction) || to.isSnapshot) {
    throw new TypeError('cannot push with this: give a transaction, no snapshot, or a database of the package foundationdb')
  }
  return write(to, queue, checked, prefix)
}

async function write(transaction, queue, payloads, prefix) {
  const tn = transaction.at(fdb.root)
  const key = record => Buffer.concat([prefix, fdb.tuple.pack([queue, Buffer.from(record)])])
  // Numbers first, before anything waits: the binding counts them, for all aliases of a transaction, and from 0 again in a retry.
  const numbers = payloads.map(() => tn.getNextTransactionID())
  if (numbers.some(number => number >= MOST)) {
    throw new RangeError(`one transaction pushes at most ${MOST} items; push the others in another one`)
  }
  checkUnfrozen(await tn.get(key('pause')), queue)
  const items = Buffer.concat([key('val'), STAMP])
  payloads.forEach((payload, index) => {
    const number = Buffer.alloc(2)
    number.writeUInt16BE(numbers[index])
    tn.setVersionstampedKeyBuf(items, number, payload)
  })
  if (payloads.length > 0) {
    const count = Buffer.alloc(8)
    count.writeUInt32LE(payloads.length)
    tn.add(key('npush'), count)
  }
}

// The pause is read with a conflict: if the queue is frozen before the commit, the commit fails and the retry sees it.
function checkUnfrozen(pause, queue) {
  if (pause === undefined) return
  // A record of a layout that is not known counts as frozen.
  if (pause.length < 10 || pause[0] !== 1 || pause[1] & 1) {
    const reason = pause.subarray(10).toString() || 'no reason given'
    throw new Frozen(`cannot push to queue ${queue}: it is frozen: ${reason}; push to the database that it is moved to`)
  }
}

function checkQueue(queue) {
  if (typeof queue === 'string') {
    const name = JSON.stringify(queue)
    throw new TypeError(`cannot push to queue ${name}: it is text, and kvqueue's names are bytes; write Buffer.from(${name})`)
  }
  checkBytes('the name of a queue', queue)
  if (queue.length < 1 || queue.length > 255) throw new RangeError('the name of a queue has 1 to 255 bytes')
}

function checkedPayload(payload) {
  if (typeof payload === 'string') {
    throw new TypeError('cannot push a text: payloads are bytes; write Buffer.from(payload)')
  }
  // A copy: the caller may go on to use its own.
  if (payload instanceof Uint8Array) payload = Buffer.from(payload)
  checkBytes('a payload', payload)
  if (payload.length > LONGEST) {
    throw new RangeError(
      `cannot push a payload of ${payload.length} bytes: ${LONGEST} fit into a value; use \`kvqueue push\` or HTTP, which split it`
    )
  }
  return payload
}

function checkBytes(what, value) {
  if (!Buffer.isBuffer(value)) throw new TypeError(`${what} has to be a Buffer`)
}

module.exports = { Frozen, push, pushMany }
