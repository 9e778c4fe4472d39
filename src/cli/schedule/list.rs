//! `kvqueue schedule list`

use std::{ffi::OsString, num::NonZeroUsize};

use futures::future::try_join_all;
use kvqueue_queue::{Millis, Queue, schedule::ScheduleView};

use super::{open, print, table};
use crate::{
    cli::{client::Client, completions, globals::Globals, output},
    consumer::clock,
    database::QUEUES_AT_A_TIME,
    exit::Exit,
    schedules::{SchedulePage, Standing, from_now, local, schedule_object},
    text::visible,
};

/// Print the schedules of a queue, or of all queues: when they fire, and how they stand
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// The queue [default: all]
    #[arg(add = completions::queue())]
    queue: Option<OsString>,
}

impl List {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let mut found = Vec::new();
        if let Some(name) = &self.queue {
            let queue = open(&client, name)?;
            client.note_if_absent(&queue)?;
            of(&client, &[queue], &mut found)?;
        } else {
            let names = client.queues()?;
            let queues: Result<Vec<_>, _> =
                names.iter().map(|name| Queue::new(client.prefix(), name)).collect();
            for queues in queues?.chunks(QUEUES_AT_A_TIME) {
                of(&client, queues, &mut found)?;
            }
        }
        let now = clock::now();
        if globals.json {
            let objects = found.iter().map(|(queue, view)| schedule_object(queue.name(), view, now, false));
            output::lines(true, objects.map(|object| ("", object)))?;
        } else if !found.is_empty() {
            print(&shown(&found, self.queue.is_none(), now))?;
        }
        Ok(Exit::Done)
    }
}

/// How many schedules of a queue are read in a transaction: of many queues together, and of one.
const FEW: usize = 5;
const MANY: usize = 100;

/// Reads all schedules of some queues.
fn of(client: &Client, queues: &[Queue], found: &mut Vec<(Queue, ScheduleView)>) -> anyhow::Result<()> {
    let [few, many] = [FEW, MANY].map(|limit| NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN));
    // Most queues have none, or few.
    let first = client.transact(|tr| async {
        let pages = queues.iter().map(|queue| SchedulePage::read(queue, &tr, None, few));
        let pages = try_join_all(pages).await;
        (tr, pages)
    })?;
    for (queue, mut page) in queues.iter().zip(first) {
        loop {
            let next = page.next().map(ToOwned::to_owned);
            found.extend(page.schedules.into_iter().map(|view| (queue.clone(), view)));
            let Some(after) = next else { break };
            page = client.transact(|tr| async {
                let page = SchedulePage::read(queue, &tr, Some(&after), many).await;
                (tr, page)
            })?;
        }
    }
    Ok(())
}

fn shown(found: &[(Queue, ScheduleView)], with_queue: bool, now: Millis) -> String {
    const HEADS: [&str; 8] = ["queue", "name", "calendar", "zone", "next", "last", "state", "owner"];
    let skipped = usize::from(!with_queue);
    let mut table = table();
    table.set_header(&HEADS[skipped..]);
    for (queue, view) in found {
        table.add_row(row(queue, view, now).into_iter().skip(skipped));
    }
    table.to_string()
}

fn row(queue: &Queue, view: &ScheduleView, now: Millis) -> [String; 8] {
    let (schedule, state) = (view.schedule.as_ref(), view.state.as_ref());
    let zone = schedule.and_then(|it| it.calendar.zone());
    let when = |at| format!("{}, {}", local(at, zone), from_now(at, now));
    let offset = schedule.map_or(0, |it| it.offset(queue.name()));
    let next = state.filter(|it| it.paused.is_none()).and_then(|it| it.next);
    let owner = schedule.and_then(|it| it.owner.as_deref());
    [
        queue.name().escape_ascii().to_string(),
        visible(&view.name),
        schedule.map(calendar).unwrap_or_default(),
        zone.unwrap_or_default().to_owned(),
        next.map(|next| when(next.saturating_add(offset))).unwrap_or_default(),
        state.and_then(|it| it.last.as_ref()).map(|(last, _)| when(*last)).unwrap_or_default(),
        standing(Standing::of(view, queue.name(), now), zone),
        visible(owner.unwrap_or_default()),
    ]
}

/// The expression as it was written, or the period.
pub(super) fn calendar(schedule: &kvqueue_queue::schedule::Schedule) -> String {
    match schedule.calendar.period() {
        Some(_) => format!("every {}", schedule.calendar),
        None => visible(&schedule.calendar.to_string()),
    }
}

/// How a schedule stands, in words.
pub(super) fn standing(standing: Standing, zone: Option<&str>) -> String {
    match standing {
        Standing::Active => "active".to_owned(),
        Standing::Overdue => "overdue: no daemon has fired it".to_owned(),
        Standing::Paused(since) => format!("paused since {}", local(since, zone)),
        Standing::Waiting(nominal) => {
            format!("waiting for the end of its last item, since {}", local(nominal, zone))
        }
        Standing::Unreadable => "unreadable: upgrade kvqueue".to_owned(),
    }
}
