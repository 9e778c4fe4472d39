use foundationdb::Database;
use futures::executor::block_on;
use kvqueue_queue::{RetryPolicy, retry};

use super::*;
use crate::{
    audit::{Action, Who},
    testing::TestDatabase,
};

const PAGE: &str = include_str!("../../../docs/keyspace/vectors-of-features.md");

#[track_caller]
fn golden(made: &[u8], vector: &str) {
    let spaced: Vec<String> = made.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(spaced.join(" "), vector);
    assert!(
        PAGE.contains(&format!("`{vector}`")),
        "docs/keyspace/vectors-of-features.md has no vector {vector}"
    );
}

#[test]
fn the_keys_are_those_of_the_page() {
    let store = AuditStore::new(b"");
    // 0 is 14, "kvqueue" 02 6b 76 71 75 65 75 65 00, "audit" 02 61 75 64 69 74 00; the stamp stands at 18.
    golden(
        &store.records.pack_with_versionstamp(&Versionstamp::incomplete(0)),
        "14 02 6b 76 71 75 65 75 65 00 02 61 75 64 69 74 00 33 ff ff ff ff ff ff ff ff ff ff 00 00 12 00 00 00",
    );
    golden(&store.count, "14 02 6b 76 71 75 65 75 65 00 02 61 75 64 69 74 2d 63 6f 75 6e 74 00");
    golden(&store.last, "14 02 6b 76 71 75 65 75 65 00 02 61 75 64 69 74 2d 6c 61 73 74 00");
    let behind = AuditStore::new(b"p");
    assert_eq!(behind.count, [b"p".as_slice(), &store.count].concat());
}

#[test]
fn a_stored_record_is_that_of_the_page() {
    let stored = r#"{"id":"018bcfe5687b7a0e8f1a2b3c4d5e6f70","at":1700000000000,"action":"queue.pause","who":{"kind":"token","name":"ci"},"address":"127.0.0.1:5","details":{"reason":"no"},"queue":"q"}"#;
    assert!(
        PAGE.contains(&format!("`{stored}`")),
        "docs/keyspace/vectors-of-features.md has no record {stored}"
    );
    let record: Record = serde_json::from_str(stored).unwrap();
    let mut made = Record::new(Action::OF_A_TEST, Who::Token { name: "ci".to_owned() })
        .with_address(Some("127.0.0.1:5".to_owned()))
        .about(b"q")
        .with("reason", "no");
    (made.id, made.at) = (record.id.clone(), record.at);
    assert_eq!(record, made);
    let made: serde_json::Value = serde_json::to_value(&made).unwrap();
    assert_eq!(made, serde_json::from_str::<serde_json::Value>(stored).unwrap());
}

struct Trail {
    db: TestDatabase,
    store: AuditStore,
}

impl Trail {
    fn new() -> Self {
        Self { db: TestDatabase::new().unwrap(), store: AuditStore::new(b"p") }
    }

    fn run<T, R>(&self, body: impl FnMut(Transaction) -> R) -> T
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let db: &Database = &self.db;
        block_on(retry::run(db, &RetryPolicy::default(), body)).unwrap().value
    }

    fn add(&self, queue: &str, at: u64) -> Record {
        let mut record = Record::new(Action::OF_A_TEST, Who::Operator).about(queue.as_bytes());
        record.at = from_millis(at);
        self.run(|tr| async {
            self.store.write(&tr, &record);
            (tr, Ok(()))
        });
        record
    }

    /// A record of a newer version.
    fn add_unknown(&self) {
        let key = self.store.records.pack_with_versionstamp(&Versionstamp::incomplete(0));
        self.run(|tr| async {
            let value = br#"{"id":"1","at":"soon","action":"queue.fold","who":{"kind":"robot"}}"#;
            tr.atomic_op(&key, value, MutationType::SetVersionstampedKey);
            tr.atomic_op(&self.store.count, &1_u64.to_le_bytes(), MutationType::Add);
            (tr, Ok(()))
        });
    }

    fn page(&self, after: Option<Cursor>, filter: &Filter, limit: usize) -> Page {
        self.run(|tr| async {
            let page = self.store.page(&tr, after, filter, limit).await;
            (tr, page)
        })
    }

    fn all(&self, filter: &Filter) -> Vec<u64> {
        self.page(None, filter, usize::MAX).records.iter().map(|record| millis(record.at)).collect()
    }

    fn sweep(&self, oldest: u64) -> (u64, bool) {
        self.run(|tr| async {
            let swept = self.store.sweep(&tr, from_millis(oldest), Duration::ZERO).await;
            (tr, swept)
        })
    }
}

#[test]
fn pages_have_the_newest_records_first_and_pass_over_unknown_ones() {
    let trail = Trail::new();
    for at in 1..=5 {
        trail.add(if at % 2 == 0 { "even" } else { "odd" }, at);
        trail.add_unknown();
    }
    assert_eq!(trail.all(&Filter::default()), [5, 4, 3, 2, 1]);
    let even = Filter { queue: Some(b"even".to_vec()), since: None };
    assert_eq!(trail.all(&even), [4, 2]);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = trail.page(after, &Filter::default(), 2);
        assert!(page.records.len() <= 2);
        seen.extend(page.records.iter().map(|record| millis(record.at)));
        after = page.next;
        let Some(next) = after else { break };
        assert_eq!(next.to_string().parse(), Ok(next));
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    for wrong in ["", "+0", &"g".repeat(24), &"é".repeat(12)] {
        assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
    }
}

#[test]
fn a_list_since_a_time_bears_clocks_that_differ() {
    let trail = Trail::new();
    let hour = times::whole_millis(CLOCKS_DIFFER);
    for at in [1, hour * 3, hour * 3 - 10, hour * 3 + 5] {
        trail.add("q", at);
    }
    let since = Filter { queue: None, since: Some(from_millis(hour * 3)) };
    assert_eq!(trail.all(&since), [hour * 3 + 5, hour * 3]);
}

#[test]
fn a_record_that_was_written_twice_is_listed_once() {
    let trail = Trail::new();
    let record = trail.add("q", 1);
    trail.run(|tr| async {
        trail.store.write(&tr, &record);
        (tr, Ok(()))
    });
    assert_eq!(trail.all(&Filter::default()), [1]);
}

#[test]
fn old_records_are_removed() {
    let trail = Trail::new();
    trail.add_unknown();
    for at in [10, 20, 5, 30] {
        trail.add("q", at);
        trail.add_unknown();
    }
    assert_eq!(trail.sweep(10), (0, false));
    // A record stays for as long as one before it does: a clock that was wrong removes nothing of others.
    assert_eq!(trail.sweep(20), (2, false));
    assert_eq!(trail.all(&Filter::default()), [30, 5, 20]);
    // A clock that is ahead of the last record does not count.
    assert_eq!(trail.sweep(u64::MAX), (4, false));
    assert_eq!(trail.all(&Filter::default()), [30]);
    trail.add("q", 31);
    // Behind the last old one.
    assert_eq!(trail.sweep(31), (2, false));
    assert_eq!(trail.all(&Filter::default()), [31]);
    let count = trail.run(|tr| async {
        let count = trail.store.count(&tr).await;
        (tr, count)
    });
    assert_eq!(count, 2, "and the one that cannot be read");
}

#[test]
fn records_conflict_with_nothing_and_replace_something_once_they_are_prepared() {
    let trail = Trail::new();
    let prepare = || {
        trail.run(|tr| async {
            let prepared = trail.store.prepare(&tr).await;
            (tr, prepared)
        });
    };
    let last = || block_on(trail.db.get(&trail.store.last)).unwrap();
    prepare();
    assert_eq!(last(), Some(vec![0; 8]));
    trail.add("q", 258);
    prepare();
    assert_eq!(last(), Some(258_u64.to_le_bytes().to_vec()));
    // Two transactions that begin before the other's commit.
    let record = Record::new(Action::OF_A_TEST, Who::Anyone);
    let both = [(); 2].map(|()| trail.db.create_trx().unwrap());
    for tr in &both {
        block_on(tr.get_read_version()).unwrap();
        trail.store.write(tr, &record);
    }
    for tr in both {
        block_on(tr.commit()).map_err(drop).unwrap();
    }
}
