//! The sums of a run.

use std::{fmt, ops::AddAssign};

/// One queue's account, and what is wrong with it.
#[derive(Debug, Default)]
pub(in crate::chaos) struct Account {
    pub(super) attempted: usize,
    pub(super) acknowledged: usize,
    /// Times that an item was handed to a handler.
    pub(super) handled: usize,
    pub(super) lost: usize,
    pub(super) unexpected: usize,
    pub(super) duplicates: usize,
    pub(super) recovered: usize,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) cancelled: usize,
    pub(super) expired: usize,
    /// How long after its cancellation an item was handled at most, in ms.
    pub(super) late: u64,
    /// Pushes that replaced another.
    pub(super) replaced: usize,
    pub(in crate::chaos) wrong: Vec<String>,
}

/// The most items that are named for each kind of trouble.
const NAMED: usize = 5;

impl Account {
    pub(super) fn complain(&mut self, what: &str, of: &[impl fmt::Debug]) {
        if !of.is_empty() {
            self.wrong.push(format!("{}, {what}: {:?}", of.len(), &of[..of.len().min(NAMED)]));
        }
    }

    pub(super) fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(what());
        }
    }
}

/// The account of several queues.
impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.attempted += other.attempted;
        self.acknowledged += other.acknowledged;
        self.handled += other.handled;
        self.lost += other.lost;
        self.unexpected += other.unexpected;
        self.duplicates += other.duplicates;
        self.recovered += other.recovered;
        self.done += other.done;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.expired += other.expired;
        self.late = self.late.max(other.late);
        self.replaced += other.replaced;
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempted,
            acknowledged,
            handled,
            lost,
            unexpected,
            duplicates,
            recovered,
            done,
            dead,
            cancelled,
            late,
            expired,
            replaced,
            wrong: _,
        } = self;
        write!(
            f,
            "{attempted} attempted, {acknowledged} acknowledged, {handled} handled, {done} done, {dead} dead, \
             {cancelled} cancelled (handled up to {late} ms later), {expired} expired, {replaced} replaced, {lost} lost, {unexpected} unexpected, {duplicates} duplicates, {recovered} recovered"
        )
    }
}
