//! Admission: which transactions are accepted while disk space is short.
//!
//! | level | condition | accepted |
//! |---|---|---|
//! | plenty | | everything |
//! | low | less than the directory's limit is free ([`crate::space`]) | transactions that clear or
//! replace a row or remove as much as they add; single small writes |
//! | full | the data file can grow only by its reserve | transactions that remove about as much as
//! they add |
//! | none | the disk was too full to open the database | nothing; reads work |
//!
//! FoundationDB's API does not tell the purpose of a transaction, so its mutations and the rows
//! they affect decide. A push adds rows and removes none. A fetch moves rows. An acknowledgement
//! clears rows, or replaces the record of a lease. Counters changed by atomic operations do not
//! count as replaced rows, nor do values with a versionstamp, which record the outcome of a push.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::atomic::AtomicOp;
use super::mutation::Mutation;
use super::read_views::PinLimits;
use super::storage::{DiskSpace, FreeSpace, Storage, StorageError};
use crate::limits::{MAX_BATCH_BYTES, MAX_PINNED_BYTES, MAX_PINNED_BYTES_FULL};
use crate::range_set::RangeSet;
use crate::rows::Direction;
use crate::space::{self, HostSpace, Origin, Space};

/// How often the file system's free space is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// With less free space than this, in bytes, the file system is checked before each batch.
const CHECK_EACH_BATCH_BELOW: u64 = 64 << 20;

/// A shortage is over, for reports, when there was space for so long. A disk that other programs
/// fill and empty would otherwise be reported all the time.
const CALM: Duration = Duration::from_secs(10);

/// With this much free space, in bytes, a read-only database is opened again for writing.
const REOPEN_ABOVE: u64 = 4 << 20;

/// A transaction is small if it has one mutation of at most this many bytes, for example a pause.
const SMALL_MUTATION: usize = 256;

/// On a full disk, bytes that a transaction which clears rows may add beyond what it removes:
/// counters, the reason of a failure.
const ALLOWED_GROWTH: u64 = 16 << 10;

/// The effect of a transaction on the size of the database.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SizeEffect {
    /// Bytes of rows that it writes.
    added: u64,
    /// Bytes of rows that it clears or replaces, counted up to `added`.
    removed: u64,
    /// It clears an existing row.
    clears: bool,
    /// It sets an existing row.
    replaces: bool,
    /// It is a single small mutation.
    is_small: bool,
}

impl SizeEffect {
    fn net(&self) -> u64 {
        self.added.saturating_sub(self.removed)
    }
}

/// How short disk space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpaceLevel {
    Plenty,
    Low,
    /// The data file can grow only by its reserve.
    Full {
        disk: DiskSpace,
        is_low: bool,
    },
    /// Writes stay in memory.
    None,
}

/// Decides which transactions are accepted. Belongs to the committer.
#[derive(Debug)]
pub struct Admission {
    directory: PathBuf,
    checked: Option<Instant>,
    /// Free bytes of the file system at the last check.
    free: u64,
    /// The directory's limit of free bytes.
    min_free: u64,
    /// The source of that limit.
    origin: Origin,
    /// Free space is checked before each batch.
    is_near: bool,
    level: SpaceLevel,
    /// The last reported shortage.
    reported: &'static str,
    /// Since when there has been space again after the reported shortage.
    calm_since: Option<Instant>,
    /// The host's figures for other parts of this process.
    hosted: Arc<HostSpace>,
}

impl Admission {
    /// For the database in this directory.
    pub fn new(directory: PathBuf) -> Admission {
        let (free, min_free, is_near) = (u64::MAX, 0, false);
        let (level, reported, hosted) = (SpaceLevel::Plenty, "", HostSpace::begin(&directory));
        Admission {
            directory,
            checked: None,
            free,
            min_free,
            origin: Origin::Default,
            is_near,
            level,
            reported,
            calm_since: None,
            hosted,
        }
    }

    /// Measures the free space before commits of `bytes` bytes.
    pub fn begin(&mut self, storage: &Storage, bytes: usize, now: Instant) {
        let is_time =
            self.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= CHECK_INTERVAL);
        let mut is_new = false;
        if is_time {
            self.checked = Some(now);
            is_new = self.check_free_space();
        } else if self.is_near
            && let Ok((free, _)) = space::free_and_total(&self.directory)
        {
            (self.free, is_new) = (free, true);
        }
        if storage.is_read_only() {
            self.level = SpaceLevel::None;
            self.hosted.set_read_only();
            return;
        }
        let disk = storage.reserve_space(bytes as u64, FreeSpace { bytes: self.free, is_new }, is_time);
        self.is_near = disk.unused < CHECK_EACH_BATCH_BELOW;
        // Free space inside the data file is as good as free space of the disk.
        let is_low = self.min_free.saturating_sub(self.free) > disk.reusable;
        self.level = match (disk.is_short, is_low) {
            (true, is_low) => SpaceLevel::Full { disk, is_low },
            (false, true) => SpaceLevel::Low,
            (false, false) => SpaceLevel::Plenty,
        };
        let reported = match self.level {
            SpaceLevel::Full { disk, .. } if disk.available < disk.reserve => "its disk is full",
            SpaceLevel::Low | SpaceLevel::Full { is_low: true, .. } => {
                "less than min-free-space is free on its disk"
            }
            SpaceLevel::Plenty | SpaceLevel::Full { .. } | SpaceLevel::None => "",
        };
        let is_full = matches!(self.level, SpaceLevel::Full { disk, .. } if disk.available < disk.reserve);
        self.hosted.set(disk.reusable, is_full, self.level != SpaceLevel::Plenty);
        self.note_shortage(reported, now);
    }

    /// Reports a shortage at once, and its end when it has been over for [`CALM`].
    fn note_shortage(&mut self, shortage: &'static str, now: Instant) {
        if shortage == self.reported {
            self.calm_since = None;
            return;
        }
        if shortage.is_empty() {
            let since = *self.calm_since.get_or_insert(now);
            if now.saturating_duration_since(since) < CALM {
                return;
            }
        }
        self.calm_since = None;
        self.reported = shortage;
        self.report();
    }

    /// Measures the free space and reads its limit. `false` if that fails.
    #[cold]
    fn check_free_space(&mut self) -> bool {
        // A removed directory has no file system. The committer detects that itself.
        let Ok(Space { free, min_free, origin, .. }) = Space::of(&self.directory) else { return false };
        (self.free, self.min_free) = (free, min_free);
        if origin != std::mem::replace(&mut self.origin, origin)
            && let Some(problem) = origin.problem(&self.directory)
        {
            crate::reports::report(&problem);
        }
        true
    }

    /// The most bytes of transactions in a batch. On a full disk, checkpoints have to come in
    /// between.
    pub fn max_batch(&self) -> usize {
        match self.level {
            SpaceLevel::Full { disk, .. } => usize::try_from(disk.available / 8).unwrap_or(MAX_BATCH_BYTES),
            _ => MAX_BATCH_BYTES,
        }
        .min(MAX_BATCH_BYTES)
    }

    /// True if a read-only database can be opened again for writing.
    pub fn may_reopen(&self) -> bool {
        self.level == SpaceLevel::None && self.free >= REOPEN_ABOVE
    }

    /// True while the disk has no space for the data file.
    pub fn is_full(&self) -> bool {
        matches!(self.level, SpaceLevel::Full { .. })
    }

    /// How much may be written while snapshots pin pages: free space takes precedence.
    pub fn pin_limits(&self) -> PinLimits {
        match self.level {
            SpaceLevel::Plenty | SpaceLevel::None => PinLimits::default(),
            // A backup may pin at most the free space that the disk is to keep.
            SpaceLevel::Low => {
                PinLimits { pinned_view: self.min_free.max(MAX_PINNED_BYTES), ..PinLimits::default() }
            }
            SpaceLevel::Full { .. } => {
                PinLimits { transaction: MAX_PINNED_BYTES_FULL, pinned_view: MAX_PINNED_BYTES_FULL }
            }
        }
    }

    #[cold]
    fn report(&self) {
        let directory = self.directory.display();
        crate::reports::report(&match self.reported {
            "" => format!("{directory}: there is space on its disk again; all transactions are accepted"),
            why => format!(
                "{directory}: {why}; transactions that add data are refused (error 1042) until there is more space, all others go on"
            ),
        });
    }

    /// Whether to accept a transaction.
    pub fn admits(&mut self, storage: &Storage, mutations: &[Mutation]) -> Result<bool, StorageError> {
        if self.level == SpaceLevel::Plenty || mutations.is_empty() {
            return Ok(true);
        }
        self.admits_when_short(storage, mutations)
    }

    #[cold]
    fn admits_when_short(&mut self, storage: &Storage, mutations: &[Mutation]) -> Result<bool, StorageError> {
        if self.level == SpaceLevel::None {
            return Ok(false);
        }
        let effect = storage.read_newest(|state| size_effect(state, mutations))?;
        let is_move = effect.net() == 0 || effect.clears || effect.replaces || effect.is_small;
        let SpaceLevel::Full { disk, is_low } = &mut self.level else { return Ok(is_move) };
        let cost = Storage::space_cost(mutations.iter().map(Mutation::payload_len).sum::<usize>() as u64);
        // A transaction that moves many rows needs space before it frees some.
        let is_light = effect.added <= ALLOWED_GROWTH || effect.added <= disk.available;
        let frees = match effect.net() {
            0 => is_light,
            net => (effect.clears || effect.replaces) && net <= ALLOWED_GROWTH,
        };
        let least = disk.reserve / 2;
        let has_room = !*is_low && disk.available >= disk.reserve + cost;
        // A transaction that frees space is accepted whatever the estimate says: the estimate is
        // low, and nothing else brings space back.
        let is_taken = frees || has_room || (is_move && disk.available >= least + cost);
        if is_taken {
            disk.available = disk.available.saturating_sub(cost);
            storage.charge_space(cost);
        }
        Ok(is_taken)
    }
}

/// Sizes of rows in a state of the database.
pub trait RowSizes {
    /// Bytes of a key's row, if it exists.
    fn row_len(&self, key: &[u8]) -> Result<Option<u64>, StorageError>;
    /// Visits the size of each row of `[begin, end)`.
    fn each_len(
        &self,
        begin: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), StorageError>;
}

impl RowSizes for super::storage::versioned_reader::VersionedReader<'_> {
    fn row_len(&self, key: &[u8]) -> Result<Option<u64>, StorageError> {
        Ok(self.get(key)?.map(|value| (key.len() + value.len()) as u64))
    }

    fn each_len(
        &self,
        begin: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let mut visit = |key: &[u8], value: &[u8]| visit((key.len() + value.len()) as u64);
        self.scan(begin, end, Direction::Forward, &mut visit).map(drop)
    }
}

fn size_effect(state: &impl RowSizes, mutations: &[Mutation]) -> Result<SizeEffect, StorageError> {
    let payload = |mutation: &Mutation| mutation.payload_len();
    let is_small = matches!(mutations, [one] if payload(one) <= SMALL_MUTATION);
    let mut effect = SizeEffect { is_small, ..SizeEffect::default() };
    let (mut cleared, mut written) = (RangeSet::default(), HashSet::new());
    for mutation in mutations {
        let (key, len, grows) = match mutation {
            Mutation::ClearRange { begin, end } => {
                cleared.insert(begin.clone(), end.clone());
                continue;
            }
            // A stamped key is always new.
            Mutation::StampedKey { key, value, .. } => {
                effect.added += (key.len() + value.len()) as u64;
                continue;
            }
            Mutation::Set { key, value } | Mutation::StampedValue { key, value, .. } => {
                (key, value.len(), false)
            }
            Mutation::Atomic { op, key, operand } => (key, operand.len(), *op == AtomicOp::AppendIfFits),
        };
        let len = (key.len() + len) as u64;
        effect.added += len;
        // Cleared rows are counted below.
        if cleared.contains(key) || !written.insert(key.as_slice()) {
            continue;
        }
        let Some(old) = state.row_len(key)? else { continue };
        let is_plain = matches!(mutation, Mutation::Set { .. });
        effect.replaces |= is_plain;
        // An atomic operation keeps a value's length, or grows it. A counter counts as unchanged.
        effect.removed += match mutation {
            Mutation::Atomic { .. } if grows => 0,
            Mutation::Atomic { .. } => len,
            _ => old,
        };
    }
    for (begin, end) in cleared.iter() {
        let mut visit = |len| {
            effect.removed += len;
            effect.clears = true;
            let is_enough = effect.removed >= effect.added;
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        state.each_len(begin, end, &mut visit)?;
        if effect.clears && effect.removed >= effect.added {
            break;
        }
    }
    Ok(effect)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn pinned_views_are_limited_only_while_space_is_short() {
        let mut admission = Admission::new(PathBuf::from("sim"));
        assert_eq!(admission.pin_limits().pinned_view, u64::MAX);
        admission.level = SpaceLevel::Low;
        admission.min_free = 1 << 30;
        assert_eq!(admission.pin_limits(), PinLimits { pinned_view: 1 << 30, ..PinLimits::default() });
        let disk = DiskSpace { is_short: true, reusable: 0, unused: 0, available: 0, reserve: 0 };
        admission.level = SpaceLevel::Full { disk, is_low: false };
        assert_eq!(admission.pin_limits().pinned_view, MAX_PINNED_BYTES_FULL);
    }

    #[test]
    fn end_of_a_shortage_is_reported_when_it_has_lasted() {
        let mut admission = Admission::new(PathBuf::from("sim"));
        let start = baton::now();
        let mut reported = Vec::new();
        // Second by second: a disk on the edge, one that has space for a while, and then for good.
        for (second, is_short) in
            (0..60).map(|second| (second, second < 12 && second % 2 == 0 || second == 20))
        {
            let before = admission.reported;
            let shortage = if is_short { "its disk is full" } else { "" };
            admission.note_shortage(shortage, start + Duration::from_secs(second));
            if admission.reported != before {
                reported.push(second);
            }
        }
        assert_eq!(
            reported,
            [0, 31],
            "full from the first second on, over ten seconds after the last shortage"
        );
    }

    struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

    impl RowSizes for Model {
        fn row_len(&self, key: &[u8]) -> Result<Option<u64>, StorageError> {
            Ok(self.0.get(key).map(|value| (key.len() + value.len()) as u64))
        }

        fn each_len(
            &self,
            begin: &[u8],
            end: &[u8],
            visit: &mut dyn FnMut(u64) -> ControlFlow<()>,
        ) -> Result<(), StorageError> {
            for (key, value) in self.0.range(begin.to_vec()..end.to_vec()) {
                if visit((key.len() + value.len()) as u64).is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    fn set(key: &[u8], len: usize) -> Mutation {
        Mutation::Set { key: key.to_vec(), value: vec![1; len] }
    }

    fn clear(begin: &[u8], end: &[u8]) -> Mutation {
        Mutation::ClearRange { begin: begin.to_vec(), end: end.to_vec() }
    }

    fn add(key: &[u8]) -> Mutation {
        Mutation::Atomic { op: AtomicOp::Add, key: key.to_vec(), operand: vec![0; 8] }
    }

    fn stamped_key(len: usize) -> Mutation {
        Mutation::StampedKey { key: vec![0; 24], offset: 4, value: vec![1; len] }
    }

    fn token(key: &[u8]) -> Mutation {
        Mutation::StampedValue { key: key.to_vec(), value: vec![0; 20], offset: 8 }
    }

    /// Ten items of 100 bytes, a lease, a token, counters.
    fn weigh_here(mutations: &[Mutation]) -> SizeEffect {
        let items = (0..10).map(|item| (vec![b'v', item], vec![0; 100]));
        let others = [
            (b"lease".to_vec(), vec![0; 40]),
            (b"npop".to_vec(), vec![0; 8]),
            (b"token".to_vec(), vec![0; 20]),
        ];
        size_effect(&Model(items.chain(others).collect()), mutations).unwrap()
    }

    fn is_move(mutations: &[Mutation]) -> bool {
        let effect = weigh_here(mutations);
        effect.net() == 0 || effect.clears || effect.replaces || effect.is_small
    }

    #[test]
    fn a_push_counts_as_only_adding_data() {
        for push in [
            vec![add(b"npush"), stamped_key(10)],
            vec![add(b"npop"), stamped_key(10), token(b"token")],
            vec![set(b"vnew", 3), set(b"vnew2", 3)],
            vec![set(b"vnew", 3), token(b"token")],
            // Clearing an absent row frees nothing.
            vec![clear(b"w", b"x"), set(b"vnew", 300)],
            vec![set(b"big", 300)],
        ] {
            assert!(!is_move(&push), "{push:?}");
        }
    }

    #[test]
    fn fetches_acknowledgements_and_small_writes_do_not_count_as_only_adding() {
        for moves in [
            vec![clear(b"v", b"v\x0a"), set(b"new lease", 1100), add(b"npop")],
            vec![clear(b"lease", b"lease\0"), add(b"ndone")],
            vec![set(b"lease", 41), set(b"dead", 100)],
            vec![set(b"pause", 10)],
            vec![clear(b"v", b"w")],
        ] {
            assert!(is_move(&moves), "{moves:?}");
        }
    }

    #[test]
    fn rows_are_counted_once_and_no_more_are_read_than_needed() {
        let moved = weigh_here(&[clear(b"v", b"v\x02"), set(b"lease 2", 200)]);
        assert_eq!((moved.added, moved.removed, moved.clears), (207, 204, true));
        // The old value of a row counts once, even if it is cleared and then set twice.
        let again = weigh_here(&[clear(b"v\x01", b"v\x02"), set(b"v\x01", 1_000), set(b"v\x01", 1_000)]);
        assert_eq!((again.added, again.removed, again.net()), (2_004, 102, 1_902));
        let all = weigh_here(&[clear(b"v", b"w"), set(b"x", 50)]);
        assert_eq!((all.removed, all.net()), (102, 0), "the first row is enough");
        assert_eq!(weigh_here(&[add(b"npop")]).net(), 0, "a counter stays as long as it is");
    }
}
