"""Push items to kvqueue's queues from Python, in transactions of your own.

    import fdb
    fdb.api_version(730)
    import kvqueue

    db = fdb.open("embedded:/var/lib/kvqueue")      # or the path of a cluster file
    kvqueue.push(db, b"emails", b"hello")           # a transaction of its own

    @fdb.transactional
    def order(tr, number):
        tr[b"orders/%d" % number] = b"paid"
        kvqueue.push(tr, b"emails", b"thank you")   # both happen, or neither
        kvqueue.push_many(tr, b"parcels", [b"box", b"letter"])

Works with the package `foundationdb` of FoundationDB. Copy this file next to your program. docs/KEYSPACE.md of kvqueue
describes what it writes.

Given a database, a push is retried as every FoundationDB transaction is. If the outcome of a commit is unknown, the retry may
push the items a second time. `kvqueue push --idempotency-key` and the HTTP API recognise such a repetition.
"""

import threading
import weakref

import fdb
import fdb.impl
import fdb.tuple

__all__ = ["Frozen", "push", "push_many"]

# A stamp has two bytes for the number of the push in its transaction.
MOST = 1 << 16
# FoundationDB's limit for a value. Longer payloads go through `kvqueue push` or HTTP, which split them.
LONGEST = 100_000


class Frozen(Exception):
    """The queue is frozen: it is being moved to another database, or has been moved. Push to the database that it is moved to."""


class _Pushed:
    """What has been pushed in one attempt of a transaction."""

    def __init__(self, version):
        self.version = version
        self.count = 0


_lock = threading.Lock()
_attempts = weakref.WeakKeyDictionary()


@fdb.impl.transactional
def push(tr, queue, payload, prefix=b""):
    """Adds an item to a queue. `tr` is a transaction, or a database."""
    push_many(tr, queue, [payload], prefix)


@fdb.impl.transactional
def push_many(tr, queue, payloads, prefix=b""):
    """Adds items to a queue, in their order. `prefix` is the setting `prefix` of kvqueue's configuration, as bytes."""
    _check_transaction(tr)
    _check_queue(queue)
    _check_bytes("prefix", prefix)
    payloads = [_checked_payload(payload) for payload in payloads]
    # Waits for the database, so the lock is not held.
    version = tr.get_read_version().wait()
    with _lock:
        pushed = _attempts.get(tr)
        # A transaction that is retried reads at a later version, and nothing of it is left. One that is reset may read at the same
        # version: then the numbers of its first attempt are not used again.
        if pushed is None or pushed.version != version:
            pushed = _attempts[tr] = _Pushed(version)
        first = pushed.count
        if first + len(payloads) > MOST:
            raise ValueError(f"one transaction pushes at most {MOST} items; push the others in another one")
        pushed.count += len(payloads)
    # In every call: a transaction that was reset has forgotten what it read.
    _check_unfrozen(tr, queue, prefix)
    for number, payload in enumerate(payloads, first):
        stamp = fdb.tuple.Versionstamp(user_version=number)
        key = fdb.tuple.pack_with_versionstamp((queue, b"val", stamp), prefix=prefix)
        tr.set_versionstamped_key(key, payload)
    if payloads:
        tr.add(fdb.tuple.pack((queue, b"npush"), prefix=prefix), len(payloads).to_bytes(8, "little"))


def _check_unfrozen(tr, queue, prefix):
    """Reads the record of a pause: if the queue is frozen before the commit, the commit fails and the retry sees it."""
    pause = tr.get(fdb.tuple.pack((queue, b"pause"), prefix=prefix)).wait()
    if not pause.present():
        return
    pause = bytes(pause)
    # A record of a layout that is not known counts as frozen.
    if len(pause) < 10 or pause[0] != 1 or pause[1] & 1:
        reason = pause[10:].decode(errors="replace") or "no reason given"
        raise Frozen(f"cannot push to queue {queue!r}: it is frozen: {reason}; push to the database that it is moved to")


def _check_transaction(tr):
    # A snapshot cannot write. A stranger's object may be one transaction under two names, whose pushes would get the same numbers.
    if not isinstance(tr, fdb.impl.Transaction):
        raise TypeError(f"cannot push with {tr!r}: give a transaction, a database or a tenant of the package foundationdb")


def _check_queue(queue):
    if isinstance(queue, str):
        raise TypeError(f"cannot push to queue {queue!r}: it is text, and kvqueue's names are bytes; write {queue.encode()!r}")
    _check_bytes("the name of a queue", queue)
    if not 1 <= len(queue) <= 255:
        raise ValueError(f"cannot push to queue {queue!r}: a name has 1 to 255 bytes")


def _checked_payload(payload):
    if isinstance(payload, str):
        raise TypeError("cannot push a text: payloads are bytes; write payload.encode()")
    if isinstance(payload, (bytearray, memoryview)):
        payload = bytes(payload)
    _check_bytes("a payload", payload)
    if len(payload) > LONGEST:
        raise ValueError(
            f"cannot push a payload of {len(payload)} bytes: {LONGEST} fit into a value; use `kvqueue push` or HTTP, which split it"
        )
    return payload


def _check_bytes(what, value):
    if not isinstance(value, bytes):
        raise TypeError(f"{what} has to be bytes, and is {type(value).__name__}")
