"""clients/python/kvqueue.py: what it pushes is what `kvqueue` takes.

KVQUEUE is the path of the program; without it these tests are skipped.
"""

import os
import sys
import threading

import fdb

from common import DATABASE
from test_queues import QueueTest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../clients/python"))
import kvqueue


class Producer(QueueTest):
    def setUp(self):
        super().setUp()
        self.queue = self.name.encode()
        self.other = fdb.tuple.pack(("python", self.name))
        self.addCleanup(self.db.clear_range_startswith, self.other)

    def push_three(self, tr):
        for number in range(3):
            kvqueue.push(tr, self.queue, b"%d" % number)

    def test_three_pushes_of_one_transaction_are_three_items(self):
        fdb.transactional(lambda tr: self.push_three(tr))(self.db)
        self.assertEqual(self.length(), 3)
        self.assertEqual(self.pop(9), [b"0", b"1", b"2"])
        self.assertEqual(self.length(), 0)

    def test_a_database_will_do_and_so_will_many_items_of_several_queues(self):
        kvqueue.push(self.db, self.queue, b"one")

        @fdb.transactional
        def more(tr):
            kvqueue.push_many(tr, self.queue, (b"%d" % number for number in range(300)))
            kvqueue.push(tr, self.queue, bytearray(b"last"))
            kvqueue.push_many(tr, self.queue, [])

        more(self.db)
        self.assertEqual(self.length(), 302)
        self.assertEqual(self.pop(400), [b"one"] + [b"%d" % number for number in range(300)] + [b"last"])

    def test_a_text_for_a_name_is_refused_with_what_to_write(self):
        with self.assertRaisesRegex(TypeError, r"kvqueue's names are bytes; write b'emails'"):
            kvqueue.push(self.db, "emails", b"x")
        self.assertEqual(list(self.db.get_range_startswith(fdb.tuple.pack(("emails",)))), [])
        for queue in (b"", b"x" * 256):
            with self.assertRaisesRegex(ValueError, "1 to 255 bytes"):
                kvqueue.push(self.db, queue, b"x")

    def test_payloads_are_bytes_that_fit(self):
        with self.assertRaisesRegex(TypeError, "payload.encode"):
            kvqueue.push(self.db, self.queue, "text")
        with self.assertRaisesRegex(ValueError, "100000 fit"):
            kvqueue.push_many(self.db, self.queue, [b"x", b"x" * 100_001])
        self.assertEqual(self.length(), 0)
        kvqueue.push(self.db, self.queue, b"x" * 100_000)
        self.assertEqual(self.pop(1), [b"x" * 100_000])

    def test_what_cannot_be_numbered_is_refused(self):
        tr = self.db.create_transaction()
        for other in (tr.snapshot, None, object()):
            with self.assertRaises((TypeError, AttributeError)):
                kvqueue.push(other, self.queue, b"x")
        with self.assertRaisesRegex(ValueError, "at most 65536"):
            kvqueue.push_many(tr, self.queue, [b"x"] * 65_537)
        tr.commit().wait()
        self.assertEqual(self.length(), 0)

    def test_a_transaction_that_is_used_again_counts_anew(self):
        tr = self.db.create_transaction()
        for _ in range(3):
            kvqueue.push_many(tr, self.queue, [b"x"] * 30_000)
            tr.reset()
            # So that the next attempt reads at another version.
            self.db[self.other] = b""
        self.push_three(tr)
        tr.commit().wait()
        self.assertEqual(self.pop(9), [b"0", b"1", b"2"])

    def test_threads_that_share_a_transaction_do_not_overwrite_each_other(self):
        tr = self.db.create_transaction()
        threads = [threading.Thread(target=lambda: [kvqueue.push(tr, self.queue, b"x") for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tr.commit().wait()
        self.assertEqual((self.length(), len(self.pop(200))), (100, 100))

    def test_a_frozen_queue_takes_no_pushes_and_a_paused_one_does(self):
        pause = fdb.tuple.pack((self.queue, b"pause"))
        self.kvqueue("pause", "--create")
        kvqueue.push(self.db, self.queue, b"while paused")
        for frozen in (b"\x01\x01" + bytes(8) + b"it moves", b"\x02", b"\x01\x00"):
            self.db[pause] = frozen
            with self.assertRaisesRegex(kvqueue.Frozen, "it is frozen"):
                kvqueue.push(self.db, self.queue, b"lost")
        del self.db[pause]
        self.assertEqual(self.pop(9), [b"while paused"])

    def test_a_queue_that_is_frozen_before_the_commit_refuses_the_push(self):
        tr = self.db.create_transaction()
        kvqueue.push(tr, self.queue, b"lost")
        self.db[fdb.tuple.pack((self.queue, b"pause"))] = b"\x01\x01" + bytes(8) + b"it moves"
        with self.assertRaises(fdb.FDBError) as caught:
            tr.commit().wait()
        self.assertEqual(caught.exception.code, 1020)

    def test_a_prefix_goes_before_all_keys(self):
        prefix = self.other
        kvqueue.push(self.db, self.queue, b"behind", prefix=prefix)
        keys = [bytes(row.key) for row in self.db.get_range_startswith(prefix)]
        self.assertEqual(len(keys), 2)
        self.assertEqual(self.length(), 0)
