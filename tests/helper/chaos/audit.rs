//! The content of the database at the end: dead letters, effects and keys.

use std::{collections::BTreeMap, num::NonZeroUsize};

use foundationdb::{Database as Client, RangeOption, options::StreamingMode, tuple};
use futures::TryStreamExt;
use kvqueue_queue::{End, Kind, Packing, Queue as Layer};
use serde_json::{Value, json};

use super::{daemon::EFFECTS, payload::TAKEN};
use crate::support::{argument, database};

/// Prints an array with an object for each queue. Clears the effects, which no queue owns.
pub(crate) fn audit() {
    let (url, prefix) = database();
    let queues: Vec<(String, String)> = serde_json::from_str(&argument(0).unwrap()).unwrap();
    let store = kvqueue::database::Store::open(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut found = Vec::new();
        for (place, (name, kind)) in queues.iter().enumerate() {
            let kind = match kind.as_str() {
                "fifo" => Kind::Fifo,
                "recipe" => Kind::Recipe(Packing::Raw),
                "keyed" => Kind::Keyed,
                _ => Kind::Priority(End::Min, Packing::Raw),
            };
            let queue = Layer::of_kind(prefix.as_bytes(), name.as_bytes(), kind).unwrap();
            found.push(json!({
                "letters": letters(&store.db, &queue).await,
                "effects": effects(&store.db, prefix.as_bytes(), place).await,
                "keys": keys(&store.db, prefix.as_bytes(), name).await,
            }));
        }
        println!("\n{}", Value::from(found));
        let tr = store.db.create_trx().unwrap();
        let (begin, end) = subspace(prefix.as_bytes(), &tuple::pack(&EFFECTS));
        tr.clear_range(&begin, &end);
        tr.commit().await.unwrap();
    });
}

/// The ids and the payloads of the dead letters, and the times of the letters that a schedule has pushed.
async fn letters(db: &Client, queue: &Layer) -> Vec<Value> {
    let tr = db.create_trx().unwrap();
    let all = queue.dead_list(&tr, None, NonZeroUsize::MAX).await.unwrap();
    let mut payloads = Vec::new();
    for letter in all {
        let tr = db.create_trx().unwrap();
        let letter = queue.dead_get(&tr, &letter.id).await.unwrap().unwrap();
        let payload = String::from_utf8_lossy(&letter.payload.unwrap()).into_owned();
        let (id, time) = (letter.id.to_string(), letter.meta.attributes.get("schedule-time"));
        payloads.push(json!({ "id": id, "payload": payload, "time": time }));
    }
    payloads
}

/// Producer, place and count of each effect of a queue's items.
async fn effects(db: &Client, prefix: &[u8], place: usize) -> Vec<(u64, u64, u64)> {
    let rows = rows(db, subspace(prefix, &tuple::pack(&(EFFECTS, place)))).await;
    rows.iter()
        .map(|(key, value)| {
            let (_, _, producer, place): (i64, usize, u64, u64) =
                tuple::unpack(&key[prefix.len()..]).unwrap();
            (producer, place, u64::from_le_bytes(value.as_slice().try_into().unwrap()))
        })
        .collect()
}

/// How many keys of each kind a queue has: the second elements of their tuples, and "val" for the items of all.
async fn keys(db: &Client, prefix: &[u8], name: &str) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for (key, _) in rows(db, subspace(prefix, &tuple::pack(&name.as_bytes()))).await {
        let rest = &key[prefix.len() + name.len() + 2..];
        let kind = match rest.split_first() {
            // Its time may not be over.
            Some((1, kind)) if kind.starts_with(b"unique\0") && contains(kind, TAKEN.as_bytes()) => b"taken",
            Some((1, kind)) => kind.split(|byte| *byte == 0).next().unwrap_or_default(),
            _ => b"unknown",
        };
        *kinds.entry(String::from_utf8_lossy(kind).into_owned()).or_default() += 1;
    }
    let items = rows(db, subspace(prefix, &tuple::pack(&name))).await.len() as u64;
    *kinds.entry("val".to_owned()).or_default() += items;
    kinds
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn subspace(prefix: &[u8], tuple: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let bound = |last| [prefix, tuple, &[last]].concat();
    (bound(0x00), bound(0xff))
}

/// Everything in a range, page by page, each in a transaction of its own: nothing else is at work any more.
async fn rows(db: &Client, (mut begin, end): (Vec<u8>, Vec<u8>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let tr = db.create_trx().unwrap();
        let option =
            RangeOption { mode: StreamingMode::WantAll, limit: Some(5_000), ..(begin, end.clone()).into() };
        let page: Vec<_> = tr.get_ranges_keyvalues(option, true).try_collect().await.unwrap();
        all.extend(page.iter().map(|row| (row.key().to_vec(), row.value().to_vec())));
        match page.last() {
            Some(last) => begin = [last.key(), &[0x00]].concat(),
            None => return all,
        }
    }
}
