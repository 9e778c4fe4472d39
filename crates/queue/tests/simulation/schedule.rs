//! What happens next: the one place where a seed becomes an order of events.

use crate::rng::Rng;

/// How rough a run is: weights and percentages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weather {
    /// How many commits of a hundred meet a fault.
    pub(crate) faults: usize,
    /// How many reads of a thousand fail.
    pub(crate) read_faults: usize,
    pub(crate) crash: usize,
    pub(crate) cancel: usize,
    pub(crate) suspend: usize,
    /// Time passes.
    pub(crate) advance: usize,
    /// Versions run fast by this many percent.
    pub(crate) fast: u64,
    /// The longest time that versions stand still, in microseconds, before they catch up.
    pub(crate) standstill: usize,
    /// Versions jump ahead.
    pub(crate) jump: usize,
    /// Clocks on walls are set ahead, or back.
    pub(crate) turn: usize,
}

impl Weather {
    /// From fair to foul.
    pub(crate) fn of(rng: &mut Rng) -> Weather {
        let mut pick = |from: [usize; 3]| from[rng.below(3)];
        Weather {
            faults: pick([0, 10, 30]),
            read_faults: pick([0, 0, 10]),
            crash: pick([0, 3, 10]),
            cancel: pick([0, 20, 50]),
            suspend: pick([0, 4, 12]),
            advance: pick([5, 30, 80]),
            fast: pick([0, 0, 10]) as u64,
            standstill: pick([0, 0, 2_000_000]),
            jump: pick([0, 10, 30]),
            turn: pick([0, 10, 30]),
        }
    }

    /// Nothing goes wrong any more, and time goes on.
    pub(crate) fn calm() -> Weather {
        Weather {
            faults: 0,
            read_faults: 0,
            crash: 0,
            cancel: 0,
            suspend: 0,
            advance: 20,
            fast: 0,
            standstill: 0,
            jump: 0,
            turn: 20,
        }
    }
}

/// What can happen next. A number is a worker's seat, or a commit's place among those under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A worker goes on.
    Poll(usize),
    /// A commit arrives.
    Commit(usize),
    /// A commit is lost on its way.
    Lose(usize),
    /// A worker waits no longer for a commit, which is still on its way.
    TimeOut(usize),
    /// A worker dies, with its sessions; another comes in its place.
    Crash(usize),
    /// A worker gives up what it is doing.
    Cancel(usize),
    /// A worker hears and sees nothing for a while.
    Suspend(usize),
    /// Time passes, and versions go on with it in their way.
    Advance,
    /// Versions jump ahead.
    Jump,
    /// Clocks on walls are set ahead, or back.
    Turn,
}

/// Steps to choose from, each with a weight.
#[derive(Debug, Default)]
pub(crate) struct Choices(Vec<(usize, Step)>);

impl Choices {
    pub(crate) fn add(&mut self, weight: usize, step: Step) {
        if weight > 0 {
            self.0.push((weight, step));
        }
    }

    /// One of them; `None` if there are none.
    pub(crate) fn choose(&self, rng: &mut Rng) -> Option<Step> {
        let total = self.0.iter().map(|(weight, _)| weight).sum();
        let mut left = if total == 0 { return None } else { rng.below(total) };
        self.0.iter().find_map(|(weight, step)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                None
            }
            None => Some(*step),
        })
    }
}
