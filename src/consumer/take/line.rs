//! Those who wait for items, in the order in which they asked.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use super::{Attempt, Wish};

/// A wish for items.
#[derive(Debug)]
pub(super) struct Request {
    number: u64,
    pub(super) wish: Wish,
    /// Dropped, it tells that nobody serves the request, and nobody will.
    pub(super) answer: oneshot::Sender<Attempt>,
}

/// What one who asks keeps.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Attempt>,
}

/// The line.
#[derive(Debug, Default)]
pub(super) struct Line(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    asked: u64,
    requests: VecDeque<Request>,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }

    /// Stands at its end.
    pub(super) fn ask(&self, wish: Wish) -> Ticket {
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.asked += 1;
        let number = waiting.asked;
        waiting.requests.push_back(Request { number, wish, answer: sender });
        Ticket { number, answer }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().requests.len()
    }

    /// Leaves it; false if a take that has begun is for this request too.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        let mut waiting = self.lock();
        let at = waiting.requests.iter().position(|request| request.number == number);
        at.and_then(|at| waiting.requests.remove(at)).is_some()
    }

    /// The first ones, as many as ask for `most` items together, and one at least. They are to be answered, or put back.
    pub(super) fn first(&self, most: usize) -> Vec<Request> {
        let mut waiting = self.lock();
        // Whoever is gone wants nothing any more.
        waiting.requests.retain(|request| !request.answer.is_closed());
        let mut items = 0_usize;
        let count = waiting.requests.iter().take_while(|request| {
            let is_first = items == 0;
            items = items.saturating_add(request.wish.items().get());
            is_first || items <= most
        });
        let count = count.count();
        waiting.requests.drain(..count).collect()
    }

    /// Puts requests back to its front that a take had nothing for.
    pub(super) fn put_back(&self, requests: Vec<Request>) {
        let mut waiting = self.lock();
        requests.into_iter().rev().for_each(|request| waiting.requests.push_front(request));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::consumer::idle::Member;

    fn wish(member: Member, k: usize) -> Wish {
        let [k, batches] = [k, 1].map(|n| NonZeroUsize::new(n).unwrap());
        Wish { member, k, batches, ahead: false }
    }

    fn line(ks: &[usize]) -> (Line, Vec<Ticket>) {
        let line = Line::default();
        let wishes = (1..).zip(ks).map(|(member, k)| wish(member, *k));
        let tickets = wishes.map(|wish| line.ask(wish));
        let tickets = tickets.collect();
        (line, tickets)
    }

    fn members(requests: &[Request]) -> Vec<Member> {
        requests.iter().map(|request| request.wish.member).collect()
    }

    #[test]
    fn as_many_come_together_as_there_is_room_for_and_one_at_least() {
        let (line, _tickets) = line(&[5, 3, 2, 1, 9]);
        assert_eq!(members(&line.first(1)), [1]);
        assert_eq!(members(&line.first(5)), [2, 3]);
        assert_eq!(members(&line.first(9)), [4]);
        assert_eq!(members(&line.first(9)), [5]);
        assert!(line.first(9).is_empty());
    }

    #[test]
    fn what_is_asked_for_in_batches_counts_in_full() {
        let line = Line::default();
        let _two = line.ask(Wish { batches: NonZeroUsize::new(2).unwrap(), ..wish(1, 5) });
        let _other = line.ask(wish(2, 1));
        assert_eq!(members(&line.first(10)), [1]);
    }

    #[test]
    fn whoever_got_nothing_is_first_again() {
        let (line, _tickets) = line(&[1, 1, 1]);
        let mut asked = line.first(2);
        line.put_back(asked.split_off(1));
        assert_eq!(members(&line.first(9)), [2, 3]);
    }

    #[test]
    fn one_may_leave_until_a_take_is_for_it() {
        let (line, tickets) = line(&[1, 1, 1]);
        assert_eq!(members(&line.first(1)), [1]);
        assert!(!line.withdraw(tickets[0].number));
        assert!(line.withdraw(tickets[1].number));
        assert_eq!(members(&line.first(9)), [3]);
    }

    #[test]
    fn for_one_that_is_gone_nothing_is_taken() {
        let (line, mut tickets) = line(&[1, 1]);
        tickets.remove(0);
        assert_eq!(members(&line.first(9)), [2]);
    }
}
