//! Errands: what a producer pushes, to which queue, and how.

use super::{
    payload::{Name, TAKEN},
    plan::{KEYS, Queue},
};
use crate::support::Random;

/// How items are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As they come, in many transactions. What is not acknowledged when the process dies has an unknown fate.
    Stream,
    /// All at once, under an idempotency key, and again until it is acknowledged.
    Operation,
    /// One, under a key that others use as well.
    Unique,
    /// The same; the key is taken for a time.
    UniqueFor,
    /// The same; it replaces another one that waits.
    Replace,
}

/// The items that a producer pushes.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) queue: usize,
    /// No two have the same.
    pub(super) number: u64,
    pub(super) lines: u64,
    pub(super) way: Way,
    /// Its items have a time to live.
    pub(super) expires: bool,
    /// The key of an item that is the only one of it for a time, or replaces others.
    pub(super) key: String,
    /// How long the key is taken at least, in ms; 0: until the item ends.
    pub(super) taken_ms: u64,
    /// Its items are refused from some time on.
    pub(super) may_be_refused: bool,
    pub(super) options: Vec<String>,
    /// The seed of its pace.
    pub(super) random: u64,
}

impl Errand {
    /// Any.
    pub(super) fn draw(random: &mut Random, queues: &[Queue], number: u64) -> Self {
        let queue = random.below(queues.len() as u64) as usize;
        let (way, lines) = match random.below(100) {
            0..=14 => (Way::Operation, 1 + random.below(40)),
            15..=29 => (Way::Unique, 1),
            _ => {
                let most = random.choose(&[20, 200, 600]);
                (Way::Stream, 1 + random.below(most))
            }
        };
        let mut options = vec![];
        // The history tells how many of them have expired, by their attribute.
        let expires = queues[queue].history && random.chance(600);
        let delay = if random.chance(200) { 1 + random.below(300) } else { 0 };
        if delay > 0 {
            options.extend(["--delay".to_owned(), format!("{delay}ms")]);
        }
        if expires {
            // An item that would expire before it is ready is refused.
            options.extend(["--ttl".to_owned(), format!("{}ms", delay + 20 + random.below(1_000))]);
        }
        if expires || random.chance(300) {
            options.extend(["--attr".to_owned(), format!("errand={number}")]);
        }
        options.extend(Self::of_kind(random, &queues[queue]));
        match way {
            Way::Stream | Way::UniqueFor | Way::Replace => {}
            Way::Operation => options.extend(["--idempotency-key".to_owned(), format!("errand {number}")]),
            Way::Unique => options.extend(["--unique".to_owned(), format!("key {}", random.below(3))]),
        }
        Self { expires, options, ..Self::of((queue, number), way, lines, random) }
    }

    /// An errand without options.
    fn of((queue, number): (usize, u64), way: Way, lines: u64, random: &mut Random) -> Self {
        Self {
            queue,
            number,
            lines,
            way,
            expires: false,
            key: String::new(),
            taken_ms: 0,
            may_be_refused: false,
            options: Vec::new(),
            random: random.below(u64::MAX),
        }
    }

    /// Items under a unique key that is taken for a time, or items that replace others of the same key, for a queue and its place.
    pub(super) fn of_key(
        random: &mut Random,
        (place, queue): (usize, &Queue),
        number: u64,
        (way, key): (Way, u64),
    ) -> Self {
        let mut options = vec!["--attr".to_owned(), format!("errand={number}"), "--unique".to_owned()];
        let (key, taken_ms) = if way == Way::Replace {
            let key = format!("newest {key}");
            options.extend([key.clone(), "--replace".to_owned()]);
            // Until it is due, it can be replaced.
            if random.chance(700) {
                options.extend(["--delay".to_owned(), format!("{}ms", 200 + random.below(800))]);
            }
            (key, 0)
        } else {
            let (key, time) = (format!("{TAKEN}{key}"), 1_000 + random.below(2_000));
            options.extend([key.clone(), "--unique-for".to_owned(), format!("{time}ms")]);
            (key, time)
        };
        options.extend(Self::of_kind(random, queue));
        Self { key, taken_ms, options, ..Self::of((place, number), way, 1, random) }
    }

    /// Members of a batch, for a queue and its place. With a deadline, pushes are refused from then on.
    pub(super) fn of_batch(
        random: &mut Random,
        (place, queue): (usize, &Queue),
        number: u64,
        batch: &str,
        has_deadline: bool,
    ) -> Self {
        let way = if has_deadline { Way::Stream } else { Way::Operation };
        let mut options =
            vec!["--batch".to_owned(), batch.to_owned(), "--attr".to_owned(), format!("errand={number}")];
        options.extend(Self::of_kind(random, queue));
        if way == Way::Operation {
            options.extend(["--idempotency-key".to_owned(), format!("errand {number}")]);
        }
        let lines = random.below(30);
        Self { may_be_refused: has_deadline, options, ..Self::of((place, number), way, lines, random) }
    }

    /// What items of a queue of this kind need.
    fn of_kind(random: &mut Random, queue: &Queue) -> Option<String> {
        match queue.kind {
            "priority" => Some(format!("--priority={}", random.below(9))),
            "keyed" => Some(format!("--key={}", random.choose(&KEYS))),
            _ => None,
        }
    }

    /// Whether it waits until no other producer pushes under its key, so that it is known which item is there. That is so for one of the keys.
    pub(super) fn is_alone(&self) -> bool {
        self.key.ends_with('0')
    }

    /// Its items, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> + use<> {
        let (queue, producer) = (self.queue, self.number);
        (0..self.lines).map(move |place| Name { queue, producer, place })
    }
}
