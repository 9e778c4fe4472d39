"""Watches: what fires them, and what does not."""

import threading

from common import DatabaseTest


class Watches(DatabaseTest):
    def watch(self, key):
        tr = self.db.create_transaction()
        future = tr.watch(key)
        tr.commit().wait()
        return future

    def test_a_change_fires_it(self):
        watch = self.watch(self.key("w"))
        self.assertFalse(watch.is_ready())
        fired = threading.Event()
        watch.on_ready(lambda _: fired.set())
        self.db[self.key("w")] = b"1"
        self.assertTrue(fired.wait(10))
        watch.wait()

    def test_another_key_and_the_same_value_do_not(self):
        self.db[self.key("w")] = b"same"
        watch = self.watch(self.key("w"))
        self.db[self.key("v")] = b"other"
        self.db[self.key("w")] = b"same"
        self.assertFalse(watch.is_ready())
        self.db[self.key("w")] = b"changed"
        watch.wait()

    def test_a_conflict_ends_it(self):
        tr = self.db.create_transaction()
        tr[self.key("read")].present()
        tr[self.key("written")] = b""
        watch = tr.watch(self.key("w"))
        self.db[self.key("read")] = b"changed"
        self.assert_error(1020, lambda: tr.commit().wait())
        self.assert_error(1020, watch.wait)

    def test_many_on_one_key_fire_together(self):
        watches = [self.watch(self.key("w")) for _ in range(100)]
        self.db[self.key("w")] = b"1"
        for watch in watches:
            watch.wait()

    def test_a_cancelled_one_is_cancelled(self):
        watch = self.watch(self.key("w"))
        watch.cancel()
        self.assert_error(1101, watch.wait)

    def test_there_is_a_limit(self):
        self.db.options.set_max_watches(1)
        try:
            watch = self.watch(self.key("w"))
            tr = self.db.create_transaction()
            second = tr.watch(self.key("v"))
            # A refused watch fails itself; whether the commit fails with it is not promised.
            try:
                tr.commit().wait()
            except Exception:
                pass
            self.assert_error(1032, second.wait)
            watch.cancel()
        finally:
            self.db.options.set_max_watches(10_000)
