"""FoundationDB's own layers: tuples, subspaces, directories and their allocator."""

import random
import threading
import uuid

import fdb

from common import DatabaseTest


class Layers(DatabaseTest):
    def items(self, rng, depth=0):
        kinds = [
            lambda: None,
            lambda: rng.randbytes(rng.randrange(8)),
            lambda: "".join(chr(rng.choice((0, 65, 0x3B1, 0x1F600))) for _ in range(rng.randrange(5))),
            lambda: rng.randrange(-(2**70), 2**70),
            lambda: rng.uniform(-1e9, 1e9),
            lambda: rng.random() < 0.5,
            lambda: uuid.UUID(int=rng.getrandbits(128)),
        ]
        if depth < 2:
            kinds.append(lambda: self.items(rng, depth + 1))
        return tuple(rng.choice(kinds)() for _ in range(rng.randrange(4)))

    def test_stored_tuples_come_back_in_their_order(self):
        seed = random.randrange(2**32)
        rng = random.Random(seed)
        tuples = {self.space.pack(items): items for items in (self.items(rng) for _ in range(300))}
        tr = self.db.create_transaction()
        for key in tuples:
            tr[key] = b""
        tr.commit().wait()
        # The empty tuple lies at the subspace's own key.
        rows = [row.key for row in self.db.get_range_startswith(self.space.key())]
        self.assertEqual(rows, sorted(tuples), f"seed {seed}")
        self.assertEqual([self.space.unpack(key) for key in rows], [tuples[key] for key in rows], f"seed {seed}")
        for one, other in zip(rows, rows[1:]):
            self.assertLess(fdb.tuple.compare(tuples[one], tuples[other]), 0, f"seed {seed}")

    def layer(self):
        return fdb.DirectoryLayer(self.space["nodes"], self.space["content"])

    def test_directories_are_made_moved_listed_and_removed(self):
        layer = self.layer()
        made = layer.create_or_open(self.db, ("app", "users"), layer=b"queue")
        self.db[made.pack((1,))] = b"kept"
        self.assertEqual(layer.list(self.db, ("app",)), ["users"])
        moved = layer.move(self.db, ("app", "users"), ("app", "people"))
        self.assertEqual(self.db[moved.pack((1,))], b"kept")
        self.assertFalse(layer.exists(self.db, ("app", "users")))
        with self.assertRaises(ValueError):
            layer.open(self.db, ("app", "people"), layer=b"other")
        self.assertTrue(layer.remove(self.db, "app"))
        self.assertIsNone(self.db[moved.pack((1,))])

    def test_the_allocator_gives_each_thread_its_own(self):
        layer, prefixes, lock = self.layer(), [], threading.Lock()

        def work(thread):
            for number in range(10):
                made = layer.create(self.db, (f"{thread}-{number}",))
                with lock:
                    prefixes.append(made.key())

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(prefixes), len(set(prefixes))), (60, 60))
