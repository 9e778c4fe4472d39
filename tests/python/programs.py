"""Queues as other programs keep them, in FoundationDB's own Python binding.

Written after FoundationDB's recipes for queues and priority queues, in Python and in Java, and after the Erlang KvQueue: the
same reads, keys and values, without anything of kvqueue's.
"""

import os
import struct

import fdb


class Recipe:
    """(queue, index, random) = value, as the Python program has it."""

    def __init__(self, name):
        self.space = fdb.Subspace((name,))

    def encode(self, value):
        return value

    def decode(self, value):
        return bytes(value)

    @fdb.transactional
    def enqueue(self, tr, value):
        tr[self.space[self.last_index(tr) + 1][os.urandom(20)]] = self.encode(value)

    @fdb.transactional
    def dequeue(self, tr):
        first = self.first_item(tr)
        if first is None:
            return None
        del tr[first.key]
        return self.decode(first.value)

    @fdb.transactional
    def first_item(self, tr):
        every = self.space.range()
        for row in tr.get_range(every.start, every.stop, limit=1):
            return row
        return None

    @fdb.transactional
    def last_index(self, tr):
        every = self.space.range()
        for row in tr.snapshot.get_range(every.start, every.stop, limit=1, reverse=True):
            return self.space.unpack(row.key)[0]
        return 0


class Packed:
    """What the Java programs do with values: each is a tuple of one."""

    def encode(self, value):
        return fdb.tuple.pack((value,))

    def decode(self, value):
        return fdb.tuple.unpack(bytes(value))[0]


class JavaRecipe(Packed, Recipe):
    """(queue, index, random) = (value), as the Java program has it."""


class Priorities:
    """(queue, priority, count, random) = value."""

    def __init__(self, name):
        self.space = fdb.Subspace((name,))

    def encode(self, value):
        return value

    def decode(self, value):
        return bytes(value)

    @fdb.transactional
    def push(self, tr, value, priority):
        tr[self.space[priority][self.next_count(tr, priority)][os.urandom(20)]] = self.encode(value)

    @fdb.transactional
    def next_count(self, tr, priority):
        of_priority = self.space[priority]
        every = of_priority.range()
        for row in tr.snapshot.get_range(every.start, every.stop, limit=1, reverse=True):
            return of_priority.unpack(row.key)[0] + 1
        return 0

    @fdb.transactional
    def pop(self, tr, greatest=False):
        row = self.end(tr, greatest)
        if row is None:
            return None
        del tr[row.key]
        return self.decode(row.value)

    @fdb.transactional
    def peek(self, tr, greatest=False):
        row = self.end(tr, greatest)
        return None if row is None else self.decode(row.value)

    def end(self, tr, greatest):
        every = self.space.range()
        for row in tr.get_range(every.start, every.stop, limit=1, reverse=greatest):
            return row
        return None


class JavaPriorities(Packed, Priorities):
    """(queue, priority, count, random) = (value), as the Java program has it."""


class Erlang:
    """(queue, "val", stamp) = value, and two counters: the Erlang KvQueue. All elements are byte strings."""

    def __init__(self, name):
        self.space = fdb.Subspace((name.encode(),))
        self.values = self.space[b"val"]

    @fdb.transactional
    def push(self, tr, *values):
        for number, value in enumerate(values):
            stamp = fdb.tuple.Versionstamp(user_version=number)
            tr.set_versionstamped_key(self.values.pack_with_versionstamp((stamp,)), value)
            tr.add(self.space[b"npush"], struct.pack("<q", 1))

    @fdb.transactional
    def pop_k(self, tr, k):
        every = self.values.range()
        rows = list(tr.get_range(every.start, every.stop, limit=k))
        if rows:
            tr.clear_range(rows[0].key, fdb.KeySelector.first_greater_than(rows[-1].key))
            tr.add(self.space[b"npop"], struct.pack("<q", len(rows)))
        return [bytes(row.value) for row in rows]

    @fdb.transactional
    def length(self, tr):
        def count(name):
            value = tr[self.space[name]]
            return int.from_bytes(bytes(value), "little") if value.present() else 0

        return count(b"npush") - count(b"npop")
