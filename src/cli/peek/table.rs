//! Items of one state as a table.

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{Item, ItemState, ItemView, LeaseView, Meta};

use crate::{
    cli::output,
    consumer::identity,
    json::{enqueued_at, last_failure},
};

/// The most characters of a payload, and of a reason.
const MOST: usize = 60;

/// An item's row: a text for each column.
pub(super) struct Row(Vec<String>);

/// The table of these items.
pub(super) fn of(state: ItemState, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heads(state));
    for Row(cells) in rows {
        table.add_row(cells);
    }
    table.to_string()
}

fn heads(state: ItemState) -> &'static [&'static str] {
    match state {
        ItemState::Ready => &["id", "pushed", "attempt", "payload"],
        ItemState::Scheduled => &["id", "due", "pushed", "payload"],
        ItemState::Retrying => &["id", "due", "attempts", "last reason", "payload"],
        ItemState::Running => &["id", "attempt", "worker", "lease", "payload"],
        ItemState::Dead => &["id", "died", "attempts", "reason", "payload"],
    }
}

impl Row {
    /// `limit`: how many attempts an item of the queue has, if that is known.
    pub(super) fn of(view: &ItemView, limit: Option<u32>) -> Self {
        let item = view.item.as_ref().ok();
        let meta = item.and_then(|item| item.meta.as_deref());
        let text = |text: Option<String>| text.unwrap_or_default();
        let due = || text(view.due.map(output::time));
        let pushed = || text(enqueued_at(view).map(output::time));
        let attempt = || text(item.map(|item| of_limit(item.attempt, limit)));
        let spent = || of_limit(view.attempts(), limit);
        let reason = || text(meta.and_then(last_failure).map(|last| output::one_line(&last.reason, MOST)));
        let died = |meta: &Meta| meta.death.as_ref().map(|death| output::time(death.at));
        let died = || text(meta.and_then(died));
        let payload = match &view.item {
            Ok(item) => beginning(item),
            Err(why) => format!("cannot be read: {why}"),
        };
        let cells = match view.state {
            ItemState::Ready => vec![pushed(), attempt()],
            ItemState::Scheduled => vec![due(), pushed()],
            ItemState::Retrying => vec![due(), spent(), reason()],
            ItemState::Running => {
                vec![
                    attempt(),
                    text(view.lease.map(|lease| worker(&lease))),
                    text(view.lease.map(|it| lease(&it))),
                ]
            }
            ItemState::Dead => vec![died(), spent(), reason()],
        };
        Self([vec![view.id.to_string()], cells, vec![payload]].concat())
    }
}

fn of_limit(attempts: u32, limit: Option<u32>) -> String {
    limit.map_or_else(|| attempts.to_string(), |limit| format!("{attempts} of {limit}"))
}

/// Who has a lease: the process, if the session's id tells, and the end of that id; JSON has all of it.
fn worker(lease: &LeaseView) -> String {
    let session = lease.id.session;
    match identity::maker(session) {
        Some(maker) => format!("process {} (…{})", maker.pid, &format!("{session:?}")[24..]),
        None => format!("session {session:?}"),
    }
}

fn lease(lease: &LeaseView) -> String {
    let extended = lease.extended.as_secs();
    match lease.left {
        Some(left) => format!("extended {extended} s ago, {} s left", left.as_secs()),
        None => format!("expired, extended {extended} s ago"),
    }
}

fn beginning(item: &Item) -> String {
    // A character has up to four bytes.
    let part = &item.payload[..item.payload.len().min(4 * MOST)];
    output::one_line(&String::from_utf8_lossy(part), MOST)
}
