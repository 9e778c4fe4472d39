//! Whether the committer looks out for the next commit before it sleeps.
//!
//! A client that commits one transaction after the other is back within microseconds, and waking a
//! thread takes as long. With commits that come once a millisecond, looking out finds none, and
//! takes a fifth of a core. So the committer looks out only while that finds commits.

/// The share of look-outs that found a commit has this denominator.
const WHOLE: u32 = 256;

/// Below this share, looking out does not pay.
const LEAST: u32 = WHOLE / 4;

/// Of so many batches after which it would not pay, one looks out, to notice when it does.
const PROBE_EVERY: u32 = 16;

/// Decides whether to look out, by the outcomes so far.
#[derive(Debug)]
pub struct LookOut {
    /// The moving share of look-outs that found a commit, in parts of [`WHOLE`].
    share: u32,
    /// Batches since the last look-out.
    skipped: u32,
}

impl LookOut {
    /// Looks out at first.
    pub fn new() -> LookOut {
        LookOut { share: WHOLE, skipped: 0 }
    }

    /// Whether to look out after this batch.
    pub fn is_worth_it(&mut self) -> bool {
        self.skipped += 1;
        let looks = self.share >= LEAST || self.skipped >= PROBE_EVERY;
        if looks {
            self.skipped = 0;
        }
        looks
    }

    /// Records the outcome of a look-out.
    pub fn note(&mut self, found: bool) {
        self.share = self.share - self.share / 8 + if found { WHOLE / 8 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of look-outs after `batches` batches, each with this outcome.
    fn looks(look_out: &mut LookOut, batches: u32, found: bool) -> u32 {
        (0..batches)
            .map(|_| {
                let looks = look_out.is_worth_it();
                if looks {
                    look_out.note(found);
                }
                u32::from(looks)
            })
            .sum()
    }

    #[test]
    fn committer_looks_out_while_that_finds_commits() {
        let mut look_out = LookOut::new();
        assert_eq!(looks(&mut look_out, 1_000, true), 1_000);
        let wasted = looks(&mut look_out, 1_000, false);
        assert!((1_000 / PROBE_EVERY..100).contains(&wasted), "{wasted}");
        // Commits follow each other again: three look-outs show it.
        let found = looks(&mut look_out, 1_000, true);
        assert!(found >= 1_000 - 4 * PROBE_EVERY, "{found}");
    }

    #[test]
    fn one_commit_in_two_is_enough() {
        let mut look_out = LookOut::new();
        let looks: u32 = (0..500).map(|n| looks(&mut look_out, 1, n % 2 == 0)).sum();
        assert_eq!(looks, 500);
    }
}
