//! `kvqueue schedule next`

use std::ffi::OsString;

use anyhow::Context;
use kvqueue_queue::{
    Millis,
    schedule::{Schedule, ScheduleView},
};

use super::{
    UPGRADE, Which, print, refused, table,
    times::{Times, wrong},
};
use crate::{
    cli::{
        client::Client,
        completions,
        globals::Globals,
        output,
        values::{self, When},
    },
    consumer::clock,
    exit::Exit,
    schedules::{Firing, Refusal, firings, from, from_now, local, local_exact},
};

/// Print when a schedule fires next; or try an expression, without a database
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "kvqueue schedule next [OPTIONS] <QUEUE> <NAME>\n       \
    kvqueue schedule next [OPTIONS] --cron <EXPRESSION> [--zone <ZONE>]\n       \
    kvqueue schedule next [OPTIONS] --every <DURATION>",
    after_help = "Examples:\n  \
    kvqueue schedule next reports nightly\n  \
    kvqueue schedule next --cron '30 2 * * *' --zone Europe/Berlin --after 2027-03-27T00:00:00Z"
)]
pub(in crate::cli) struct Next {
    /// The queue
    #[arg(required_unless_present_any = ["cron", "every"], conflicts_with_all = ["cron", "every"], add = completions::queue())]
    queue: Option<OsString>,
    /// The schedule
    #[arg(value_name = "NAME", required_unless_present_any = ["cron", "every"])]
    name: Option<String>,
    #[command(flatten)]
    times: Times,
    /// How many times to print
    #[arg(short, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000), allow_negative_numbers = true)]
    n: u16,
    /// Those after this time: RFC 3339, or seconds since 1970 [default: now]
    #[arg(long, value_name = "TIME", value_parser = values::at)]
    after: Option<When>,
}

impl Next {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let now = clock::now();
        if self.times.is_given() {
            let schedule = self.times.definition().schedule("new", None).map_err(wrong)?;
            return self.print(globals, &schedule, b"", now);
        }
        let (queue, name) = self.queue.clone().zip(self.name.clone()).context("clap requires both names")?;
        let which = Which { queue, name };
        let client = Client::open(globals)?;
        let queue = which.open(&client)?;
        let ScheduleView { schedule: Some(schedule), state: Some(state), .. } =
            which.read(&client, &queue)?
        else {
            return Err(refused(&queue, &which.name, "read", &Refusal::Unreadable, UPGRADE));
        };
        if state.paused.is_some() && !globals.quiet {
            output::note(format_args!(
                "kvqueue: the schedule is paused, and fires at these times only if it is resumed before"
            ));
        }
        self.print(globals, &schedule, queue.name(), from(&state, now))
    }

    fn print(
        &self,
        globals: &Globals,
        schedule: &Schedule,
        queue: &[u8],
        after: Millis,
    ) -> anyhow::Result<Exit> {
        let now = clock::now();
        let after = self.after.map_or(after, |after| after.time(now));
        let firings: Vec<_> = firings(schedule, queue, after).take(self.n.into()).collect();
        if globals.json {
            output::lines(true, firings.iter().map(|firing| ("", firing.json())))?;
            return Ok(Exit::Done);
        }
        print(&schedule.calendar.description())?;
        if !firings.is_empty() {
            let now = self.after.is_none().then_some(now);
            print(&firing_table(schedule, &firings, now))?;
        }
        Ok(Exit::Done)
    }
}

/// Times as a table: as the calendar has them, when they fire, and how far that is from `now`.
pub(super) fn firing_table(schedule: &Schedule, firings: &[Firing], now: Option<Millis>) -> String {
    let (zone, is_exact) = (schedule.calendar.zone(), schedule.jitter.is_zero());
    let cells = |time: &str, fires: &str, from_now: &str| {
        let fires = (!is_exact).then(|| fires.to_owned());
        let from_now = now.map(|_| from_now.to_owned());
        [time.to_owned()].into_iter().chain(fires).chain(from_now)
    };
    let mut table = table();
    table.set_header(cells("time", "fires", "from now"));
    for Firing { nominal, fires } in firings {
        let from_now = now.map(|now| from_now(*fires, now)).unwrap_or_default();
        table.add_row(cells(&local_exact(*nominal, zone), &local(*fires, zone), &from_now));
    }
    table.to_string()
}
