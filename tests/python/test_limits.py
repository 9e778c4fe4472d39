"""What fails, and with which code: limits, timeouts, cancellation, what an embedded database does not have."""

import json
import time

import fdb

from common import DatabaseTest


class Limits(DatabaseTest):
    def test_sizes(self):
        self.assert_error(2103, lambda: self.db.set(self.key("k"), b"x" * 100_001))
        self.assert_error(2102, lambda: self.db.set(self.key("k" * 10_001), b""))
        tr = self.db.create_transaction()
        for number in range(101):
            tr[self.key(number)] = b"x" * 100_000
        self.assertGreater(tr.get_approximate_size().wait(), 10_000_000)
        self.assert_error(2101, lambda: tr.commit().wait())

    def test_a_timeout_counts_from_the_beginning(self):
        tr = self.db.create_transaction()
        tr[self.key("k")] = b"v"
        time.sleep(0.05)
        tr.options.set_timeout(20)
        self.assert_error(1031, lambda: tr.commit().wait())
        tr.options.set_timeout(0)
        self.assert_error(1031, lambda: tr[self.key("k")].present())
        tr.reset()
        self.assertFalse(tr[self.key("k")].present())

    def test_a_retry_limit_ends_the_retries(self):
        tr = self.db.create_transaction()
        tr.options.set_retry_limit(1)
        tr.on_error(1020).wait()
        self.assert_error(1020, lambda: tr.on_error(1020).wait())

    def test_a_cancelled_transaction_stays_so_until_its_reset(self):
        tr = self.db.create_transaction()
        tr.cancel()
        self.assert_error(1025, lambda: tr[self.key("k")].present())
        self.assert_error(1025, lambda: tr.commit().wait())
        tr.reset()
        self.assertFalse(tr[self.key("k")].present())

    def test_system_keys_need_the_option(self):
        tr = self.db.create_transaction()
        self.assert_error(2004, lambda: tr[b"\xff/x"].present())
        tr.reset()
        tr.options.set_read_system_keys()
        self.assertFalse(tr[b"\xff/no such key"].present())

    def test_there_are_no_tenants(self):
        tenant = self.db.open_tenant(b"no such tenant")
        tr = tenant.create_transaction()
        self.assert_error(2131, lambda: tr[b"k"].present())
        self.assert_error(2131, lambda: tenant.get_id().wait())

    def test_the_client_says_that_it_is_well(self):
        self.assertTrue(json.loads(self.db.get_client_status().wait())["Healthy"])

    def test_predicates(self):
        self.assertTrue(fdb.predicates.is_retryable(fdb.FDBError(1020)))
        self.assertTrue(fdb.predicates.is_maybe_committed(fdb.FDBError(1021)))
        self.assertFalse(fdb.predicates.is_retryable_not_committed(fdb.FDBError(1021)))
        self.assertFalse(fdb.predicates.is_retryable(fdb.FDBError(2000)))
