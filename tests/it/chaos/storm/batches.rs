//! Batches of items: an operator makes one, two producers push its members, and an operator commits it.

use super::{
    Storm,
    operators::{Operator, Task},
};
use crate::chaos::{errand::Errand, payload::Name, plan::Crew, process::End};

/// How many of a thousand have a deadline, and after what time.
const DEADLINES: (u64, [&str; 3]) = (300, ["500ms", "1s", "2s"]);

/// How often a commit is tried that fails.
const TRIES: u64 = 5;

/// The longest payload of a callback, which is an argument of a command.
const PAYLOAD: usize = 1_000;

/// What is known of a batch.
#[derive(Clone, Debug)]
pub(in crate::chaos) struct Batch {
    /// The item that is pushed in the end. Its queue is the batch's home.
    pub(in crate::chaos) callback: Name,
    /// Without one, nobody knows whether it was made; nothing was pushed to it.
    pub(in crate::chaos) id: Option<String>,
    /// It calls back at a time, whatever its members do.
    pub(in crate::chaos) deadline: Option<&'static str>,
    /// The numbers of the producers of its members.
    pub(in crate::chaos) producers: Vec<u64>,
    state: State,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being made, filled or committed.
    Open,
    /// A command is to commit it, and earlier ones have failed so often.
    Committing(u64),
    /// There is nothing more to be done.
    Closed,
}

impl Batch {
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// One that is over.
    #[cfg(test)]
    pub(in crate::chaos) fn closed(callback: Name, deadline: Option<&'static str>) -> Self {
        Self { callback, id: None, deadline, producers: Vec::new(), state: State::Closed }
    }
}

impl Storm<'_> {
    /// Makes a batch.
    pub(super) fn new_batch(&mut self) -> Operator {
        self.started += 1;
        let (arena, producer) = (self.arena, self.started);
        let homes =
            arena.queues.iter().enumerate().filter(|(_, queue)| queue.is_leased() && queue.is_recorded());
        let homes: Vec<usize> = homes.map(|(place, _)| place).collect();
        let queue = self.random.choose(&homes);
        let callbacks = (0..).map(|place| Name { queue, producer, place });
        let callback = callbacks.into_iter().find(|name| name.payload().len() < PAYLOAD).unwrap();
        let (chance, times) = DEADLINES;
        let deadline = self.random.chance(chance).then(|| self.random.choose(&times));
        self.batches.push(Batch { callback, id: None, deadline, producers: Vec::new(), state: State::Open });
        let then = format!("{}:{}", arena.queues[queue].name, callback.payload());
        let mut args = vec!["batch", "new", "--then", &then, "--json"];
        args.extend(deadline.iter().flat_map(|time| ["--deadline", time]));
        self.operator(Task::NewBatch(self.batches.len() - 1), &args)
    }

    /// A batch that was made gets members.
    pub(super) fn made(&mut self, place: usize, id: Option<String>) {
        let queues = &self.arena.queues;
        // What keepers have is processed last, when nothing calls back any more.
        let places: Vec<usize> = (0..queues.len()).filter(|at| queues[*at].crew != Crew::Keepers).collect();
        let batch = &mut self.batches[place];
        batch.id = id;
        let Some(id) = &batch.id else {
            batch.state = State::Closed;
            return;
        };
        for _ in 0..2 {
            self.started += 1;
            batch.producers.push(self.started);
            let queue = self.random.choose(&places);
            let errand = Errand::of_batch(
                &mut self.random,
                (queue, &queues[queue]),
                self.started,
                id,
                batch.deadline.is_some(),
            );
            self.waiting.push_back(errand);
        }
    }

    /// Commits the first batch that has all its members.
    pub(super) fn commit_batch(&mut self) -> Option<Operator> {
        let has_pushed = |number: &u64| self.pushed.iter().any(|pushed| pushed.errand.number == *number);
        let is_full = |batch: &Batch| {
            batch.state == State::Open
                && !batch.producers.is_empty()
                && batch.producers.iter().all(has_pushed)
        };
        let place = self.batches.iter().position(is_full)?;
        self.batches[place].state = State::Committing(0);
        Some(self.try_commit(place))
    }

    fn try_commit(&mut self, place: usize) -> Operator {
        let id = self.batches[place].id.clone().unwrap();
        self.operator(Task::Commit(place), &["batch", "commit", &id, "--json"])
    }

    /// A commit has ended so. One that is gone has called back.
    pub(super) fn committed(&mut self, place: usize, end: End) -> Option<Operator> {
        let State::Committing(failed) = self.batches[place].state else { return None };
        let failed = failed + u64::from(end == End::Failed);
        if end == End::Done || failed == TRIES {
            self.batches[place].state = State::Closed;
            return None;
        }
        self.batches[place].state = State::Committing(failed);
        Some(self.try_commit(place))
    }

    /// Whether a batch waits for members, or for its commit.
    pub(super) fn has_open_batches(&self) -> bool {
        self.batches.iter().any(Batch::is_open)
    }
}
