//! What systemd is told: when the daemon is ready, reloads, and stops; how it is; and, for the watchdog, that it moves. Without systemd (no
//! `NOTIFY_SOCKET`) nothing is told, but whether the daemon moves is judged all the same, for the status.
//!
//! | file | role |
//! |---|---|
//! | `notifier` | datagrams to systemd |
//! | `teller` | what to say, and when |
//! | `status` | the line that `systemctl status` shows |
//! | `watch` | what is seen of the consumers, round by round |
//! | `rules` | whether one of them is stuck, as a pure function of what is seen |
//!
//! The watchdog is fed from a task on the actors' thread: a thread that is blocked feeds nothing. The task asks the supervisor for all
//! consumers, through its mailbox, and the supervisor pings each of them through theirs. Then it looks at what each is at. What waits for
//! others, for a handler, for pushes, or for a database that is away, is not stuck however long it takes; what has not moved though nothing
//! held it back is. One that is stuck stops the feeding, and systemd ends the daemon and starts it anew; leases that it held run out.

mod notifier;
mod rules;
mod status;
mod teller;
mod watch;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use self::{notifier::Notifier, teller::Teller, watch::Watch};
use crate::{
    actors::SupervisorHandle,
    status::{DaemonStatus, Phase},
};

/// The longest time between two looks at the consumers.
const ROUND: Duration = Duration::from_secs(5);

/// The longest between two words about a drain, which shows the seconds that are left.
const DRAIN_ROUND: Duration = Duration::from_secs(1);

/// The shortest, whatever the watchdog asks for.
const SHORTEST: Duration = Duration::from_millis(20);

/// How much longer something may take than it should before it counts as stuck. A take that the database does not answer is given up
/// after ten seconds, and so is the look that follows it.
const PATIENCE: Duration = Duration::from_secs(45);

/// Keeps telling systemd, and judging whether the daemon moves, until it is dropped.
pub(crate) struct Watched {
    _task: AbortOnDropHandle<()>,
    /// What the status's listener uses.
    _teller: Arc<Teller>,
}

/// Begins to tell systemd of the status's phases, how the daemon is, and that it moves; and the status, whether it does. To be called on the
/// actors' thread.
pub(crate) fn watch(
    status: Arc<DaemonStatus>,
    supervisor: SupervisorHandle,
    patience: Option<Duration>,
) -> Watched {
    let fed_every = sd_notify::watchdog_enabled().filter(|every| !every.is_zero());
    let teller = Arc::new(Teller::new(Notifier::from_environment(), fed_every.is_some(), status.clone()));
    let hears = Arc::downgrade(&teller);
    status.listen(move |phase| {
        if let Some(teller) = hears.upgrade() {
            teller.phase(phase);
        }
    });
    // Three times in the time that systemd allows: one may come late, or be lost.
    let round = fed_every.map_or(ROUND, |every| (every / 3).clamp(SHORTEST, ROUND));
    let watch = Watch::new(patience.unwrap_or(PATIENCE));
    let task: JoinHandle<()> =
        tokio::task::spawn_local(rounds(status, supervisor, teller.clone(), watch, round));
    Watched { _task: AbortOnDropHandle::new(task), _teller: teller }
}

async fn rounds(
    status: Arc<DaemonStatus>,
    supervisor: SupervisorHandle,
    teller: Arc<Teller>,
    mut watch: Watch,
    round: Duration,
) {
    let mut reported = None;
    loop {
        let present = timeout(round, supervisor.consumers()).await.ok().and_then(Result::ok);
        let phase = status.current_phase();
        let stuck = match phase {
            // Handlers may be at work for as long as the shutdown timeout says; and that it ends then is not left to consumers.
            Phase::Draining => None,
            Phase::Starting | Phase::Ready | Phase::Reloading => {
                watch.judge(present.as_deref(), Instant::now())
            }
        };
        report(&mut reported, stuck.as_ref());
        let stuck = stuck.map(|stuck| stuck.to_string());
        status.judge(stuck.clone());
        teller.round(stuck.as_deref());
        sleep(if phase == Phase::Draining { round.min(DRAIN_ROUND) } else { round }).await;
    }
}

/// Once for each that is stuck, and when it moves again.
fn report(reported: &mut Option<u64>, stuck: Option<&rules::Stuck>) {
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
