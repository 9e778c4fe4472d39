//! Reports to systemd: when the daemon is ready, reloads and stops, its status line, and pings for the
//! watchdog. Without systemd (no `NOTIFY_SOCKET`) it reports nothing, but still judges the daemon's liveness
//! for the status.
//!
//! The pings come from a task on the actors' thread, so a thread that is blocked sends none. In each round the
//! task asks the supervisor, through its mailbox, for all consumers; the supervisor pings each of them through
//! theirs. Then the task looks at what each consumer does. A consumer that waits for a handler, for a push, or
//! for a database that is away is not stuck, however long that takes. A consumer that has not moved although
//! nothing held it back is stuck: the pings stop, and systemd restarts the daemon. The leases that it held expire.

mod liveness;
mod notifier;
mod probe;
mod reporter;
mod status_line;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use self::{notifier::Notifier, probe::Probe, reporter::Reporter};
use crate::{
    actors::SupervisorHandle,
    status::{DaemonStatus, Phase},
};

/// The longest time between two rounds.
const ROUND: Duration = Duration::from_secs(5);

/// The same in a drain, whose status line has the seconds that are left.
const DRAIN_ROUND: Duration = Duration::from_secs(1);

/// The shortest time between two rounds, whatever the watchdog asks for.
const SHORTEST: Duration = Duration::from_millis(20);

/// How much longer something may take than it should before it counts as stuck. A fetch that the database
/// does not answer is given up after ten seconds, and so is the next one.
const PATIENCE: Duration = Duration::from_secs(45);

/// Reports to systemd, and judges the liveness, until it is dropped.
pub(crate) struct Reporting {
    _task: AbortOnDropHandle<()>,
    /// The status's listener refers to it.
    _reporter: Arc<Reporter>,
}

/// Starts to report the status's phases, the status line and the pings to systemd, if the daemon `notifies` systemd and not
/// the program that it is a part of; and the liveness to the status. Must be called on the actors' thread.
pub(crate) fn start(
    status: Arc<DaemonStatus>,
    supervisor: SupervisorHandle,
    patience: Option<Duration>,
    notifies: bool,
) -> Reporting {
    let ping_every = sd_notify::watchdog_enabled().filter(|every| notifies && !every.is_zero());
    let notifier = if notifies { Notifier::from_environment() } else { Notifier::none() };
    let reporter = Arc::new(Reporter::new(notifier, ping_every.is_some(), status.clone()));
    let listener = Arc::downgrade(&reporter);
    status.listen(move |phase| {
        if let Some(reporter) = listener.upgrade() {
            reporter.phase(phase);
        }
    });
    // Three times as often as systemd wants it: one ping may come late, or be lost.
    let round = ping_every.map_or(ROUND, |every| (every / 3).clamp(SHORTEST, ROUND));
    let probe = Probe::new(patience.unwrap_or(PATIENCE));
    let task: JoinHandle<()> =
        tokio::task::spawn_local(rounds(status, supervisor, reporter.clone(), probe, round));
    Reporting { _task: AbortOnDropHandle::new(task), _reporter: reporter }
}

async fn rounds(
    status: Arc<DaemonStatus>,
    supervisor: SupervisorHandle,
    reporter: Arc<Reporter>,
    mut probe: Probe,
    round: Duration,
) {
    let mut reported = None;
    loop {
        let consumers = timeout(round, supervisor.consumers()).await.ok().and_then(Result::ok);
        let phase = status.current_phase();
        let stuck = match phase {
            // The shutdown timeout bounds a drain, whatever the consumers do.
            Phase::Draining => None,
            Phase::Starting | Phase::Ready | Phase::Reloading => {
                probe.judge(consumers.as_deref(), Instant::now())
            }
        };
        log(&mut reported, stuck.as_ref());
        let stuck = stuck.map(|stuck| stuck.to_string());
        status.judge(stuck.clone());
        reporter.round(stuck.as_deref());
        sleep(if phase == Phase::Draining { round.min(DRAIN_ROUND) } else { round }).await;
    }
}

/// Logs once for each consumer that is stuck, and once when it has recovered.
fn log(reported: &mut Option<u64>, stuck: Option<&liveness::Stuck>) {
    let now = stuck.map(|stuck| stuck.consumer);
    match stuck {
        Some(stuck) if *reported != now => tracing::error!(
            event = "watchdog_stopped",
            consumer = stuck.consumer,
            queue = %stuck.queue,
            seconds = stuck.lasted.as_secs(),
            reason = %stuck,
            "a consumer is stuck; watchdog pings stopped"
        ),
        None if reported.is_some() => {
            tracing::warn!(event = "watchdog_resumed", "the consumer has recovered; watchdog pings resumed");
        }
        _ => {}
    }
    *reported = now;
}
