//! Parses a plan of faults from text, so that programs in any language can set one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::Faults;

/// The environment variable, read when a directory is opened, for example
/// `seed=42,unknown=0.01,conflict=0.05`.
pub const VARIABLE: &str = "FDB_EMBEDDED_FAULTS";

/// The default delay of a slow commit in milliseconds.
const SLOW_MS: u64 = 100;

/// An error in the text of a plan.
#[derive(Debug, thiserror::Error)]
pub enum FaultPlanError {
    /// A part has no `=`, or an unknown name.
    #[error("{VARIABLE}: {part:?} is not NAME=VALUE with one of the names {NAMES}")]
    Name {
        /// The part.
        part: String,
    },
    /// A value is not a number of its kind.
    #[error("{VARIABLE}: {part:?} does not give {kind}")]
    Value {
        /// The part.
        part: String,
        /// The expected kind of value.
        kind: &'static str,
    },
    /// The probabilities for commits, or for reads, add up to more than 1.
    #[error("{VARIABLE}: the probabilities of {of} add up to more than 1")]
    TooMuch {
        /// "commits" or "reads".
        of: &'static str,
    },
}

const NAMES: &str = "seed, unknown, unknown-committed, unknown-not-committed, conflict, too-old, slow, slow-ms, disk-failure, flush-failure, \
                     read-too-old, future-version, process-behind, read-failure";

impl Faults {
    /// The plan in the environment, and the text that repeats it; `None` if there is none.
    pub(crate) fn from_environment() -> Result<Option<(Faults, String)>, FaultPlanError> {
        let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
        Faults::from_text(&text.to_string_lossy()).map(Some)
    }

    fn from_text(text: &str) -> Result<(Faults, String), FaultPlanError> {
        let parts: Vec<_> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        let value = |name: &str| {
            let found = parts
                .iter()
                .rev()
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('=').map(|v| (*part, v)));
            found.map(|(part, value)| (part, value.trim()))
        };
        let number = |name: &str, kind| {
            let parse = |(part, text): (&str, &str)| {
                text.parse::<u64>().map_err(|_| FaultPlanError::Value { part: part.to_owned(), kind })
            };
            value(name).map(parse).transpose()
        };
        let given = number("seed", "a whole number")?;
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let delay = Duration::from_millis(number("slow-ms", "milliseconds")?.unwrap_or(SLOW_MS));
        let mut faults = Faults::seeded(seed);
        for part in &parts {
            faults = faults.and(part, delay)?;
        }
        faults.check()?;
        let again = if given.is_some() { text.to_owned() } else { format!("seed={seed},{text}") };
        Ok((faults, again))
    }

    fn and(self, part: &str, delay: Duration) -> Result<Faults, FaultPlanError> {
        let unknown = || FaultPlanError::Name { part: part.to_owned() };
        let (name, value) = part.split_once('=').ok_or_else(unknown)?;
        if matches!(name, "seed" | "slow-ms") {
            return Ok(self);
        }
        let p = value.trim().parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p));
        let kind = "a probability from 0 to 1";
        let p = p.ok_or_else(|| FaultPlanError::Value { part: part.to_owned(), kind });
        Ok(match name {
            "unknown" => p.map(|p| self.unknown_committed(p / 2.0).unknown_not_committed(p / 2.0))?,
            "unknown-committed" => self.unknown_committed(p?),
            "unknown-not-committed" => self.unknown_not_committed(p?),
            "conflict" => self.conflict(p?),
            "too-old" => self.too_old(p?),
            "slow" => self.slow(p?, delay),
            "disk-failure" => self.disk_failure(p?),
            "flush-failure" => self.flush_failure(p?),
            "read-too-old" => self.read_too_old(p?),
            "future-version" => self.future_version(p?),
            "process-behind" => self.process_behind(p?),
            "read-failure" => self.read_failure(p?),
            _ => return Err(unknown()),
        })
    }

    fn check(&self) -> Result<(), FaultPlanError> {
        let of_commits = self.commits.odds.iter().map(|(_, p)| p).sum::<f64>();
        let of_reads = self.reads.odds.iter().map(|(_, p)| p).sum::<f64>();
        // Sums of decimal fractions are slightly off.
        match (of_commits > 1.0 + 1e-9, of_reads > 1.0 + 1e-9) {
            (true, _) => Err(FaultPlanError::TooMuch { of: "commits" }),
            (_, true) => Err(FaultPlanError::TooMuch { of: "reads" }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fault;
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_text_gives_the_plan_that_the_methods_give() {
        let (mut read, again) =
            Faults::from_text("seed=9, unknown=0.2,conflict=0.1,slow=0.3,slow-ms=7,future-version=0.5,")
                .unwrap();
        let mut plan = Faults::seeded(9)
            .unknown_committed(0.1)
            .unknown_not_committed(0.1)
            .conflict(0.1)
            .slow(0.3, Duration::from_millis(7))
            .future_version(0.5);
        let faults: Vec<_> = (0..200).map(|_| (read.next(), read.next_read())).collect();
        assert_eq!(faults, (0..200).map(|_| (plan.next(), plan.next_read())).collect::<Vec<_>>());
        assert!(faults.iter().any(|(fault, _)| *fault == Fault::Slow(Duration::from_millis(7))));
        assert!(faults.iter().any(|(_, code)| *code == Some(Code::FUTURE_VERSION)));
        assert!(again.starts_with("seed=9,"));
    }

    #[test]
    fn a_plan_without_seed_reports_the_drawn_seed() {
        let (mut first, again) = Faults::from_text("conflict=0.5").unwrap();
        let (mut second, _) = Faults::from_text(&again).unwrap();
        assert!((0..100).all(|_| first.next() == second.next()), "{again}");
    }

    #[test]
    fn bad_text_names_the_bad_part() {
        let error = |text: &str| Faults::from_text(text).unwrap_err().to_string();
        for (text, part) in [
            ("seed=1,conflicts=0.1", "\"conflicts=0.1\""),
            ("conflict", "\"conflict\""),
            ("conflict=2", "\"conflict=2\" does not give a probability from 0 to 1"),
            ("conflict=NaN", "\"conflict=NaN\""),
            ("unknown=x", "\"unknown=x\""),
            ("seed=-1", "\"seed=-1\" does not give a whole number"),
            ("slow=0.1,slow-ms=1.5", "\"slow-ms=1.5\" does not give milliseconds"),
            ("conflict=0.6,unknown=0.6", "commits add up"),
            ("read-failure=0.6,future-version=0.6", "reads add up"),
        ] {
            assert!(error(text).contains(part), "{}", error(text));
        }
    }
}
