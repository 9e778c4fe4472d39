"""The database that these programs run on, opened with FoundationDB's own Python binding.

FDB_CLUSTER_FILE names it, as FoundationDB's default cluster file: embedded:DIR, or the cluster file of a cluster. Each
program keeps to a prefix of its own.
"""

import os
import unittest

import fdb

fdb.api_version(730)
if "FDB_CLUSTER_FILE" not in os.environ:
    raise SystemExit("FDB_CLUSTER_FILE has to name the database: embedded:DIR, or a cluster file")
DATABASE = fdb.open()
# A test that hangs fails instead.
DATABASE.options.set_transaction_timeout(20_000)


class DatabaseTest(unittest.TestCase):
    """A test with an empty part of the key space to itself."""

    def setUp(self):
        self.db = DATABASE
        self.space = fdb.Subspace(("python", self.id()))
        self.clear()

    def tearDown(self):
        self.clear()

    def clear(self):
        self.db.clear_range_startswith(self.space.key())

    def key(self, *items):
        return self.space.pack(items)

    def assert_error(self, code, call):
        with self.assertRaises(fdb.FDBError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
