//! `kvqueue schedule next`

use std::{ffi::OsString, os::unix::ffi::OsStringExt, time::SystemTime};

use anyhow::{Context, bail};
use kvqueue_queue::schedule::Schedule;
use serde_json::Value;

use super::{
    Which,
    times::{Times, wrong},
};
use crate::{
    base::{clock, exit::Exit},
    cli::{
        completions,
        globals::Globals,
        operation::{self, Runner},
        output,
        values::{self, When},
    },
    operations::schedules::{ShowSchedule, times_table},
    schedules::firings,
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
        let runner = Runner::open_for(None, globals)?;
        let found = runner.ask(&ShowSchedule { schedule: which.target() })?;
        let shown = found.shown();
        let Some(schedule) = shown.schedule() else {
            bail!("this version of kvqueue cannot read the schedule; upgrade kvqueue");
        };
        if shown.is_paused() && !globals.quiet {
            output::note(format_args!(
                "kvqueue: the schedule is paused, and fires at these times only if it is resumed before"
            ));
        }
        let queue = self.queue.clone().unwrap_or_default().into_vec();
        self.print(globals, &schedule, &queue, shown.from(now))
    }

    fn print(
        &self,
        globals: &Globals,
        schedule: &Schedule,
        queue: &[u8],
        after: SystemTime,
    ) -> anyhow::Result<Exit> {
        let now = clock::now();
        let after = self.after.map_or(after, |after| after.time(now));
        let firings: Vec<_> = firings(schedule, queue, after).take(self.n.into()).collect();
        if globals.json {
            output::lines(true, firings.iter().map(|firing| ("", firing.json())))?;
            return Ok(Exit::Done);
        }
        output::line(false, schedule.calendar.description().as_bytes(), &Value::Null)?;
        let (columns, rows) = times_table(schedule, &firings, self.after.is_none().then_some(now));
        operation::print_table(columns, rows)?;
        Ok(Exit::Done)
    }
}
