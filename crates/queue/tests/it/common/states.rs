//! Items in each state, the records that items have, and what the documents say that a change does in each state.

use kvqueue_queue::{Failure, ItemId, ItemOutcome, ItemState, ItemView, NewItem, Queue, from_millis};

use super::{TestDb, k, later, records};

/// A lease of this length, in microseconds, outlasts every test, however busy the machine is.
pub(crate) const HOUR: u64 = 3_600_000_000;

/// The records that an item may have, in all kinds of queues.
const RECORDS: [&str; 13] = [
    "val", "kval", "part", "meta", "chunk", "body", "due", "later", "dead", "unique", "expiry", "lease",
    "held",
];

/// When an item is due that is scheduled, of those in each state.
pub(crate) const DUE: u64 = 2_000;

/// The item that is in this state, of those in each state: with a payload in three parts, and the state as its unique key.
pub(crate) fn item_for(state: ItemState) -> NewItem {
    let payload = format!("{state} {}", "x".repeat(250_000));
    NewItem::new(payload).with_unique(state.to_string().into_bytes())
}

/// An item in each state.
pub(crate) async fn fill_each_state(t: &TestDb, q: &Queue) {
    // The ready one comes last: a lease is to get another.
    for state in ItemState::ALL.into_iter().rev() {
        put(t, q, state, item_for(state), DUE).await;
    }
}

/// Pushes an item and brings it into a state, of a queue without ready items. `due` is for one that is to wait.
pub(crate) async fn put(t: &TestDb, q: &Queue, state: ItemState, item: NewItem, due: u64) {
    let is_scheduled = state == ItemState::Scheduled;
    t.push_items(q, &[if is_scheduled { item.with_due(from_millis(due)) } else { item }]).await;
    let outcome = match state {
        ItemState::Ready | ItemState::Scheduled => return,
        ItemState::Running => None,
        ItemState::Retrying => Some(later(due)),
        ItemState::Dead => Some(ItemOutcome::Dead(Failure::new(from_millis(9), 1, "no such address"))),
    };
    let mut lease = t.lease_for(q, 1, HOUR).await.unwrap();
    if let Some(outcome) = outcome {
        t.acknowledge(&mut lease, &outcome).await;
    }
}

/// The last item of this state.
pub(crate) async fn of_state(t: &TestDb, q: &Queue, state: ItemState) -> ItemView {
    t.run(async |tr| q.view(tr, state, None, k(9)).await).await.items.pop().unwrap()
}

/// The id of the last item of this state.
pub(crate) async fn id_of(t: &TestDb, q: &Queue, state: ItemState) -> ItemId {
    of_state(t, q, state).await.id
}

/// Which records of items are there.
pub(crate) async fn records_left(t: &TestDb, q: &Queue) -> Vec<&'static str> {
    let rows = t.rows().await;
    RECORDS.into_iter().filter(|kind| !records(&rows, q, kind).is_empty()).collect()
}

/// What a change does to an item of this state: the table in `docs/ITEMS.md`.
pub(crate) fn effect_of(change: &str, state: ItemState) -> &'static str {
    const ITEMS: &str = include_str!("../../../../../docs/ITEMS.md");
    let mut rows = ITEMS.lines().skip_while(|line| !line.starts_with("| | ready |"));
    let titles = rows.next().expect("docs/ITEMS.md has a table of changes by state");
    // As in "scheduled, retrying" and "dead letter".
    let is_of = |title: &str| title.split(", ").any(|name| name.split(' ').next() == Some(state.as_str()));
    let column = titles.split('|').position(|title| is_of(title.trim()));
    let column = column.unwrap_or_else(|| panic!("docs/ITEMS.md has no column for {state} items"));
    let mut cells = rows.take_while(|line| line.starts_with('|')).map(|line| line.split('|'));
    let is_row = |title: &str| title.trim().trim_matches('`').split(' ').next_back() == Some(change);
    let row = cells.find(|cells| cells.clone().nth(1).is_some_and(is_row));
    row.and_then(|mut row| row.nth(column)).expect("docs/ITEMS.md has the change").trim()
}

/// Whether a change is refused of an item of this state.
pub(crate) fn is_refused(change: &str, state: ItemState) -> bool {
    effect_of(change, state).starts_with("refused")
}
