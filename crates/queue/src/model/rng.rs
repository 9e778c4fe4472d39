//! A session's own random numbers, for choices that are to differ between sessions: its id is the seed.

use crate::model::session_id::SessionId;

/// SplitMix64. For spreading and jitter, not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The numbers of a session: ids differ, so the numbers do.
    pub(crate) fn of(session: SessionId) -> Rng {
        let (a, b) = session.0.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let mut rng = Rng(half(a));
        let first = rng.next();
        Rng(first ^ half(b))
    }

    /// The numbers of a seed. Equal seeds give equal numbers.
    pub(crate) fn seeded(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator of its own for some part of the session's work.
    pub(crate) fn split(&mut self) -> Rng {
        Rng(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// How many random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}
