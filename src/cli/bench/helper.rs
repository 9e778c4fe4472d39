//! The other processes of a cell with several: each runs a daemon like the first one's.
//!
//! A helper opens the database, prints `ready`, waits for a line, works until the queue is empty, and tells what it has seen: a line
//! with counts, then the number of each item, 8 bytes each. It ends when its standard input does, so that none survives the bench.

use std::{
    io::{Read, Write, stdin, stdout},
    process::{Stdio, exit},
    sync::Arc,
};

use anyhow::Context;
use kvqueue_queue::Queue;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{
    consumers::{Consumers, Place},
    options::{HandlerKind, Work},
    tally::{Faults, Tally},
};
use crate::{
    config::{Delivery, TakeStrategy},
    database::Store,
    exit::Exit,
};

/// One of the processes of `burn --processes`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What it does, as the first process says it
    task: String,
}

/// What a helper does.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    url: String,
    prefix: String,
    queue: String,
    workers: u16,
    k: u16,
    delivery: Delivery,
    take: TakeStrategy,
    handler: HandlerKind,
    /// Items there are.
    items: u64,
}

impl Args {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let task: Task =
            serde_json::from_str(&self.task).context("a helper is started by kvqueue bench only")?;
        let store = Store::open(&task.url)?;
        let queue = Queue::new(task.prefix.as_bytes(), task.queue.as_bytes())?;
        let place = Place { db: store.db.clone(), url: task.url.clone(), prefix: task.prefix.clone(), queue };
        let tally = Arc::new(Tally::new());
        tally.number(task.items).context("there are more items than can be counted")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { anyhow::Ok(place.db.create_trx()?.get_read_version().await?) })?;
        writeln!(stdout(), "ready")?;
        await_word()?;
        let work = Work::of(task.workers, task.k, task.delivery, task.take, task.handler);
        runtime.block_on(async { Consumers::start(&place, &work, &tally, true)?.ended().await })?;
        tell(&tally)?;
        Ok(Exit::Done)
    }
}

/// Waits for a byte on standard input; and from then on for its end, which is this process's as well.
fn await_word() -> anyhow::Result<()> {
    stdin().read_exact(&mut [0]).context("the bench has ended")?;
    std::thread::spawn(|| {
        let _ = stdin().read(&mut [0]);
        exit(Exit::Failed as i32);
    });
    Ok(())
}

fn tell(tally: &Tally) -> anyhow::Result<()> {
    let Faults { repeated, invented, .. } = tally.faults();
    let mut out = std::io::BufWriter::new(stdout().lock());
    writeln!(out, "{repeated} {invented} {}", tally.count())?;
    for number in tally.seen_numbers() {
        out.write_all(&number.to_be_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// The helpers of a cell. Dropped, they are killed.
pub(super) struct Helpers(Vec<Helper>);

struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Helpers {
    /// Starts so many, and waits until they are ready.
    pub(super) async fn start(
        processes: u16,
        place: &Place,
        work: &Work,
        items: u64,
    ) -> anyhow::Result<Self> {
        let task = Task {
            url: place.url.clone(),
            prefix: place.prefix.clone(),
            queue: String::from_utf8_lossy(place.queue.name()).into_owned(),
            workers: work.workers,
            k: work.k,
            delivery: work.delivery(),
            take: work.take(),
            handler: work.handler(),
            items,
        };
        let task = serde_json::to_string(&task)?;
        let mut helpers = (0..processes).map(|_| Helper::spawn(&task)).collect::<anyhow::Result<Vec<_>>>()?;
        for helper in &mut helpers {
            let mut line = String::new();
            helper.stdout.read_line(&mut line).await?;
            anyhow::ensure!(line.trim() == "ready", "a helper process did not start");
        }
        Ok(Self(helpers))
    }

    /// Lets them begin.
    pub(super) async fn go(&mut self) -> anyhow::Result<()> {
        for helper in &mut self.0 {
            helper.stdin.write_all(b"\n").await.context("a helper process has ended")?;
            helper.stdin.flush().await?;
        }
        Ok(())
    }

    /// Waits for their ends, and adds what they have seen.
    pub(super) async fn finish(mut self, tally: &Tally) -> anyhow::Result<()> {
        for helper in &mut self.0 {
            helper.finish(tally).await.context("a helper process failed")?;
        }
        Ok(())
    }
}

impl Helper {
    fn spawn(task: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "helper", task]).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdin = stdin.context("a helper has no standard input")?;
        let stdout = BufReader::new(stdout.context("a helper has no standard output")?);
        Ok(Self { child, stdin, stdout })
    }

    async fn finish(&mut self, tally: &Tally) -> anyhow::Result<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).await?;
        let counts: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let [repeated, invented, items] = counts.unwrap_or_default()[..] else {
            anyhow::bail!("it said {line:?}");
        };
        tally.faults_elsewhere(Faults { repeated, invented, ..Faults::default() });
        for _ in 0..items {
            tally.handled_elsewhere(self.stdout.read_u64().await?);
        }
        anyhow::ensure!(self.child.wait().await?.success(), "its exit code says so");
        Ok(())
    }
}
