//! An operator who says how long ended items are kept, and reads them.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use kvqueue_queue::{EndedItem, Ending, HistoryFilter, HistoryIndex, from_millis, retry};

use super::producer::failed;
use crate::claims::Claim;
use crate::desk::Desk;
use crate::image::ended::{Ended, Key, MAX_RESULT};
use crate::intent::Intent;
use crate::model::HistoryRule;

const MINUTE: u64 = 60_000;

/// Turns the history on and off, and reads it.
pub(super) async fn work(desk: Rc<Desk>) {
    for _ in 0..2 + desk.below(4) {
        let is_kept = desk.world.oracle.borrow().model(desk.at).history().is_some();
        if !is_kept || desk.chance(20) {
            keep(&desk, [MINUTE, 3 * MINUTE, 30 * MINUTE, 300 * MINUTE, 0][desk.below(5)]).await;
        }
        look(&desk, None).await;
        look(&desk, Some(["green", "blue"][desk.below(2)])).await;
        desk.pause().await;
    }
}

/// Sets how long ended items are kept, and by which attributes they are indexed.
pub(super) async fn keep(desk: &Desk, kept: u64) {
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let (now, turns) = (desk.now(), desk.world.turns());
    let names: &[&str] = [&["colour"][..], &["colour"], &["colour", "size"], &[]][desk.below(4)];
    let index = &HistoryIndex::new(names.iter().copied()).unwrap();
    let doing = retry::run(db, &policy, |tr| async move {
        let set = async {
            queue.keep_history(&tr, Duration::from_millis(kept)).await?;
            // By the clock of this attempt: a program that tries for long would declare the index for the past.
            queue.index_history(&tr, index, from_millis(desk.now())).await
        };
        let set = set.await;
        (tr, set)
    });
    let names = index.names().map(str::to_owned).collect();
    let rule = HistoryRule { kept, names, now, turns };
    let (operation, done) = desk.run(Intent::KeepHistory(rule), doing).await;
    match done {
        Some(Ok(_)) => desk.told(&operation, &Claim::Done),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Whether an ended item is shown as it is stored.
fn is_shown(shown: &EndedItem, (.., id): &Key, ended: &Ended) -> bool {
    shown.id == *id
        && shown.ending == Ending::ALL[usize::from(ended.code) - 1]
        && (shown.ended, shown.started, shown.attempts)
            == (from_millis(ended.at), ended.started.map(from_millis), ended.attempts)
        && (&shown.worker, &shown.reason) == (&ended.worker, &ended.reason)
        && shown.attributes == ended.attributes
        && shown.result == ended.result.map(|len| len as usize)
        && (ended.pushed.is_none() || shown.pushed == ended.pushed.map(from_millis))
}

/// Reads the history, which is as the last commit has left it, since nothing commits meanwhile: all of it, the newest first, or those of a colour; and one item by
/// its id, with its result.
async fn look(desk: &Desk, colour: Option<&str>) {
    let tr = desk.world.db.create_trx().unwrap();
    let attributes = colour.map(|colour| ("colour".to_owned(), colour.to_owned())).into_iter().collect();
    let filter = HistoryFilter { attributes, ..HistoryFilter::default() };
    let (stored, from) = {
        let oracle = desk.world.oracle.borrow();
        let model = oracle.model(desk.at);
        // The model has seen to it that an index has what it ought to have, unless clocks were set.
        let from = colour.and_then(|_| {
            model.history().and_then(|kept| Some(kept.cleared.max(*kept.indexed.get("colour")?)))
        });
        let is_wanted = |(key, ended): &(&Key, &Ended)| {
            let is_indexed = from.is_some_and(|from| key.0 >= from);
            colour.is_none_or(|colour| ended.attributes.get("colour").is_some_and(|of| of == colour))
                && (!is_indexed || ended.found_by.contains("colour"))
        };
        let ended = model.ended_items().iter().rev().filter(is_wanted);
        let stored: Vec<(Key, Ended)> = ended.map(|(key, ended)| (key.clone(), ended.clone())).collect();
        (stored, from)
    };
    let k = NonZeroUsize::new(1 + desk.below(20)).unwrap();
    let (mut shown, mut before) = (Vec::new(), None);
    loop {
        // A fault of the database may be in the way.
        let page = desk.queue.history(&tr, &filter, before.as_ref(), k).await;
        let Ok(page) = page else { return };
        assert_eq!(page.unreadable, 0);
        shown.extend(page.items);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let is_right = shown.len() == stored.len()
        && shown.iter().zip(&stored).all(|(shown, (key, ended))| is_shown(shown, key, ended));
    assert!(is_right, "the history is shown as {shown:?}, and is {stored:?}");
    desk.world.count_if(!shown.is_empty(), "a history is read");
    let is_by_index = from.is_some_and(|from| stored.iter().any(|(key, _)| key.0 >= from));
    desk.world.count_if(is_by_index, "ended items are read by an attribute");
    if stored.is_empty() || colour.is_some() {
        return;
    }
    let id = &stored[desk.below(stored.len())].0.3;
    let Ok(found) = desk.queue.ended_item(&tr, id).await else { return };
    let last = stored.iter().find(|((.., other), _)| other == id);
    let is_right = found.as_ref().zip(last).is_some_and(|(found, (key, ended))| is_shown(found, key, ended));
    assert!(is_right, "{id} is found as {found:?}, and {last:?} is stored");
    let Some(found) = found.filter(|found| found.result.is_some()) else { return };
    let Ok(result) = desk.queue.result(&tr, &found).await else { return };
    let kept = found.result.filter(|len| *len <= MAX_RESULT as usize);
    assert_eq!(result.map(|result| result.len()), kept, "the result of {id}");
    desk.world.count("a result is read");
}
