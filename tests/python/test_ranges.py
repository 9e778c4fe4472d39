"""Ranges: modes, limits, directions, selectors, estimates."""

import fdb

from common import DatabaseTest


class Ranges(DatabaseTest):
    ROWS = 1200

    def setUp(self):
        super().setUp()
        tr = self.db.create_transaction()
        for number in range(self.ROWS):
            tr[self.key(number)] = b"%d" % number * 20
        tr.commit().wait()

    def numbers(self, rows):
        return [self.space.unpack(row.key)[0] for row in rows]

    def test_every_mode_and_direction_reads_the_same(self):
        everything = list(range(self.ROWS))
        modes = fdb.StreamingMode
        for mode in (modes.want_all, modes.iterator, modes.small, modes.medium, modes.large, modes.serial):
            rows = self.db.get_range_startswith(self.space.key(), streaming_mode=mode)
            self.assertEqual(self.numbers(rows), everything, mode)
            rows = self.db.get_range_startswith(self.space.key(), reverse=True, streaming_mode=mode)
            self.assertEqual(self.numbers(rows), everything[::-1], mode)

    def test_limits(self):
        begin, end = self.key(100), self.key(1100)
        for limit in (1, 2, 999, 1000, 1001):
            wanted = list(range(100, 1100))
            rows = self.db.get_range(begin, end, limit=limit)
            self.assertEqual(self.numbers(rows), wanted[:limit])
            rows = self.db.get_range(begin, end, limit=limit, reverse=True)
            self.assertEqual(self.numbers(rows), wanted[::-1][:limit])

    def test_selectors(self):
        selector = fdb.KeySelector
        for make, number in (
            (selector.last_less_than, 499),
            (selector.last_less_or_equal, 500),
            (selector.first_greater_or_equal, 500),
            (selector.first_greater_than, 501),
        ):
            self.assertEqual(self.db.get_key(make(self.key(500))), self.key(number))
            self.assertEqual(self.db.get_key(make(self.key(500)) + 10), self.key(number + 10))
            self.assertEqual(self.db.get_key(make(self.key(500)) - 10), self.key(number - 10))
        rows = self.db.get_range(
            selector.first_greater_than(self.key(10)), selector.first_greater_or_equal(self.key(15)) + 2
        )
        self.assertEqual(self.numbers(rows), list(range(11, 17)))

    def test_own_writes_are_among_the_rows(self):
        tr = self.db.create_transaction()
        del tr[self.key(1) : self.key(self.ROWS - 1)]
        tr[self.key(7)] = b"seven"
        rows = list(tr.get_range_startswith(self.space.key()))
        self.assertEqual(self.numbers(rows), [0, 7, self.ROWS - 1])
        tr.options.set_snapshot_ryw_disable()
        rows = tr.snapshot.get_range_startswith(self.space.key())
        self.assertEqual(len(list(rows)), self.ROWS)

    def test_a_row_that_appears_in_a_range_that_was_read_conflicts(self):
        tr = self.db.create_transaction()
        self.assertEqual(self.numbers(tr.get_range(self.key(10), self.key(20), limit=3)), [10, 11, 12])
        tr[self.key("done")] = b""
        self.db[self.key(15)] = b"beyond what was read"
        tr.commit().wait()
        tr = self.db.create_transaction()
        list(tr.get_range(self.key(10), self.key(20)))
        tr[self.key("done")] = b""
        self.db[self.key(15)] = b"again"
        self.assert_error(1020, lambda: tr.commit().wait())

    def test_sizes_and_places(self):
        tr = self.db.create_transaction()
        begin, end = self.space.range().start, self.space.range().stop
        self.assertGreater(tr.get_estimated_range_size_bytes(begin, end).wait(), self.ROWS * 20)
        points = tr.get_range_split_points(begin, end, 10_000).wait()
        self.assertEqual((points[0], points[-1]), (begin, end))
        self.assertEqual(points, sorted(points))
        self.assertEqual(len(fdb.locality.get_addresses_for_key(tr, begin).wait()), 1)
