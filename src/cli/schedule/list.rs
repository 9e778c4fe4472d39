//! `kvqueue schedule list`

use std::{ffi::OsString, num::NonZeroUsize, os::unix::ffi::OsStringExt};

use crate::{
    base::exit::Exit,
    cli::{
        completions,
        globals::Globals,
        operation::{self, Runner},
        output,
    },
    operations::{Answer, Operation, Page, QueueName, Text, schedules::ListSchedules},
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
        let of = |queue| ListSchedules { queue, page: Page::new(NonZeroUsize::MAX, None) };
        if let Some(queue) = self.queue {
            return operation::run(of(QueueName(queue.into_vec())), globals);
        }
        let runner = Runner::open_for(None, globals)?;
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for name in runner.queues()? {
            let mut list = of(QueueName(name));
            loop {
                let page = runner.ask(&list)?;
                if globals.json {
                    let object = serde_json::to_value(&page)?;
                    let schedules = object["schedules"].as_array();
                    schedules.into_iter().flatten().try_for_each(|it| output::line(true, b"", it))?;
                } else if let Text::Table(header, of_queue) = page.text() {
                    columns = header;
                    rows.extend(of_queue.into_iter().map(|row| [vec![list.queue.to_string()], row].concat()));
                }
                if !list.go_on(&page) {
                    break;
                }
            }
        }
        columns.insert(0, "queue");
        operation::print_table(columns, rows)?;
        Ok(Exit::Done)
    }
}
