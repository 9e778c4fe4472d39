//! Takes for the consumers of a queue in this process. Each asks for items; while one take is under way the others' wishes gather, and
//! the next take is for all of them, by whoever comes to lead it. So takes of one process never conflict with each other, and the more
//! consumers there are, the more share a transaction, and later the one that settles.
//!
//! | file | role |
//! |---|---|
//! | `clock` | what time it is at the database |
//! | `line` | those who wait for items |
//! | `once` | one take for some of them |
//! | `share` | who gets which of the items taken |

mod clock;
mod line;
mod once;
mod share;
mod words;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use kvqueue_queue::{Approach, FetchError, RetryError, Session};
use tokio::{
    sync::{Mutex, oneshot},
    task::yield_now,
};
use tokio_util::sync::CancellationToken;

use self::{
    line::{Line, Ticket},
    once::serve,
};
use super::{
    batch::{Batch, InHand},
    idle::Member,
    source::Source,
};
use crate::{
    board::{Beat, Pulse, Stage},
    config::Delivery,
};

pub(crate) use self::{clock::Clock, words::LastWords};

/// The most items that several consumers take together; one alone may ask for more. It bounds what one transaction holds up, and what
/// is lost with one lease.
const MOST_TOGETHER: usize = 2_000;

/// How a take ended for one of those it was for.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It had not begun when the consumer was told to stop.
    GivenUp,
    /// The database refused.
    Failed(Arc<FetchError>),
    /// There is nothing, until this resolves.
    Nothing(oneshot::Receiver<()>),
    /// There is nothing to take ahead.
    NothingAhead,
    /// There is nothing, and nothing that could become something: no lease, no item for later.
    AtRest,
    /// Items, in batches of up to K.
    Batches(Vec<InHand>),
}

/// What takes of a queue are made with, shared by its consumers.
pub(crate) struct Taker {
    line: Line,
    /// Held during a take. The lock is fair.
    turn: Mutex<Turn>,
    /// Beats when a take ends, however it does.
    pub(crate) turns: Arc<Beat>,
    seats: Arc<AtomicUsize>,
    /// What time it is at the database.
    pub(crate) clock: Arc<Clock>,
}

/// A take waits for up to this fraction of the previous take's duration, so that consumers which that one has just served can join it.
/// Those that come later wait for the whole take.
const GATHER: u32 = 8;

/// The longest such wait.
const MOST_GATHER: Duration = Duration::from_micros(500);

/// What goes from one take to the next.
struct Turn {
    /// What is learned from conflicts with other processes.
    approach: Approach,
    /// An identity that no other process has, or has had, from the first take to the last consumer's end.
    session: Option<Session>,
    /// How many consumers the last take had items for.
    served: usize,
    /// How long it took.
    took: Duration,
}

/// A consumer's right to ask. The last one to leave ends the session.
#[derive(Debug)]
pub(crate) struct Seat(Option<Arc<AtomicUsize>>);

impl Taker {
    /// For consumers yet to come.
    pub(crate) fn new(approach: Approach) -> Self {
        let turn = Turn { approach, session: None, served: 0, took: Duration::ZERO };
        let turn = Mutex::new(turn);
        Self {
            line: Line::default(),
            turn,
            turns: Arc::default(),
            seats: Arc::default(),
            clock: Arc::default(),
        }
    }

    /// Takes in a consumer.
    pub(crate) fn join(&self) -> Seat {
        self.seats.fetch_add(1, Ordering::Relaxed);
        Seat(Some(self.seats.clone()))
    }
}

impl Seat {
    /// Whether it was the last.
    fn leave(mut self) -> bool {
        self.0.take().is_some_and(|seats| seats.fetch_sub(1, Ordering::Relaxed) == 1)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = self.0.take() {
            seats.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Who it is.
    pub(crate) member: Member,
    /// How many items a batch has at most.
    pub(crate) k: NonZeroUsize,
    /// How many batches it has room for.
    pub(crate) batches: NonZeroUsize,
    /// While it has others to handle: it does not wait where there are none, and comes after those who have none.
    pub(crate) ahead: bool,
}

impl Wish {
    /// How many items it asks for.
    fn items(&self) -> NonZeroUsize {
        self.k.saturating_mul(self.batches)
    }

    /// The same for one item.
    fn of_one_item(self) -> Self {
        Self { k: NonZeroUsize::MIN, batches: NonZeroUsize::MIN, ..self }
    }

    /// The same with no more batches than are taken together.
    fn bounded(self) -> Self {
        let most = NonZeroUsize::new(MOST_TOGETHER / self.k).unwrap_or(NonZeroUsize::MIN);
        Self { batches: self.batches.min(most), ..self }
    }
}

/// Takes items, with others who ask at the same time. Once begun, a take is seen through; `stop` only ends the waiting, which may be for
/// the queue to be no longer paused, or for its handler to work: then the pulse says so.
pub(crate) async fn take(
    source: Arc<Source>,
    wish: Wish,
    stop: CancellationToken,
    pulse: Arc<Pulse>,
) -> Attempt {
    loop {
        if (!source.gate.is_open() || source.breaker.is_open())
            && let Some(attempt) = pass(&source, wish, &stop, &pulse).await
        {
            return attempt;
        }
        // Open still, although this consumer may take: its call is the trial.
        let wish = if source.breaker.is_open() { wish.of_one_item() } else { wish.bounded() };
        if let Some(attempt) = ask(&source, wish, &stop, pulse.id).await {
            if !matches!(attempt, Attempt::Batches(_)) {
                source.breaker.leave(pulse.id);
            }
            return attempt;
        }
        // The consumer that led the take is gone without an answer, and what it may have taken comes with the next. Or the queue was paused, or its
        // handler could not work.
    }
}

/// Waits until the queue is not paused, and then until its handler may be called. An attempt, if that is not to be waited for.
async fn pass(source: &Source, wish: Wish, stop: &CancellationToken, pulse: &Pulse) -> Option<Attempt> {
    if wish.ahead {
        return Some(Attempt::NothingAhead);
    }
    let passed = async {
        if !source.gate.is_open() {
            pulse.set(Stage::Paused);
            source.gate.opened().await;
        }
        if source.breaker.holds_back(pulse.id) {
            pulse.set(Stage::Unavailable);
            source.breaker.admit(pulse.id).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {
            source.breaker.leave(pulse.id);
            Some(Attempt::GivenUp)
        }
        () = passed => {
            pulse.set(Stage::Taking);
            None
        }
    }
}

async fn ask(source: &Arc<Source>, wish: Wish, stop: &CancellationToken, consumer: u64) -> Option<Attempt> {
    let taker = &source.taker;
    let Ticket { number, mut answer } = taker.line.ask(wish);
    loop {
        let mut turn = tokio::select! {
            biased;
            answer = &mut answer => return answer.ok(),
            () = stop.cancelled() => return give_up(taker, number, answer).await,
            turn = taker.turn.lock() => turn,
        };
        gather(&taker.line, &turn).await;
        if !source.gate.is_open() || source.breaker.holds_back(consumer) {
            drop(turn);
            match taker.line.withdraw(number) {
                true => return None,
                // The take before this one was for it too.
                false => continue,
            }
        }
        let together = match source.delivery {
            // The transactions of several handlers would conflict on the lease that they share.
            Delivery::ExactlyOnce => 1,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => MOST_TOGETHER,
        };
        let asked = taker.line.first(together);
        if !asked.is_empty() {
            serve(source, &mut turn, asked).await;
            taker.turns.beat();
        }
    }
}

/// Leaves the line. A take that has begun for the request answers it, or puts it back into the line, where perhaps nobody would come to it any
/// more.
async fn give_up(taker: &Taker, number: u64, mut answer: oneshot::Receiver<Attempt>) -> Option<Attempt> {
    loop {
        if taker.line.withdraw(number) {
            return Some(Attempt::GivenUp);
        }
        tokio::select! {
            biased;
            answer = &mut answer => return answer.ok(),
            // The take is over.
            _turn = taker.turn.lock() => {}
        }
    }
}

/// Lets others who are about to ask do so. Not by sleeping: a timer is not that fine.
async fn gather(line: &Line, turn: &Turn) {
    let until = Instant::now() + (turn.took / GATHER).min(MOST_GATHER);
    loop {
        yield_now().await;
        if line.len() >= turn.served || Instant::now() >= until {
            return;
        }
    }
}

/// Ends what a consumer that takes no more has asked for. A consumer that joins while the last one leaves gets a session of its own: which of
/// them is first, the turn decides. The last one closes the session: what a take on a lease may have got whose
/// outcome was never known is given back; what another removed is returned.
pub(crate) async fn close(source: &Source, seat: Seat) -> Result<Option<InHand>, RetryError> {
    if !seat.leave() {
        return Ok(None);
    }
    let Some(session) = source.taker.turn.lock().await.session.take() else { return Ok(None) };
    let left = session.close(&source.db).await?;
    source.meters.taken.add(left.len() as u64);
    Ok((!left.is_empty()).then(|| InHand::Taken(Batch::new(source, left))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_k_is_not_multiplied() {
        let [k, batches] = [900, 3].map(|n| NonZeroUsize::new(n).unwrap());
        let wish = Wish { member: 1, k, batches, ahead: true };
        assert_eq!(wish.bounded().items().get(), 1_800);
        let alone = Wish { k: NonZeroUsize::new(10_000).unwrap(), ..wish };
        assert_eq!(alone.bounded().items().get(), 10_000);
    }
}
