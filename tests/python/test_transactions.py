"""Single keys: reads, writes, atomic operations, conflicts, versionstamps."""

import struct
import threading

import fdb

from common import DatabaseTest


class Transactions(DatabaseTest):
    def test_a_write_is_read_back_within_and_after(self):
        tr = self.db.create_transaction()
        self.assertFalse(tr[self.key("a")].present())
        tr[self.key("a")] = b"\x00binary\xff"
        self.assertEqual(tr[self.key("a")].wait(), b"\x00binary\xff")
        tr.commit().wait()
        self.assertEqual(self.db[self.key("a")], b"\x00binary\xff")
        self.assertGreater(tr.get_committed_version(), 0)
        del self.db[self.key("a")]
        self.assertIsNone(self.db[self.key("a")])

    def test_two_who_read_and_write_the_same_conflict(self):
        first, second = self.db.create_transaction(), self.db.create_transaction()
        for tr in (first, second):
            tr[self.key("counter")].present()
            tr[self.key("counter")] = b"1"
        first.commit().wait()
        self.assert_error(1020, lambda: second.commit().wait())
        second.on_error(1020).wait()
        self.assertEqual(second[self.key("counter")].wait(), b"1")

    def test_a_snapshot_read_does_not_conflict(self):
        first, second = self.db.create_transaction(), self.db.create_transaction()
        first.snapshot[self.key("counter")].present()
        first[self.key("other")] = b"x"
        second[self.key("counter")] = b"1"
        second.commit().wait()
        first.commit().wait()

    def test_atomic_operations(self):
        key, number = self.key("number"), struct.Struct("<Q")
        for _ in range(10):
            self.db.add(key, number.pack(7))
        self.assertEqual(number.unpack(self.db[key])[0], 70)
        self.db.max(key, number.pack(100))
        self.db.min(key, number.pack(90))
        self.db.bit_xor(key, number.pack(1))
        self.assertEqual(number.unpack(self.db[key])[0], 91)
        tr = self.db.create_transaction()
        tr.compare_and_clear(key, number.pack(91))
        tr.commit().wait()
        self.assertIsNone(self.db[key])

    def test_a_versionstamp_is_that_of_the_commit(self):
        tr = self.db.create_transaction()
        tr.set_versionstamped_key(
            fdb.tuple.pack_with_versionstamp((fdb.tuple.Versionstamp(user_version=3),), self.space.key()), b"v"
        )
        stamp = tr.get_versionstamp()
        tr.commit().wait()
        (row,) = list(self.db.get_range_startswith(self.space.key()))
        (found,) = self.space.unpack(row.key)
        self.assertEqual((found.tr_version, found.user_version), (stamp.wait(), 3))
        self.assertEqual(struct.unpack(">Q", stamp.wait()[:8])[0], tr.get_committed_version())

    def test_increments_of_many_threads_add_up(self):
        key, threads, rounds = self.key("shared"), 8, 25

        @fdb.transactional
        def increment(tr):
            value = tr[key]
            count = int(value.wait()) if value.present() else 0
            tr[key] = str(count + 1).encode()

        def work():
            for _ in range(rounds):
                increment(self.db)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(int(self.db[key]), threads * rounds)
