//! Mapped range reads.

use crate::common::{Rng, code, commit, scratch, twins};
use foundationdb::options::{MutationType, StreamingMode, TransactionOption};
use foundationdb::tuple::{Bytes, Element, pack};
use foundationdb::{Database, FdbError, KeySelector, RangeOption, Transaction};

/// An index row with what was found for it, in a form that can be compared.
type Mapped = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);

async fn read(
    tr: &Transaction,
    range: &RangeOption<'_>,
    mapper: &[u8],
) -> Result<(Vec<Mapped>, bool), FdbError> {
    let found = tr.get_mapped_range(range, mapper, 1, false).await?;
    let row = |row: &foundationdb::mapped_key_values::FdbMappedKeyValue| {
        let found = row.key_values().iter().map(|kv| (kv.key().to_vec(), kv.value().to_vec()));
        (
            row.parent_key().to_vec(),
            row.parent_value().to_vec(),
            row.begin_range().to_vec(),
            row.end_range().to_vec(),
            found.collect(),
        )
    };
    Ok((found.iter().map(row).collect(), found.more()))
}

/// Twenty records of two rows each, and an index of them by colour.
async fn fill(db: &Database) {
    let tr = db.create_trx().unwrap();
    tr.clear_range(b"", b"\xff");
    for n in 0..20 {
        let colour = if n % 2 == 0 { "blue" } else { "red" };
        tr.set(&pack(&("index", colour, n)), &pack(&(n + 100,)));
        tr.set(&pack(&("data", n, "name")), b"n");
        tr.set(&pack(&("data", n, "size")), b"");
    }
    commit(tr).await.unwrap();
}

fn blue() -> RangeOption<'static> {
    RangeOption::from((pack(&("index", "blue")), pack(&("index", "blue\u{1}"))))
}

fn mapper() -> Vec<u8> {
    pack(&("data", "{K[2]}", "{...}"))
}

#[tokio::test]
async fn each_index_row_has_the_rows_of_its_mapped_range() {
    let scratch = scratch();
    fill(&scratch.db).await;
    let tr = scratch.db.create_trx().unwrap();
    let (rows, more) = read(&tr, &blue(), &mapper()).await.unwrap();
    assert_eq!((rows.len(), more), (10, false));
    for (n, (key, value, begin, end, found)) in (0..).step_by(2).zip(rows) {
        assert_eq!((key, value), (pack(&("index", "blue", n)), pack(&(n + 100,))));
        let prefix = pack(&("data", n));
        let after = [&prefix[..prefix.len() - 1], &[prefix[prefix.len() - 1] + 1]].concat();
        assert_eq!((begin, end), (prefix, after));
        let row = |field, value: &[u8]| (pack(&("data", n, field)), value.to_vec());
        assert_eq!(found, [row("name", b"n"), row("size", b"")]);
    }
    let (rows, more) = read(&tr, &RangeOption { limit: Some(3), ..blue() }, &mapper()).await.unwrap();
    assert_eq!((rows.len(), more), (3, true));
    let back = read(&tr, &RangeOption { limit: Some(2), ..blue().rev() }, &mapper()).await.unwrap().0;
    assert_eq!(
        back.iter().map(|row| row.0.clone()).collect::<Vec<_>>(),
        [18, 16].map(|n| pack(&("index", "blue", n)))
    );
}

#[tokio::test]
async fn a_mapper_without_a_range_brings_one_key() {
    let scratch = scratch();
    if scratch.place.is_cluster() {
        return; // FoundationDB's C API has no way to hand these out: the struct holds something else then.
    }
    fill(&scratch.db).await;
    let tr = scratch.db.create_trx().unwrap();
    let (rows, _) = read(&tr, &blue(), &pack(&("data", "{K[2]}", "name"))).await.unwrap();
    let key = pack(&("data", 4, "name"));
    assert_eq!((&rows[2].2, &rows[2].4), (&key, &vec![(key.clone(), b"n".to_vec())]));
    let (rows, _) = read(&tr, &blue(), &pack(&("data", "{V[0]}"))).await.unwrap();
    assert!(rows.len() == 10 && rows.iter().all(|row| row.4.is_empty()));
}

#[tokio::test]
async fn an_index_row_that_cannot_be_mapped_is_refused() {
    let scratch = scratch();
    fill(&scratch.db).await;
    let tr = scratch.db.create_trx().unwrap();
    tr.set(b"index-of-nothing", b"\xee");
    tr.set(b"\xee", b"");
    commit(tr).await.unwrap();
    let refused = async |range: &RangeOption<'_>, mapper: &[u8]| {
        code(read(&scratch.db.create_trx().unwrap(), range, mapper).await)
    };
    assert_eq!(refused(&blue(), b"\xee").await, Err(2043));
    assert_eq!(refused(&blue(), &pack(&("{...}", "a"))).await, Err(2032));
    assert_eq!(refused(&blue(), &pack(&("{K[3]}", "{...}"))).await, Err(2030));
    assert_eq!(refused(&blue(), &pack(&("{V[x]}", "{...}"))).await, Err(2030));
    let odd = |key: &'static [u8]| RangeOption::from((key, &b"\xef"[..]));
    assert_eq!(refused(&odd(b"\xee"), &pack(&("{K[0]}", "{...}"))).await, Err(2041));
    assert_eq!(refused(&odd(b"index-of"), &pack(&("{V[0]}", "{...}"))).await, Err(2042));
    assert_eq!(refused(&odd(b"\xee\x01"), &pack(&("{K[0]}", "{...}"))).await, Ok(()), "no row, no key");
    assert_eq!(refused(&odd(b"\xee\x01"), b"\xee").await, Err(2043), "but a mapper");
    let exact = RangeOption { mode: StreamingMode::Exact, ..blue() };
    assert_eq!(refused(&exact, &mapper()).await, Err(2210));
    let tr = scratch.db.create_trx().unwrap();
    tr.set(b"\xff", b"");
    assert_eq!(
        code(read(&tr, &exact, &mapper()).await),
        Err(2210),
        "before what an earlier call could not say"
    );
    assert_eq!(code(read(&tr, &blue(), &mapper()).await), Err(2004));

    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(code(tr.get_mapped_range(&blue(), &mapper(), 1, true).await), Err(2108));
    let special = RangeOption::from((&b"\xff\xff/status/json"[..], &b"\xff\xff/status/json0"[..]));
    assert_eq!(code(read(&tr, &special, &mapper()).await), Err(2000));
    let system = RangeOption::from((&b"a"[..], &b"\xff\x01"[..]));
    assert_eq!(code(read(&tr, &system, &mapper()).await), Err(2004));
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    assert_eq!(code(read(&tr, &blue(), &mapper()).await), Err(2108));
}

#[tokio::test]
async fn own_writes_in_a_mapped_range_are_an_error() {
    let scratch = scratch();
    fill(&scratch.db).await;
    let write = |write: fn(&Transaction)| {
        let tr = scratch.db.create_trx().unwrap();
        write(&tr);
        async move { code(read(&tr, &blue(), &mapper()).await) }
    };
    assert_eq!(write(|tr| tr.set(&pack(&("index", "blue", 1)), b"")).await, Err(2039));
    assert_eq!(write(|tr| tr.clear(&pack(&("data", 4, "none")))).await, Err(2039));
    assert_eq!(write(|tr| tr.clear_range(&pack(&("data", 3)), &pack(&("data", 5)))).await, Err(2039));
    for (record, expected) in [(4, Err(2039)), (5, Ok(()))] {
        let prefix = pack(&("data", record));
        let place = u32::try_from(prefix.len()).unwrap().to_le_bytes();
        let tr = scratch.db.create_trx().unwrap();
        // With the lowest stamp it would be one of the record's rows.
        tr.atomic_op(&[&prefix[..], &[0xff; 10], &place].concat(), b"", MutationType::SetVersionstampedKey);
        assert_eq!(code(read(&tr, &blue(), &mapper()).await), expected, "record {record}");
    }
    assert_eq!(write(|tr| tr.set(&pack(&("data", 5, "name")), b"")).await, Ok(()));
    assert_eq!(write(|tr| tr.set(&pack(&("index", "red", 5)), b"")).await, Ok(()));
}

#[tokio::test]
async fn index_reads_and_mapped_reads_both_conflict() {
    let scratch = scratch();
    for (key, limit, expected) in [
        (pack(&("index", "blue", 2)), None, Err(1020)),
        (pack(&("index", "blue", 1)), None, Err(1020)),
        (pack(&("data", 4, "more")), None, Err(1020)),
        (pack(&("data", 5, "name")), None, Ok(())),
        (pack(&("data", 4, "name")), Some(2), Ok(())),
        (pack(&("index", "blue", 4)), Some(2), Ok(())),
        (pack(&("index", "blue", 2)), Some(2), Err(1020)),
    ] {
        fill(&scratch.db).await;
        let tr = scratch.db.create_trx().unwrap();
        read(&tr, &RangeOption { limit, ..blue() }, &mapper()).await.unwrap();
        tr.set(b"mine", b"");
        let other = scratch.db.create_trx().unwrap();
        other.set(&key, b"x");
        commit(other).await.unwrap();
        assert_eq!(commit(tr).await, expected, "{key:?} with limit {limit:?}");
    }
}

fn element(rng: &mut Rng) -> Element<'static> {
    match rng.below(7) {
        0 => Element::Nil,
        1 => Element::Bytes(Bytes::from(vec![0; rng.below(3)])),
        2 => Element::String(["", "a", "b{", "\0"][rng.below(4)].into()),
        3 => Element::Int([0, 1, -1, 300, -70_000][rng.below(5)]),
        4 => Element::Double(-1.5),
        5 => Element::Bool(true),
        _ => Element::Int(rng.below(3) as i64),
    }
}

fn random_mapper(rng: &mut Rng) -> Vec<u8> {
    let mut tuple = vec![Element::String("d".into())];
    for _ in 0..rng.below(3) {
        let text = [
            "{K[0]}", "{K[1]}", "{K[2]}", "{V[0]}", "{V[1]}", "{V[2]}", "{K[ 1]}", "{K[]}", "{{K[0]}}",
            "{x}", "}}", "{K[-1]}", "{K[z]}", "{V[1z]}",
        ][rng.below(14)];
        let as_text = Element::String(text.into());
        tuple.push(match rng.below(4) {
            0 => element(rng),
            1 => Element::Bytes(text.as_bytes().into()),
            _ => as_text,
        });
    }
    tuple.push(Element::String("{...}".into()));
    pack(&tuple)
}

#[tokio::test]
async fn random_mappers_agree_with_a_cluster() {
    let Some(twins) = twins() else { return };
    let seed = Rng::seed();
    let mut rng = Rng(seed);
    let mut found_rows = 0;
    for round in 0..300 {
        if round % 20 == 0 {
            let rows: Vec<_> = (0..rng.below(60))
                .map(|_| {
                    let tuple = |rng: &mut Rng, len| (0..len).map(|_| element(rng)).collect::<Vec<_>>();
                    let head = if rng.below(2) == 0 { "i" } else { "d" };
                    let mut key = vec![Element::String(head.into())];
                    let key_len = rng.below(4);
                    key.extend(tuple(&mut rng, key_len));
                    let value_len = rng.below(4);
                    let value = pack(&tuple(&mut rng, value_len));
                    (pack(&key), if rng.below(9) == 0 { b"\x80".to_vec() } else { value })
                })
                .collect();
            for db in twins.dbs() {
                let tr = db.create_trx().unwrap();
                tr.clear_range(b"", b"\xff");
                rows.iter().for_each(|(key, value)| tr.set(key, value));
                // A bound that leaves the normal keys reads system keys of the cluster, option or not.
                [&b"\x01"[..], b"~\x01", b"~\x02"].iter().for_each(|key| tr.set(key, b""));
                commit(tr).await.unwrap();
            }
        }
        let mapper = random_mapper(&mut rng);
        // Bounds that cross end the storage server of FoundationDB 7.3.79.
        let mut bound = |key: &str, offsets: [i32; 3]| {
            KeySelector::new(pack(&(key,)).into(), rng.below(2) == 0, offsets[rng.below(3)])
        };
        let (begin, end) = (bound("i", [-1, 0, 1]), bound("j", [1, 1, 2]));
        let range = RangeOption {
            begin,
            end,
            limit: [None, Some(1), Some(3), Some(12)][rng.below(4)],
            target_bytes: [0, 0, 100, 700, 3000][rng.below(5)],
            mode: [StreamingMode::WantAll, StreamingMode::Small, StreamingMode::Iterator][rng.below(3)],
            reverse: rng.below(4) == 0,
            ..RangeOption::default()
        };
        let mut outcomes = Vec::new();
        for db in twins.dbs() {
            let tr = db.create_trx().unwrap();
            outcomes.push(read(&tr, &range, &mapper).await.map_err(|error| error.code()));
        }
        found_rows += outcomes[0].as_ref().map_or(0, |(rows, _)| rows.iter().map(|row| row.4.len()).sum());
        assert_eq!(outcomes[0], outcomes[1], "KVQUEUE_TEST_SEED={seed} round {round}: {range:?} {mapper:?}");
    }
    assert!(found_rows > 100, "KVQUEUE_TEST_SEED={seed}: the mappers found nothing to compare");
}
