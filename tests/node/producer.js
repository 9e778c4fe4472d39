// clients/node/kvqueue.js: what it pushes is what `kvqueue` takes. Run by mocha; KVQUEUE is the path of the program.

'use strict'

const assert = require('assert')
const { execFileSync } = require('child_process')
const path = require('path')

const fdb = require('foundationdb')
fdb.setAPIVersion(720)
const kvqueue = require(path.join(__dirname, '../../clients/node/kvqueue.js'))

const database = process.env.FDB_CLUSTER_FILE
const db = fdb.open(database)
const name = 'node-producer'
const queue = Buffer.from(name)
const bytes = text => Buffer.from(text)
const key = record => fdb.tuple.pack([queue, bytes(record)])

// `kvqueue` is a guest of this process's database, whose threads answer while this one waits.
const run = (command, ...more) =>
  execFileSync(process.env.KVQUEUE, [command, '--database', database, name, ...more], { timeout: 60000, encoding: 'utf8' })
const pop = () => run('pop', '-k', '1000').split('\n').slice(0, -1)
const length = () => Number(run('len'))

describe('kvqueue.js', function () {
  this.timeout(60000)
  beforeEach(() => db.doTn(async tn => tn.clearRangeStartsWith(fdb.tuple.pack([queue]))))

  it('pushes three items in one transaction', async () => {
    await db.doTn(async tn => {
      for (const payload of ['0', '1', '2']) await kvqueue.push(tn, queue, bytes(payload))
    })
    assert.strictEqual(length(), 3)
    assert.deepStrictEqual(pop(), ['0', '1', '2'])
    assert.strictEqual(length(), 0)
  })

  it('numbers pushes that run side by side, and those of aliases', async () => {
    await db.at('elsewhere/').doTn(async tn => {
      await Promise.all(Array.from({ length: 50 }, (_, index) => kvqueue.push(tn, queue, bytes(`${index}`))))
      await kvqueue.pushMany(tn.at(db.at('deeper/')), queue, [bytes('a'), bytes('b')])
    })
    assert.strictEqual(length(), 52)
    assert.strictEqual(pop().length, 52)
  })

  it('takes a database', async () => {
    await kvqueue.push(db, queue, bytes('one'))
    await kvqueue.pushMany(db, queue, [bytes('two'), new Uint8Array([0x33])])
    assert.deepStrictEqual(pop(), ['one', 'two', '3'])
  })

  it('refuses a text for a name, and says what to write', async () => {
    await assert.rejects(kvqueue.push(db, 'emails', bytes('x')), /names are bytes; write Buffer.from\("emails"\)/)
    await assert.rejects(kvqueue.push(db, Buffer.alloc(0), bytes('x')), /1 to 255 bytes/)
  })

  it('refuses payloads that are no bytes, or do not fit', async () => {
    await assert.rejects(kvqueue.push(db, queue, 'text'), /write Buffer.from/)
    await assert.rejects(kvqueue.pushMany(db, queue, [bytes('x'), Buffer.alloc(100001)]), /100000 fit/)
    assert.strictEqual(length(), 0)
  })

  it('refuses what cannot be numbered', async () => {
    await assert.rejects(kvqueue.push({}, queue, bytes('x')), TypeError)
    await db.doTn(async tn => {
      await assert.rejects(kvqueue.push(tn.snapshot(), queue, bytes('x')), TypeError)
      const many = Array(65537).fill(bytes('x'))
      await assert.rejects(kvqueue.pushMany(tn, queue, many), /at most 65536/)
    })
    assert.strictEqual(length(), 0)
  })

  it('numbers from 0 again in a retry', async () => {
    let attempts = 0
    await db.doTn(async tn => {
      attempts += 1
      await kvqueue.pushMany(tn, queue, Array(400).fill(bytes('x')))
      if (attempts < 3) throw new fdb.FDBError('once more', 1020)
    })
    assert.strictEqual(attempts, 3)
    assert.strictEqual(pop().length, 400)
  })

  it('leaves a frozen queue alone, and pushes to a paused one', async () => {
    run('pause', '--create')
    await kvqueue.push(db, queue, bytes('while paused'))
    for (const frozen of [Buffer.concat([Buffer.from([1, 1]), Buffer.alloc(8), bytes('it moves')]), Buffer.from([2])]) {
      await db.doTn(async tn => tn.set(key('pause'), frozen))
      await assert.rejects(kvqueue.push(db, queue, bytes('lost')), kvqueue.Frozen)
    }
    await db.doTn(async tn => tn.clear(key('pause')))
    assert.deepStrictEqual(pop(), ['while paused'])
  })
})
