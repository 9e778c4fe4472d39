//! Golden vectors, worked out by hand from the tuple encoding and given in `docs/keyspace/` too.
//!
//! A byte string is 01, its bytes with 00 written as 00 FF, and 00. A 96-bit versionstamp is 33 and its 12 bytes.
//! A UUID is 30 and its 16 bytes. The range of a tuple is from its packed form and 00 to its packed form and FF.

use super::*;
use std::time::Duration;

use bytes::Bytes;

use crate::keys::batches::{MEMBERS, PENDING_MARK, Record as BatchRecord, encode_callback};
use crate::keys::cancelled::{self, CancelledItems};
use crate::keys::clocks::{Reading, Readings};
use crate::keys::duty::Duty;
use crate::keys::ended::Setting;
use crate::keys::leases::{Header, Held};
use crate::keys::migration::{Marks, Phase, Record};
use crate::keys::partitions::{Deal, Record as Divided};
use crate::keys::progress::{self, ProgressRecord};
use crate::keys::schedules::state::{Last, State, Waiting};
use crate::keys::wants::Want;
use crate::keys::{
    chunks, counters, ended, items, later, leases, meta, operations, recipes, schedules, tokens,
};
use crate::model::history::Ending;
use crate::model::id_layout::{before_stamp, priority_id, queue_id, suffix_stamp};
use crate::model::item_batch::BatchId;
use crate::model::kind::{End, Packing};
use crate::model::lease_id::LeaseId;
use crate::model::meta::{Failure, Meta};
use crate::model::new_item::NewItem;
use crate::model::pause::Pause;
use crate::model::progress::Progress;
use crate::model::schedule::{Calendar, MissReason, OccurrenceRecord, Outcome, Overlap, Schedule};
use crate::model::session_id::SessionId;
use crate::model::sizes::{MAX_NAME, MAX_PREFIX};
use crate::model::stamp::Stamp;
use crate::model::time::from_millis;
use crate::testing::listed_in_keyspace;

/// Bytes as the vectors write them, blanks between elements.
fn hex(bytes: &str) -> Vec<u8> {
    let digits: String = bytes.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// Holds the bytes we make against a vector, and the vector against the page.
#[track_caller]
fn golden(made: &[u8], vector: &str) {
    assert_eq!(made, hex(vector));
    let spaced: Vec<String> = made.iter().map(|byte| format!("{byte:02x}")).collect();
    let spaced = spaced.join(" ");
    assert!(PAGE.contains(&format!("`{spaced}`")), "docs/keyspace/ has no vector {spaced}");
}

const PAGE: &str = concat!(
    include_str!("../../../../../docs/keyspace/vectors.md"),
    include_str!("../../../../../docs/keyspace/vectors-of-features.md"),
);

#[test]
fn golden_keys_of_a_queue_and_its_counters() {
    // "q" is 71, so (q) is 01 71 00.
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    golden(&space.queue, "017100");
    // "npush" is 6e 70 75 73 68.
    golden(space.counter(Counter::Push), "017100 01 6e70757368 00");
    let (begin, end) = space.queue_range();
    golden(&begin, "017100 00");
    golden(&end, "017100 ff");
    // "val" is 76 61 6c.
    let (begin, end) = space.item_range();
    golden(&begin, "017100 01 76616c 00 00");
    golden(&end, "017100 01 76616c 00 ff");
    golden(&counters::increment(1), "0100000000000000");
}

/// The vectors have one key of each shape. This is what the others differ in.
#[test]
fn every_record_has_the_element_that_the_page_lists() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let (schedules, batches) = (space.schedules(), space.batches());
    let records = [
        (&space.ready, "val"),
        (&space.parted, "part"),
        (&space.partitions, "partitions"),
        (&space.meta, "meta"),
        (&space.chunks, "chunk"),
        (&space.leases, "lease"),
        (&space.held, "held"),
        (&space.progress, "progress"),
        (&space.cancelled, "cancelled"),
        (&space.dues, "due"),
        (&space.dead, "dead"),
        (&space.bodies, "body"),
        (&space.unique, "unique"),
        (&space.operations, "op"),
        (&space.oplog, "oplog"),
        (&space.wants, "want"),
        (&space.claim, "sweep"),
        (&space.duty, "duty"),
        (&space.clocks, "clocks"),
        (&space.times, "times"),
        (&space.pause, "pause"),
        (&space.migrate, "migrate"),
        (&schedules.definitions, "schedule"),
        (&batches.records, "batch"),
        (&space.history, "history"),
        (&space.ended, "ended"),
        (&space.ended_ids, "ended-id"),
        (&space.ended_by, "ended-by"),
        (&space.results, "result"),
        (&space.tokens, "token"),
    ];
    assert_eq!(listed_in_keyspace("Other records"), records.map(|(_, element)| element));
    let events = Event::ALL.map(|event| (space.agenda(event), str::from_utf8(event.element()).unwrap()));
    let events = events.iter().map(|(agenda, element)| (agenda.prefix(), *element));
    let counters = Counter::ALL.map(|counter| (space.counter(counter), counter.name()));
    let records = records.iter().map(|(key, element)| (key.as_slice(), *element));
    for (key, element) in records.chain(events).chain(counters) {
        assert_eq!(key, [b"\x01q\x00\x01", element.as_bytes(), b"\x00"].concat(), "{element}");
    }
}

#[test]
fn golden_operand_of_a_push() {
    // (q, "val") has 3 + 5 bytes and the code 33 one more, so the stamp stands at 9: 09000000 little endian.
    // The second push of a transaction has the user version 1: 0001 big endian.
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    golden(&items::pending(&space.ready, 1), "017100 0176616c00 33 ffffffffffffffffffff 0001 09000000");
}

#[test]
fn golden_item_key() {
    // Committed at version 0x1a2b3c4d5e6f, as number 3 of its version, push number 1 of its transaction.
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let vector = "017100 0176616c00 33 00001a2b3c4d5e6f 0003 0001";
    let stamp = items::decode(&space.ready, &hex(vector)).unwrap();
    assert_eq!(stamp.to_string(), "00001a2b3c4d5e6f00030001");
    assert_eq!((stamp.version(), stamp.user_version()), (0x1a2b_3c4d_5e6f, 1));
    golden(&items::key(&space.ready, stamp), vector);
}

#[test]
fn golden_records_of_partitions() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let record = Divided { count: 4, most: 8, max_disorder: 1_000_000 };
    golden(&record.encode(), "01 04 08 40420f0000000000");
    // "part" is 70 61 72 74, and the integer 3 is 15 03. (q, "part") has 9 bytes, the number 2 and the code 1, so the stamp stands at 12,
    // which is 0c.
    let before = [space.parted.as_slice(), &before_stamp(3)].concat();
    let vector = "017100 01 70617274 00 1503 33 ffffffffffffffffffff 0001 0c000000";
    golden(&items::pending_record(&before, 1, &[]), vector);
    let stamp = suffix_stamp(&hex("33 00001a2b3c4d5e6f 0003 0001")).unwrap();
    let id = ItemId::in_partition(3, stamp);
    assert_eq!(id.to_string(), "00001a2b3c4d5e6f00030001-3");
    golden(&space.ready_key(&id), "017100 01 70617274 00 1503 33 00001a2b3c4d5e6f 0003 0001");
    golden(&space.meta_key(&id), "017100 01 6d657461 00 1503 33 00001a2b3c4d5e6f 0003 0001");
    let (begin, end) = space.in_partition(3).item_range();
    golden(&begin, "017100 01 70617274 00 1503 00");
    golden(&end, "017100 01 70617274 00 1503 ff");
    // Two items from push number 1 on, dealt out to 4 partitions from partition 3 on.
    let (digest, deal) = ("d1".repeat(16), Deal { count: 4, first: 3 });
    golden(
        &operations::pending(1, 2, &[0xd1; 16], deal, &[]),
        &format!("ffffffffffffffffffff 0001 02000000 {digest} 04 03 00000000"),
    );
}

#[test]
fn golden_keys_of_schedules() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let keys = space.schedules();
    // "schedule" is 73 63 68 65 64 75 6c 65, "-state" is 2d 73 74 61 74 65.
    golden(&keys.definition_key("s"), "017100 01 7363686564756c65 00 01 73 00");
    golden(&keys.state_key("s"), "017100 01 7363686564756c65 2d7374617465 00 01 73 00");
    // 1,000 is 16 03 e8; "-due" is 2d 64 75 65, "-log" is 2d 6c 6f 67.
    golden(&keys.due_key(1_000, "s"), "017100 01 7363686564756c65 2d647565 00 16 03e8 01 73 00");
    golden(&keys.log_key("s", 258), "017100 01 7363686564756c65 2d6c6f67 00 01 73 00 16 0102");
    // The zero bytes of the unique key are escaped.
    let unique = space.unique_key(&crate::model::schedule::definition::unique_key("s"));
    golden(&unique, "017100 01 756e69717565 00 01 ff 00ff 7363686564756c65 00ff 73 00");
}

#[test]
fn golden_values_of_schedules() {
    let calendar = Calendar::cron("@daily", "UTC").unwrap();
    let mut schedule = Schedule::new("s", calendar, NewItem::new("v").with_attribute("k", "w"));
    schedule.owner = Some("o".to_owned());
    schedule.missed.window = Some(Duration::from_secs(1));
    schedule.overlap = Overlap::Queue;
    schedule.jitter = Duration::from_millis(5);
    let fields = [
        "01 06000000 406461696c79 02 03000000 555443 04 01000000 6f 05 01000000 76",
        "06 06000000 01000000 6b77 0a 0d000000 01 e803000000000000 64000000 0b 01000000 02",
        "0c 08000000 0500000000000000",
    ];
    golden(&schedules::definition::encode(&schedule), &fields.join(" "));
    schedule.calendar = Calendar::every(Duration::from_secs(1)).unwrap();
    let period = "03 08000000 e803000000000000 04 01000000 6f 05 01000000 76";
    golden(&schedules::definition::encode(&schedule), &[period, fields[1], fields[2]].join(" "));

    let id = ItemId::from(suffix_stamp(&hex("33 00001a2b3c4d5e6f 0003 0001")).unwrap());
    let state = State {
        mark: 1_000,
        next: Some(2_000),
        row: Some(2_005),
        occurrences: 3,
        records: 4,
        waiting: Some(Waiting { nominal: 1_000, look_again: 2_005 }),
        last: Some(Last { nominal: 1_000, id }),
        ..State::default()
    };
    let fields = [
        "01 08000000 e803000000000000 02 08000000 d007000000000000 03 08000000 d507000000000000",
        "04 08000000 0300000000000000 05 08000000 0400000000000000",
        "07 10000000 e803000000000000 d507000000000000",
        "08 15000000 e803000000000000 33 00001a2b3c4d5e6f 0003 0001",
    ];
    golden(&schedules::state::encode(&state), &fields.join(" "));
}

#[test]
fn golden_records_of_a_schedules_log() {
    let pending = ItemId::from(Stamp::new([0xff; 10], 1));
    let mut record = OccurrenceRecord {
        number: 0,
        at: from_millis(1_005),
        from: from_millis(1_000),
        to: from_millis(1_000),
        count: 1,
        is_exact: true,
        outcome: Outcome::Fired { id: Some(pending), occurrence: 3 },
    };
    // The stamp stands 12 bytes before the end, at 73, which is 49.
    let mut operand = schedules::log::encode(&record);
    operand.extend_from_slice(&73_u32.to_le_bytes());
    let fields = [
        "01 01000000 01 02 08000000 ed03000000000000 03 10000000 e803000000000000 e803000000000000",
        "04 09000000 0100000000000000 01 05 08000000 0300000000000000",
        "06 0d000000 33 ffffffffffffffffffff 0001 49000000",
    ];
    golden(&operand, &fields.join(" "));
    (record.from, record.to) = (from_millis(0), from_millis(258));
    (record.count, record.is_exact) = (2, false);
    record.outcome = Outcome::Missed(MissReason::Policy);
    let fields = [
        "01 01000000 20 02 08000000 ed03000000000000 03 10000000 0000000000000000 0201000000000000",
        "04 09000000 0200000000000000 00",
    ];
    golden(&schedules::log::encode(&record), &fields.join(" "));
}

#[test]
fn golden_records_of_ended_items() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let indexed = [("k".to_owned(), 258)].into();
    let setting = Setting { retention: 86_400_000, cleared: 1_000, indexed, ..Setting::default() };
    golden(
        &setting.encode(),
        "01 08000000 005c260500000000 02 08000000 e803000000000000 03 09000000 0201000000000000 6b",
    );
    let (id, minute) = (item(), 258);
    let stamp = "33 00001a2b3c4d5e6f 0003 0001";
    let pending = "33 ffffffffffffffffffff 0000";
    golden(
        &ended::pending_group(&space.ended, minute, &id),
        &format!("017100 01656e64656400 160102 {pending} {stamp} 0e000000"),
    );
    // Minute 258 is the 18th of hour 4.
    golden(
        &ended::pending_run(&space.ended_ids, minute, &id),
        &format!("017100 01656e6465642d696400 1504 {stamp} {pending} 1d000000"),
    );
    golden(&ended::encode_run(minute, &id, &id, &id), "01 01000000 12");
    golden(
        &ended_by::pending(&space.ended_by, minute, ("k", "v"), &id),
        &format!("017100 01656e6465642d627900 1504 016b00 017600 160102 {pending} {stamp} 19000000"),
    );
    let mut group = ended::encode_group(1_005, 258, Some(1_000), Some("w"));
    ended::append_item(&mut group, &id, Ending::Done, 1, None, None);
    let done = format!("05 12000000 01 0d000000 {stamp}");
    let begin = "01 08000000 ed03000000000000 02 08000000 0201000000000000 03 08000000 e803000000000000 04 01000000 77";
    golden(&group, &format!("{begin} {done}"));
    let from = group.len() - (5 + 0x12);
    ended::append_result(&mut group, from, 90_001);
    let done = format!("05 1b000000 01 0d000000 {stamp} 07 04000000 915f0100");
    golden(&group[from..], &done);
    golden(
        &ended::result_key(&space.results, minute, &id),
        &format!("017100 01726573756c7400 160102 {stamp}"),
    );
    let attributes = [("k".to_owned(), "v".to_owned())].into();
    let meta = Meta { enqueued_at: Some(from_millis(1_000)), attributes, ..Meta::default() };
    let mut dead = Vec::new();
    ended::append_item(&mut dead, &id, Ending::Dead, 2, Some("no"), Some(&meta));
    golden(
        &dead,
        &format!(
            "05 40000000 01 0d000000 {stamp} 02 01000000 02 03 04000000 02000000 04 08000000 e803000000000000 \
             05 02000000 6e6f 06 06000000 01000000 6b 76"
        ),
    );
}

#[test]
fn golden_records_of_a_batch() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let unique = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
    let keys = space.batches();
    let uuid = "30 00112233445566778899aabbccddeeff";
    // "batch" is 62 61 74 63 68, "-count" 2d 63 6f 75 6e 74, "-due" 2d 64 75 65, "-item" 2d 69 74 65 6d.
    golden(&keys.record_key(unique), &format!("017100 01626174636800 {uuid}"));
    golden(&keys.item_key(unique), &format!("017100 0162617463682d6974656d00 {uuid}"));
    golden(&keys.count_key(unique, MEMBERS), &format!("017100 0162617463682d636f756e7400 {uuid} 14"));
    golden(&keys.count_key(unique, 1), &format!("017100 0162617463682d636f756e7400 {uuid} 1501"));
    golden(&keys.due_key(258, unique), &format!("017100 0162617463682d64756500 160102 {uuid}"));
    golden(&keys.mark_key(unique), &format!("017100 0162617463682d64756500 14 {uuid}"));
    golden(&PENDING_MARK, "ffffffffffffffffffff 00000000");
    let callback = NewItem::new("v").with_attribute("k", "w").with_key("t").with_priority(1);
    let callback = callback.with_content_type("c");
    let (committed, row) = (Some(1_005), Some(2_000));
    let record = BatchRecord { created: 1_000, committed, deadline: row, row, callback: None };
    let times = "01 08000000 e803000000000000 02 08000000 ed03000000000000 03 08000000 d007000000000000 \
                 04 08000000 d007000000000000";
    golden(&record.encode(), times);
    let item = "05 01000000 76 06 06000000 01000000 6b 77 07 01000000 63 08 01000000 74 \
                09 08000000 0100000000000000";
    golden(&encode_callback(&callback), item);
    let earlier = BatchRecord { callback: Some(callback), ..record };
    golden(&earlier.encode(), &format!("{times} {item}"));
    let id = BatchId::with_unique(b"q", unique);
    assert_eq!(id.to_string(), "q-00112233445566778899aabbccddeeff");
    let member = Meta { batches: vec![id], ..Meta::default() };
    golden(&meta::encode(&member), "0d 11000000 00112233445566778899aabbccddeeff 71");
    // Another queue behind the same prefix.
    let other = Space::new(b"", b"a\x00b", Kind::Keyed).unwrap();
    golden(&other.batches_of(b"q").record_key(unique), &format!("017100 01626174636800 {uuid}"));
    assert_eq!(other.batches_of(b"a\x00b").record_key(unique), other.batches().record_key(unique));
}

#[test]
fn golden_token_key_and_value() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let id = SessionId(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
    // "token" is 74 6f 6b 65 6e. A UUID has a fixed length, so its zero bytes are not escaped.
    golden(&tokens::key(&space.tokens, id), "017100 01 746f6b656e 00 30 00112233445566778899aabbccddeeff");
    // Attempt 258 is 0x0102, little endian; the stamp's place in the value is byte 8.
    golden(&tokens::pending(258), "0201000000000000 ffffffffffffffffffff 08000000");
    let value = "0201000000000000 00001a2b3c4d5e6f 0003";
    let token = tokens::decode(&hex(value)).unwrap();
    assert_eq!((token.attempt, token.version()), (258, 0x1a2b_3c4d_5e6f));
    golden(&hex(value), value);
}

#[test]
fn golden_times_record() {
    let value = "01 0201000000000000 e803000000000000 5f6f4d3c2b1a0000 e903000000000000";
    let times = times::decode(&hex(value)).unwrap();
    assert_eq!(times.version_at(1_000), Some(258));
    assert_eq!(times.version_at(1_001), Some(0x1a2b_3c4d_6f5f));
    golden(&times::encode(&times), value);
}

#[test]
fn a_name_with_zero_bytes_is_escaped() {
    // The name 00 61 00 becomes 00 FF 61 00 FF.
    let space = Space::new(b"", b"\0a\0", Kind::Fifo).unwrap();
    golden(&space.queue, "01 00ff 61 00ff 00");
    golden(space.counter(Counter::Push), "01 00ff 61 00ff 00 01 6e70757368 00");
    // 7 bytes of (q), 5 of "val" and the code: the stamp stands at 13, which is 0d.
    golden(
        &items::pending(&space.ready, 0),
        "01 00ff 61 00ff 00 0176616c00 33 ffffffffffffffffffff 0000 0d000000",
    );
}

#[test]
fn a_prefix_stands_raw_before_every_key() {
    // Its zero byte is not escaped: a prefix is no tuple element. The stamp moves on by its 3 bytes, to 12.
    let space = Space::new(b"\x15\x00p", b"q", Kind::Fifo).unwrap();
    golden(space.counter(Counter::Pop), "150070 017100 016e706f7000");
    golden(
        &items::pending(&space.ready, 0),
        "150070 017100 0176616c00 33 ffffffffffffffffffff 0000 0c000000",
    );
}

#[test]
fn names_and_prefixes_have_bounds() {
    assert_eq!(Space::new(b"", b"", Kind::Fifo), Err(NameError::Empty));
    assert!(Space::new(b"", &[0; MAX_NAME], Kind::Fifo).is_ok());
    assert_eq!(
        Space::new(b"", &[0; MAX_NAME + 1], Kind::Fifo),
        Err(NameError::TooLong { len: MAX_NAME + 1 })
    );
    assert!(Space::new(&[1; MAX_PREFIX], b"q", Kind::Fifo).is_ok());
    assert_eq!(
        Space::new(&[1; MAX_PREFIX + 1], b"q", Kind::Fifo),
        Err(NameError::PrefixTooLong { len: MAX_PREFIX + 1 })
    );
    assert_eq!(Space::new(b"\xff\x02", b"q", Kind::Fifo), Err(NameError::PrefixReserved));
}

/// The item of the vectors above.
fn item() -> ItemId {
    Stamp::from([0, 0, 0x1a, 0x2b, 0x3c, 0x4d, 0x5e, 0x6f, 0, 3, 0, 1]).into()
}

#[test]
fn golden_side_records_of_an_item() {
    let (space, id) = (Space::new(b"", b"q", Kind::Fifo).unwrap(), item());
    let stamp = "33 00001a2b3c4d5e6f 0003 0001";
    golden(&space.meta_key(&id), &format!("017100 016d65746100 {stamp}"));
    // (q, "meta") has 3 + 6 bytes and the code one more: the stamp stands at 10.
    let operand = items::pending_record(&space.meta, 1, &[]);
    golden(&operand, "017100 016d65746100 33 ffffffffffffffffffff 0001 0a000000");
    let chunk = [&space.chunks, id.as_bytes(), &chunks::suffix(1)].concat();
    golden(&chunk, &format!("017100 016368756e6b00 {stamp} 1501"));
    golden(&space.later.key(1_000, id.as_bytes()), &format!("017100 016c6174657200 1603e8 {stamp}"));
    golden(&later::encode_due(1_000), "e803000000000000");
    // The keys of these have the shape of the side record's.
    let others = [(space.body_key(&id), &space.bodies), (space.due_key(&id), &space.dues)];
    for (key, record) in others.into_iter().chain([(space.dead_key(&id), &space.dead)]) {
        assert_eq!(key, [record, id.as_bytes()].concat());
    }
}

#[test]
fn golden_side_record() {
    let attributes = [("k".to_owned(), "v".to_owned())].into();
    golden(
        &meta::encode(&Meta { attempts: 2, attributes, ..Meta::default() }),
        "01 04000000 02000000 04 06000000 01000000 6b 76",
    );
    golden(
        &meta::encode(&Meta { expires: Some(from_millis(1_000)), ..Meta::default() }),
        "0c 08000000 e803000000000000",
    );
    let until = Meta { unique_until: Some(from_millis(1_000)), ..Meta::default() };
    golden(&meta::encode(&until), "0e 08000000 e803000000000000");
    let failures = vec![Failure::new(from_millis(1_000), 2, "no")];
    golden(
        &meta::encode(&Meta { failures, ..Meta::default() }),
        "03 0e000000 e803000000000000 02000000 6e6f",
    );
}

#[test]
fn golden_lease_record() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    let session = SessionId(hex("00112233445566778899aabbccddeeff").try_into().unwrap());
    let lease = LeaseId { session, number: 258 };
    let id = "30 00112233445566778899aabbccddeeff 160102";
    golden(&leases::key(&space.leases, lease), &format!("017100 016c6561736500 {id}"));
    golden(&leases::piece_key(&space.held, lease, 1), &format!("017100 0168656c6400 {id} 1501"));
    // The other records of a lease are under the same elements.
    assert_eq!(cancelled::key(&space.cancelled, lease), [&space.cancelled[..], &hex(id)].concat());
    assert_eq!(progress::key(&space.progress, lease), [&space.progress[..], &hex(id)].concat());
    // A minute behind the deadline 3: 60,000,003 is 03 93 87 03.
    let record = CancelledItems { items: vec![(1, item())], ..CancelledItems::none(3) };
    golden(&record.encode(), "01 0387930300000000 01000000 0d000000 33 00001a2b3c4d5e6f 0003 0001");
    let held = Held { id: item(), meta: Bytes::new(), value: "v".into() };
    let (header, pieces) = Header::new(3, 2, &[held]);
    assert!(pieces.is_empty());
    golden(
        &header.encode(),
        "01 0300000000000000 0200000000000000 01000000 00000000 00 \
         0d000000 33 00001a2b3c4d5e6f 0003 0001 00000000 01000000 76",
    );
    let longer = Held { id: item(), meta: Bytes::new(), value: vec![b'v'; 600].into() };
    golden(
        &Header::new(3, 2, &[longer]).0.encode(),
        "01 0300000000000000 0200000000000000 01000000 01000000 00 \
         0d000000 33 00001a2b3c4d5e6f 0003 0001 0d000000 33 00001a2b3c4d5e6f 0003 0001 c6ea",
    );
    golden(
        &Header { progress: true, ..header.clone() }.encode(),
        "03 0300000000000000 0200000000000000 01000000 00000000 00 \
         0d000000 33 00001a2b3c4d5e6f 0003 0001 00000000 01000000 76",
    );
    let reports = [
        (1, Progress::new(from_millis(1_000), Some(50), "m")),
        (2, Progress::new(from_millis(1_000), None, "")),
    ];
    golden(
        &ProgressRecord(reports.into()).encode(),
        "01 0e000000 01000000 e803000000000000 32 6d 01 0d000000 02000000 e803000000000000 ff",
    );
    let mut joined = Header { served: true, ..header.clone() };
    joined.joined.insert(0, &BatchId::with_unique(b"h", [0xb7; 16]));
    golden(
        &joined.encode(),
        "04 0300000000000000 0200000000000000 01000000 00000000 00 01 \
         01000000 00000000 11000000 b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7 68 \
         0d000000 33 00001a2b3c4d5e6f 0003 0001 00000000 01000000 76",
    );
    golden(
        &Header { served: true, ..header }.encode(),
        "02 0300000000000000 0200000000000000 01000000 00000000 00 \
         0d000000 33 00001a2b3c4d5e6f 0003 0001 00000000 01000000 76",
    );
}

#[test]
fn golden_unique_key_and_operation() {
    let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
    golden(&space.unique_key(b"k"), "017100 01756e6971756500 016b00");
    assert_eq!(space.operation_key(b"k"), [&space.operations, &b"\x01k\x00"[..]].concat());
    golden(
        &operations::pending(1, 2, &[0xd1; 16], Deal::PLAIN, &[]),
        "ffffffffffffffffffff 0001 02000000 d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1 00000000",
    );
}

#[test]
fn golden_duty_record() {
    let sweeper = SessionId(hex("00112233445566778899aabbccddeeff").try_into().unwrap());
    let duty = Duty { sweeper, looked: 258, until: 0x1a2b_3c4d_5e6f, idle: None };
    let value = "01 00112233445566778899aabbccddeeff 0201000000000000 6f5e4d3c2b1a0000";
    golden(&duty.encode(), value);
    golden(&Duty { idle: Some(3), ..duty }.encode(), &format!("{value} 0300000000000000"));
}

#[test]
fn golden_clocks_record() {
    let sweeper = SessionId(hex("00112233445566778899aabbccddeeff").try_into().unwrap());
    let mut readings = Readings::default();
    assert_eq!(readings.encode(), [1]);
    readings.add(Reading { sweeper, since: 258, version: 0x1a2b_3c4d_5e6f, time: 1_000, asked: 3 }, 0);
    golden(
        &readings.encode(),
        "01 00112233445566778899aabbccddeeff 0201000000000000 6f5e4d3c2b1a0000 e803000000000000 0300000000000000",
    );
}

#[test]
fn golden_pause_record() {
    let pause = Pause { at: from_millis(1_000), frozen: false, reason: "no".to_owned() };
    golden(&pause.encode(), "01 00 e803000000000000 6e6f");
    golden(&Pause { frozen: true, ..pause }.encode(), "01 01 e803000000000000 6e6f");
}

#[test]
fn golden_migration_record() {
    let marks = Marks { counters: [1, 2, 3, 4, 5, 6], digest: [7; 16] };
    let record = Record {
        rows: 0x0102,
        bytes: 3,
        marks,
        through: b"k".to_vec(),
        pause: Some(b"p".to_vec()),
        ..Record::new([9; 16], Phase::Copying)
    };
    let numbers: String = (1..=6).map(|number| format!("{number:02x}00000000000000")).collect();
    let (run, digest) = ("09".repeat(16), "07".repeat(16));
    golden(
        &record.encode(),
        &format!("01 {run} 11 0201000000000000 0300000000000000 {numbers} {digest} 01000000 6b 70"),
    );
}

#[test]
fn golden_fetch_request_record() {
    let session = SessionId(hex("00112233445566778899aabbccddeeff").try_into().unwrap());
    let lease = LeaseId { session, number: 258 };
    let k = std::num::NonZeroUsize::new(10).unwrap();
    golden(
        &Want { lease, k, length: 2, deadline: 3, last: false }.encode(),
        "01 00112233445566778899aabbccddeeff 0201000000000000 0a000000 0200000000000000 0300000000000000 00",
    );
}

#[test]
fn golden_recipe_item_keys() {
    let random: [u8; crate::model::id_layout::RANDOM] = std::array::from_fn(|at| at as u8);
    // The zero byte is escaped.
    let bytes = "01 00ff 0102030405060708090a0b0c0d0e0f10111213 00";
    let space = Space::new(b"", b"q", Kind::Recipe(Packing::Raw)).unwrap();
    let (begin, end) = space.item_range();
    golden(&begin, "027100 00");
    golden(&end, "027100 ff");
    let first = queue_id(1, &random);
    golden(&space.ready_key(&first), &format!("027100 1501 {bytes}"));
    golden(&space.meta_key(&first), &format!("017100 016d65746100 1501 {bytes}"));
    let space = Space::new(b"", b"q", Kind::Priority(End::Max, Packing::Raw)).unwrap();
    let of = |priority, count| space.ready_key(&priority_id(priority, count, &random));
    // 300 is 0x012c; -2 is one byte, 0x02 the other way round.
    golden(&of(300, 0), &format!("027100 16012c 14 {bytes}"));
    golden(&of(-2, 1), &format!("027100 13fd 1501 {bytes}"));
    golden(&recipes::pack_value(Packing::Tuple, b"v"), "02 76 00");
    golden(&recipes::pack_value(Packing::Tuple, b"\xff"), "01 ff 00");
}
