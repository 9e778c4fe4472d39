//! Round trips, and what is no message.

use super::*;
use crate::engine::Durability;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::link::commit::CommitBase;
use crate::range_set::{KeyRange, RangeSet};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn ranges() -> impl Strategy<Value = Vec<KeyRange>> {
    vec((bytes(), bytes()), 0..6)
        .prop_map(|ranges| ranges.into_iter().collect::<RangeSet>().into_iter().collect())
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let op = prop::sample::select(vec![2, 6, 7, 8, 9, 12, 13, 16, 17, 20]);
    let op = op.prop_map(|code| AtomicOp::from_code(code).unwrap());
    let stamped = || (vec(any::<u8>(), 10..40), bytes(), any::<prop::sample::Index>());
    let offset = |stamped: &[u8], at: prop::sample::Index| at.index(stamped.len() - 9);
    prop_oneof![
        (bytes(), bytes()).prop_map(|(key, value)| Mutation::Set { key, value }),
        (bytes(), bytes()).prop_map(|(begin, end)| Mutation::ClearRange { begin, end }),
        (op, bytes(), bytes()).prop_map(|(op, key, operand)| Mutation::Atomic { op, key, operand }),
        stamped().prop_map(move |(key, value, at)| Mutation::StampedKey {
            offset: offset(&key, at),
            key,
            value
        }),
        stamped().prop_map(move |(value, key, at)| Mutation::StampedValue {
            offset: offset(&value, at),
            key,
            value
        }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let base = prop_oneof![
        Just(CommitBase::Newest),
        any::<i64>().prop_map(CommitBase::Version),
        any::<u64>().prop_map(CommitBase::View)
    ];
    let durability = prop_oneof![Just(Durability::Flushed), Just(Durability::Asynchronous)];
    let commit = (base, ranges(), any::<bool>(), ranges(), vec(mutation(), 0..6), durability);
    let commit = commit.prop_map(|(base, reads, report_conflicts, writes, mutations, durability)| {
        CommitMessage { base, reads, report_conflicts, writes, mutations, durability }
    });
    let at = prop_oneof![
        Just(ViewVersion::Newest),
        any::<i64>().prop_map(ViewVersion::Version),
        Just(ViewVersion::Pinned)
    ];
    let range = (any::<[u64; 2]>(), bytes(), bytes(), any::<bool>(), any::<[u32; 2]>());
    prop_oneof![
        any::<u32>().prop_map(|protocol| Request::Hello { protocol }),
        (any::<u64>(), at).prop_map(|(view, at)| Request::OpenView { view, at }),
        any::<u64>().prop_map(|view| Request::CloseView { view }),
        (any::<[u64; 2]>(), bytes()).prop_map(|([request, view], key)| Request::Get { request, view, key }),
        range.prop_map(|([request, view], begin, end, backward, [rows, bytes])| Request::Range {
            request,
            view,
            begin,
            end,
            backward,
            rows,
            bytes
        }),
        (any::<u64>(), commit).prop_map(|(request, commit)| Request::Commit { request, commit }),
        (any::<u64>(), bytes(), prop::option::of(bytes())).prop_map(|(watch, key, baseline)| {
            Request::Arm { watch, key, baseline: baseline.map(Bytes::from) }
        }),
        any::<u64>().prop_map(|watch| Request::Disarm { watch }),
    ]
}

fn code() -> impl Strategy<Value = Code> {
    (1..5_000i32).prop_map(|raw| Code::from_raw(raw).unwrap())
}

fn or_code<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Result<T, Code>> {
    prop_oneof![value.prop_map(Ok), code().prop_map(Err)]
}

fn response() -> impl Strategy<Value = Response> {
    let rows = (vec((bytes(), bytes()), 0..6), any::<bool>()).prop_map(|(pairs, more)| {
        let mut rows = RowSet::default();
        pairs.iter().for_each(|(key, value)| rows.push(key, value));
        rows.more = more;
        rows
    });
    let committed =
        (any::<i64>(), any::<u16>()).prop_map(|(version, order)| Ok(Committed { version, order }));
    let failed = (code(), ranges()).prop_map(|(code, conflicting)| Err(CommitFailure { code, conflicting }));
    let value = prop::option::of(bytes()).prop_map(|value| value.map(Bytes::from));
    prop_oneof![
        any::<[u32; 2]>().prop_map(|[protocol, pid]| Response::Welcome { protocol, pid }),
        (any::<u64>(), or_code(any::<i64>())).prop_map(|(view, version)| Response::View { view, version }),
        (any::<u64>(), or_code(value)).prop_map(|(request, value)| Response::Value { request, value }),
        (any::<u64>(), or_code(rows)).prop_map(|(request, rows)| Response::Rows { request, rows }),
        (any::<u64>(), prop_oneof![committed, failed])
            .prop_map(|(request, result)| Response::Committed { request, result }),
        (any::<u64>(), prop::option::of(code())).prop_map(|(watch, error)| Response::Fired { watch, error }),
    ]
}

proptest! {
    #[test]
    fn link_requests_round_trip(request in request()) {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        prop_assert_eq!(Request::decode(&frame), Ok(request));
    }

    #[test]
    fn link_responses_round_trip(response in response()) {
        let mut frame = Vec::new();
        response.encode(&mut frame);
        prop_assert_eq!(Response::decode(&frame), Ok(response));
    }

    /// Decoded messages encode to the same bytes: no byte is skipped, and no message has two encodings.
    #[test]
    fn a_damaged_message_is_refused_or_decodes_differently(
        request in request(), response in response(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        *at.get_mut(&mut frame) = byte;
        if let Ok(other) = Request::decode(&frame) {
            let mut again = Vec::new();
            other.encode(&mut again);
            prop_assert_eq!(again, frame);
        }
        let mut frame = Vec::new();
        response.encode(&mut frame);
        *at.get_mut(&mut frame) = byte;
        if let Ok(other) = Response::decode(&frame) {
            let mut again = Vec::new();
            other.encode(&mut again);
            prop_assert_eq!(again, frame);
        }
    }

    #[test]
    fn decoding_messages_of_any_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..200), kind in 0u8..10) {
        let _ = Request::decode(&bytes);
        let _ = Request::decode(&[&[kind], &bytes[..]].concat());
        let _ = Response::decode(&[&[kind + 128], &bytes[..]].concat());
    }
}
