//! Options of a transaction: which values they take, and what they do to the calls that follow.

use crate::common::{code, commit, scratch};
use fdb_embedded::{Fault, Faults};
use foundationdb::options::{DatabaseOption, MutationType, TransactionOption as Option};
use foundationdb::{RangeOption, Transaction};

fn text(len: usize) -> String {
    "x".repeat(len)
}

#[tokio::test]
async fn a_bad_value_is_reported_by_the_next_call() {
    let scratch = scratch();
    let cases: Vec<(Vec<Option>, i32)> = vec![
        (vec![Option::Timeout(-1)], 2006),
        (vec![Option::RetryLimit(-2)], 2006),
        (vec![Option::MaxRetryDelay(-1)], 2006),
        (vec![Option::SizeLimit(31)], 2006),
        (vec![Option::SizeLimit(10_000_001)], 2006),
        (vec![Option::Tag(text(256))], 2110),
        (vec![Option::AutoThrottleTag(text(256))], 2110),
        ((0..6).map(|n| Option::Tag(format!("tag{n}"))).collect(), 2109),
        (vec![Option::DebugTransactionIdentifier(String::new())], 2006),
        (vec![Option::DebugTransactionIdentifier(text(101))], 2006),
        (
            vec![Option::DebugTransactionIdentifier(text(1)), Option::DebugTransactionIdentifier(text(2))],
            2000,
        ),
        (vec![Option::TransactionLoggingEnable(text(101))], 2006),
        (vec![Option::LogTransaction], 2000),
        (vec![Option::TransactionLoggingMaxFieldLength(0)], 2006),
        (vec![Option::TransactionLoggingMaxFieldLength(-2)], 2006),
        (vec![Option::SpanParent(vec![0; 32])], 2006),
    ];
    for (options, expected) in cases {
        let tr = scratch.db.create_trx().unwrap();
        let label = format!("{options:?}");
        for option in options {
            tr.set_option(option).unwrap();
        }
        assert_eq!(code(tr.get(b"a", false).await), Err(expected), "{label}");
        assert_eq!(commit(tr).await, Err(expected), "{label}");
    }
}

#[tokio::test]
async fn options_without_effect_are_accepted() {
    let scratch = scratch();
    let mut options = vec![
        Option::CausalWriteRisky,
        Option::CausalReadRisky,
        Option::CausalReadDisable,
        Option::IncludePortInAddress,
        Option::ReadAheadDisable,
        Option::ReadServerSideCacheEnable,
        Option::ReadServerSideCacheDisable,
        Option::ReadPriorityNormal,
        Option::ReadPriorityLow,
        Option::ReadPriorityHigh,
        Option::DurabilityDatacenter,
        Option::DurabilityRisky,
        Option::PrioritySystemImmediate,
        Option::PriorityBatch,
        Option::BypassStorageQuota,
        Option::DebugRetryLogging(text(3)),
        Option::TransactionLoggingEnable(text(3)),
        Option::TransactionLoggingMaxFieldLength(-1),
        Option::ServerRequestTracing,
        Option::AutomaticIdempotency,
        Option::LockAware,
        Option::UseProvisionalProxies,
        Option::ExpensiveClearCostEstimationEnable,
        Option::AuthorizationToken(text(3)),
        Option::RawAccess,
    ];
    options.extend((0..2).map(|n| Option::Tag(format!("tag{n}"))));
    if !scratch.place.is_cluster() {
        // A client of a cluster takes it only with several threads to it, else 2007; here read versions cost nothing.
        options.push(Option::UseGrvCache);
    }
    for option in options {
        let tr = scratch.db.create_trx().unwrap();
        let label = format!("{option:?}");
        tr.set_option(option).unwrap();
        assert_eq!(code(tr.get(b"a", false).await), Ok(()), "{label}");
        tr.set(b"a", b"");
        assert_eq!(commit(tr).await, Ok(()), "{label}");
    }
    let tr = scratch.db.create_trx().unwrap();
    (0..9).for_each(|n| tr.set_option(Option::Tag(format!("tag{}", n % 4))).unwrap());
    tr.set(b"a", b"");
    assert_eq!(commit(tr).await, Ok(()), "a tag that is set twice counts once");
}

#[tokio::test]
async fn automatic_idempotency_does_not_prevent_an_unknown_result() {
    let scratch = scratch();
    // A cluster seldom has one.
    let Some(url) = scratch.place.embedded_url() else { return };
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(Option::AutomaticIdempotency).unwrap();
    tr.set(b"a", b"");
    Faults::script([Fault::UnknownCommitted]).install(&url).unwrap();
    assert_eq!(commit(tr).await, Err(1021));
}

#[tokio::test]
async fn system_keys_need_the_access_option() {
    let scratch = scratch();
    let outcome = async |options: &[Option], call: fn(&Transaction)| {
        let tr = scratch.db.create_trx().unwrap();
        options.iter().for_each(|option| tr.set_option(option.clone()).unwrap());
        call(&tr);
        let read = code(tr.get(b"\xff/x", true).await);
        tr.set(b"a", b"");
        (read, commit(tr).await)
    };
    let (fine, outside) = (Ok(()), Err(2004));
    assert_eq!(outcome(&[], |_| ()).await, (outside, fine));
    assert_eq!(outcome(&[Option::RawAccess], |_| ()).await, (outside, fine));
    assert_eq!(outcome(&[Option::ReadSystemKeys], |_| ()).await, (fine, fine));
    assert_eq!(outcome(&[Option::AccessSystemKeys], |_| ()).await, (fine, fine));
    let write: fn(&Transaction) = |tr| tr.set(b"\xff/test/x", b"");
    assert_eq!(outcome(&[Option::ReadSystemKeys], write).await, (outside, outside));
    assert_eq!(outcome(&[Option::AccessSystemKeys], write).await, (fine, fine));
    let clear: fn(&Transaction) = |tr| tr.clear_range(b"\xff/test/", b"\xff/test0");
    assert_eq!(outcome(&[Option::ReadSystemKeys], clear).await, (outside, outside));
    assert_eq!(outcome(&[Option::AccessSystemKeys], clear).await, (fine, fine));
    let add: fn(&Transaction) = |tr| tr.atomic_op(b"\xff/test/x", b"1", MutationType::Add);
    assert_eq!(outcome(&[Option::RawAccess], add).await, (outside, outside));
}

#[tokio::test]
async fn raw_and_system_access_allow_keys_eight_bytes_longer() {
    let scratch = scratch();
    let outcome = async |option: std::option::Option<Option>, len| {
        let tr = scratch.db.create_trx().unwrap();
        option.into_iter().for_each(|option| tr.set_option(option).unwrap());
        tr.set(&vec![b'k'; len], b"");
        commit(tr).await
    };
    assert_eq!(outcome(None, 10_000).await, Ok(()));
    assert_eq!(outcome(None, 10_001).await, Err(2102));
    for option in [Option::RawAccess, Option::ReadSystemKeys, Option::AccessSystemKeys] {
        assert_eq!(outcome(Some(option.clone()), 10_008).await, Ok(()), "{option:?}");
        assert_eq!(outcome(Some(option.clone()), 10_009).await, Err(2102), "{option:?}");
    }
}

#[tokio::test]
async fn read_lock_aware_alone_refuses_writes() {
    let scratch = scratch();
    let outcome = async |options: &[Option]| {
        let tr = scratch.db.create_trx().unwrap();
        options.iter().for_each(|option| tr.set_option(option.clone()).unwrap());
        tr.set(b"a", b"");
        commit(tr).await
    };
    assert_eq!(outcome(&[Option::ReadLockAware]).await, Err(2023));
    assert_eq!(outcome(&[Option::LockAware, Option::ReadLockAware]).await, Ok(()));
    assert_eq!(outcome(&[Option::ReadLockAware, Option::LockAware]).await, Ok(()));
}

#[tokio::test]
async fn the_size_limit_is_held_against_the_commit() {
    let scratch = scratch();
    let outcome = async |limit, len| {
        let tr = scratch.db.create_trx().unwrap();
        tr.set_option(Option::SizeLimit(limit)).unwrap();
        tr.set(b"a", &vec![0; len]);
        commit(tr).await
    };
    assert_eq!(outcome(1_000, 500).await, Ok(()));
    assert_eq!(outcome(1_000, 1_000).await, Err(2101));
    assert_eq!(outcome(32, 1).await, Err(2101));
}

#[tokio::test]
async fn defaults_of_the_database_reach_its_transactions() {
    let scratch = scratch();
    scratch.db.set_option(DatabaseOption::TransactionSizeLimit(1_000)).unwrap();
    scratch.db.set_option(DatabaseOption::TransactionReportConflictingKeys).unwrap();
    let mut tr = scratch.db.create_trx().unwrap();
    for _ in 0..2 {
        tr.set(b"a", &[0; 1_000]);
        let failed = tr.commit().await.unwrap_err();
        assert_eq!(failed.code(), 2101);
        tr = scratch.db.create_trx().unwrap();
        tr.set_option(Option::SizeLimit(9_000)).unwrap();
        tr.reset();
    }
    let range = RangeOption::from((&b"a"[..], &b"b"[..]));
    tr.get_range(&range, 1, false).await.unwrap();
    tr.set(b"mine", b"");
    let other = scratch.db.create_trx().unwrap();
    other.set(b"a", b"");
    commit(other).await.unwrap();
    assert_eq!(tr.commit().await.unwrap_err().conflicting_keys().await.unwrap().len(), 1);
}
