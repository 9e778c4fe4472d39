//! Programs from a seed.
//!
//! Keys come from a small set, so that what one transaction does another one meets; each program stresses a few
//! kinds of calls, so that rare ones meet each other too.

use fdb_embedded::testing::{KeySelector, Range};

use crate::program::{Bytes, Call, Program, Step, TRANSACTIONS, Version};
use crate::rng::Rng;

/// What a program may contain next to reads, writes and commits.
#[derive(Debug, Clone, Copy)]
pub struct Flavour {
    /// Versionstamped operations.
    pub stamps: bool,
    /// Watches.
    pub watches: bool,
    /// Options, good and bad.
    pub options: bool,
    /// Keys and values around the limits, system keys.
    pub extremes: bool,
    /// Resets, cancels, timeouts, on_error, use after the commit.
    pub ends: bool,
    /// Reads that bytes limit.
    pub byte_limits: bool,
}

impl Flavour {
    fn of(rng: &mut Rng) -> Flavour {
        let mut coin = |n| rng.one_in(n);
        Flavour {
            stamps: coin(3),
            watches: coin(3),
            options: coin(3),
            extremes: coin(5),
            ends: coin(3),
            byte_limits: coin(3),
        }
    }
}

/// Makes the program of a seed.
pub fn program(seed: u64) -> Program {
    let mut generator = Generator { rng: Rng::new(seed), flavour: Flavour::of(&mut Rng::new(seed ^ 0xf1a)) };
    let rows =
        (0..generator.rng.below(9)).map(|_| (generator.normal_key(), generator.small_value())).collect();
    let length = 6 + generator.rng.below(30);
    let transactions = 1 + generator.rng.below(TRANSACTIONS);
    let mut steps: Vec<Step> = (0..length)
        .map(|_| Step { transaction: generator.rng.below(transactions), call: generator.call() })
        .collect();
    if steps.iter().any(|step| opens_system(&step.call)) {
        steps.retain(|step| leaves_system_alone(&step.call));
    }
    Program { seed, rows, steps }
}

/// The only system keys that a program with access to them may touch: what else is there belongs to the cluster.
const SYSTEM: (&[u8], &[u8]) = (b"\xff\x02/kvqueue/a", b"\xff\x02/kvqueue/b");

/// The one system key that programs may read, and conflict on, without access to the others.
const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";

fn opens_system(call: &Call) -> bool {
    matches!(call, Call::SetOption { code: 301 | 302, .. })
}

fn leaves_system_alone(call: &Call) -> bool {
    let normal = |key: &[u8]| key < b"\xff".as_slice();
    let ours = |key: &[u8]| SYSTEM.0 <= key && key <= SYSTEM.1;
    let special = |key: &[u8]| key >= b"\xff\xff".as_slice();
    let one = |key: &[u8]| normal(key) || ours(key) || special(key);
    let range = |begin: &[u8], end: &[u8]| {
        end <= b"\xff".as_slice() || (ours(begin) && ours(end)) || special(begin) || begin > end
    };
    match call {
        Call::Set { key, .. } | Call::Clear { key } | Call::Get { key, .. } => one(key),
        Call::Atomic { code, key, .. } => one(key) && (*code != 14 || normal(key)),
        Call::Watch { key } => one(key),
        Call::ClearRange { begin, end } => range(begin, end),
        Call::GetKey { .. } => false,
        Call::GetRange(r) => {
            r.begin.offset == 1 && r.end.offset == 1 && range(&r.begin.key, &r.end.key) && !r.end.or_equal
        }
        _ => true,
    }
}

/// The bytes of which short keys are made: prefixes and neighbours of each other.
const LETTERS: &[u8] = &[0, b'a', b'b', b'c', 0xfe];

struct Generator {
    rng: Rng,
    flavour: Flavour,
}

impl Generator {
    fn normal_key(&mut self) -> Bytes {
        let length = *self.rng.pick(&[0, 1, 1, 1, 2, 2, 3]);
        (0..length).map(|_| *self.rng.pick(LETTERS)).collect()
    }

    fn key(&mut self) -> Bytes {
        if self.flavour.stamps && self.rng.one_in(8) {
            let fill = *self.rng.pick(&[0u8, 0xff]);
            return [self.rng.pick(&[&b"a"[..], b"", b"b"]), &[fill; 10][..], &[0][..self.rng.below(2)]]
                .concat();
        }
        if self.flavour.extremes && self.rng.one_in(5) {
            return self.extreme_key();
        }
        self.normal_key()
    }

    fn extreme_key(&mut self) -> Bytes {
        match self.rng.below(12) {
            0 => vec![0xff],
            1 => vec![0xff, 0],
            2 => b"\xff\x02/kvqueue/a".to_vec(),
            3 => b"\xff\x02/kvqueue/b".to_vec(),
            4 => vec![0xff, 0xff],
            5 => vec![0xff, 0xff, 0],
            6 => b"\xff\xff/x".to_vec(),
            7 => vec![b'a'; 10_000],
            8 => vec![b'a'; 10_001],
            9 => vec![b'a'; 10_002],
            10 => vec![b'a'; 10_008 + self.rng.below(2)],
            _ => [&[0xff][..], &vec![b'a'; 29_999 + self.rng.below(3)]].concat(),
        }
    }

    fn value(&mut self) -> Bytes {
        if self.flavour.extremes && self.rng.one_in(12) {
            return vec![b'v'; 100_000 + self.rng.below(2)];
        }
        self.small_value()
    }

    fn small_value(&mut self) -> Bytes {
        if self.flavour.byte_limits && self.rng.one_in(2) {
            return vec![b'v'; self.rng.below(300)];
        }
        let length = self.rng.below(4);
        (0..length).map(|_| *self.rng.pick(&[0u8, 1, 255, 7])).collect()
    }

    fn selector(&mut self) -> KeySelector {
        let key = self.key();
        if self.rng.one_in(2) {
            return KeySelector { key, or_equal: false, offset: 1 };
        }
        let offset = i32::try_from(self.rng.below(7)).unwrap() - 3;
        KeySelector { key, or_equal: self.rng.one_in(2), offset }
    }

    fn range(&mut self) -> Range {
        let (mode, target_bytes, iteration) = if self.flavour.byte_limits {
            let mode = *self.rng.pick(&[-2, -1, -1, 0, 1, 1, 2, 3, 4, 5]);
            (mode, *self.rng.pick(&[0, 0, 1, 60, 200, -1, -2]), i32::try_from(self.rng.below(4)).unwrap())
        } else {
            (*self.rng.pick(&[-2, 0, 0, 0]), 0, 1)
        };
        Range {
            begin: self.selector(),
            end: self.selector(),
            limit: *self.rng.pick(&[100, 100, 100, 1, 1, 2, 3, 4, 0, -1, -2]),
            target_bytes,
            mode,
            iteration,
            snapshot: self.rng.one_in(4),
            reverse: self.rng.one_in(2),
        }
    }

    fn call(&mut self) -> Call {
        match self.rng.below(32) {
            0..=3 => Call::Get { key: self.key(), snapshot: self.rng.one_in(4) },
            4..=5 => Call::GetKey { selector: self.selector(), snapshot: self.rng.one_in(4) },
            6..=9 => Call::GetRange(Box::new(self.range())),
            10..=13 => Call::Set { key: self.key(), value: self.value() },
            14 => Call::Clear { key: self.key() },
            15 => self.clear_range(),
            16..=18 => self.atomic(),
            19 => self.conflict(),
            20 => Call::GetReadVersion,
            21..=22 => Call::Commit,
            23 if self.flavour.options && self.rng.one_in(2) => Call::ConflictingKeys,
            23 => Call::ApproximateSize,
            24 | 25 if self.flavour.stamps => self.stamp(),
            26 if self.flavour.watches => Call::Watch { key: self.key() },
            27 if self.flavour.options => self.option(),
            28 | 29 if self.flavour.ends => self.end(),
            30 => self.version(),
            _ => Call::Set { key: self.key(), value: self.value() },
        }
    }

    fn two_keys(&mut self) -> (Bytes, Bytes) {
        let (a, b) = (self.key(), self.key());
        if a <= b || self.rng.one_in(30) { (a, b) } else { (b, a) }
    }

    fn clear_range(&mut self) -> Call {
        let (begin, end) = self.two_keys();
        Call::ClearRange { begin, end }
    }

    fn conflict(&mut self) -> Call {
        let (begin, end) = if self.flavour.extremes && self.rng.one_in(3) {
            (METADATA_VERSION.to_vec(), [METADATA_VERSION, &[0][..self.rng.below(2)]].concat())
        } else {
            self.two_keys()
        };
        let kind = if self.rng.one_in(40) { 2 } else { u32::from(self.rng.one_in(2)) };
        Call::AddConflict { kind, begin, end }
    }

    fn atomic(&mut self) -> Call {
        let code = *self.rng.pick(&[2, 2, 6, 7, 8, 9, 12, 13, 16, 17, 20, 20, 20]);
        let code = if self.rng.one_in(60) { *self.rng.pick(&[0, 1, 3, 5, 10, 18, 19, 21, 99]) } else { code };
        Call::Atomic { code, key: self.key(), operand: self.value() }
    }

    fn stamp(&mut self) -> Call {
        let fill = *self.rng.pick(&[0u8, 0xff]);
        let prefix = self.rng.pick(&[&b"a"[..], b"", b"b", b"ab"]).to_vec();
        let mut place = i32::try_from(prefix.len()).unwrap();
        if self.rng.one_in(12) {
            place += self.rng.pick(&[1, 2, -100, 1_000_000, -1]);
        }
        let suffix = &[0u8][..self.rng.below(2)];
        let template = [&prefix[..], &[fill; 10], suffix, &place.to_le_bytes()].concat();
        if self.rng.one_in(30) {
            return Call::Atomic {
                code: 14 + u32::from(self.rng.one_in(2)),
                key: self.key(),
                operand: self.value(),
            };
        }
        if self.rng.one_in(2) {
            Call::Atomic { code: 14, key: template, operand: self.value() }
        } else {
            Call::Atomic { code: 15, key: self.key(), operand: template }
        }
    }

    fn option(&mut self) -> Call {
        let int = |n: i64| Some(n.to_le_bytes().to_vec());
        let (code, value) = match self.rng.below(16) {
            0 | 1 => (30, None),
            14 | 15 => (712, None),
            2 | 3 => (51, None),
            4 => (600, None),
            5 => (601, None),
            6 => (*self.rng.pick(&[301, 302]), None),
            7 => (1100, None),
            8 => (503, int(*self.rng.pick(&[32, 100, 200, 500, 31, 10_000_001]))),
            9 => (501, int(*self.rng.pick(&[-1, 0, 1, -2]))),
            10 => (500, int(*self.rng.pick(&[0, 1_000_000]))),
            11 => (701, None),
            12 => (*self.rng.pick(&[30, 51, 701]), Some(b"x".to_vec())),
            _ => (*self.rng.pick(&[9999, 702, 700, 303]), None),
        };
        Call::SetOption { code, value }
    }

    fn end(&mut self) -> Call {
        match self.rng.below(12) {
            0 | 1 => Call::Reset,
            2 => Call::Cancel,
            3..=5 => Call::OnError(*self.rng.pick(&[1020, 1007, 1021, 1009, 2000, 0, 1025, 1031, 1036])),
            6 | 7 => Call::CommittedVersion,
            8 if self.rng.one_in(8) => Call::TimeOut,
            9 | 10 => Call::EndHeld { index: self.rng.below(3), cancel: self.rng.one_in(2) },
            _ => Call::Commit,
        }
    }

    fn version(&mut self) -> Call {
        match self.rng.below(6) {
            0 => Call::Versionstamp,
            1 => Call::CommittedVersion,
            2 if self.rng.one_in(6) => Call::SetReadVersion(Version::Number(*self.rng.pick(&[0, -1, 1]))),
            _ => Call::SetReadVersion(Version::Of(self.rng.below(TRANSACTIONS))),
        }
    }
}
