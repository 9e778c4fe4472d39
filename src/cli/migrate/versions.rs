//! The target's versions have to be as far as the source's: stamps of items are versions, and a queue is in their order.

use std::time::{Duration, Instant};

use foundationdb::options::TransactionOption;

use super::{ends::End, ends::Ends, error::MigrateError, report::Report};

/// FoundationDB's key for this, which `fdbcli`'s `advanceversion` sets too.
const MIN_COMMIT_VERSION: &[u8] = b"\xff\xff/management/min_required_commit_version";

/// How far ahead of the source the target is put, in versions: a minute, in which the source may go on.
const LEAD: i64 = 60_000_000;

/// How long a cluster may take to recover.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do about versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Nothing,
    Advance(i64),
    Refuse(i64),
}

fn decide(from: i64, to: i64, may_advance: bool) -> Deed {
    let advance = from.saturating_add(LEAD);
    match (from <= to, may_advance) {
        (true, _) => Deed::Nothing,
        (false, true) => Deed::Advance(advance),
        (false, false) => Deed::Refuse(advance),
    }
}

/// Returns a version of the source's that the target has come to.
///
/// An embedded target is put ahead without being asked: it takes no time, and nobody notices but transactions that are under way.
pub(super) async fn ensure(ends: &Ends, may_advance: bool, report: &Report) -> Result<i64, MigrateError> {
    let (from, to) = (ends.from.version().await?, ends.to.version().await?);
    match decide(from, to, may_advance || ends.to.is_embedded()) {
        Deed::Nothing => {}
        Deed::Advance(version) => {
            report.note(format_args!(
                "the target's versions go on from {version}, to be ahead of the source's"
            ));
            advance(&ends.to, version).await?;
        }
        Deed::Refuse(advance) => return Err(MigrateError::Behind { from, to, advance }),
    }
    Ok(from)
}

/// Makes versions go on from `version`. As `fdbcli` does it: the answer to the commit may be lost in the recovery that it causes, so
/// versions themselves are asked.
async fn advance(end: &End, version: i64) -> Result<(), MigrateError> {
    let began = Instant::now();
    while end.version().await? < version {
        if began.elapsed() > PATIENCE {
            return Err(MigrateError::NotAdvanced(version));
        }
        end.transact(async |tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            if tr.get_read_version().await? < version {
                tr.set(MIN_COMMIT_VERSION, version.to_string().as_bytes());
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_lower_versions_is_advanced_or_refused() {
        assert_eq!(decide(5, 5, false), Deed::Nothing);
        assert_eq!(decide(5, 6, true), Deed::Nothing);
        assert_eq!(decide(6, 5, true), Deed::Advance(60_000_006));
        assert_eq!(decide(6, 5, false), Deed::Refuse(60_000_006));
        assert_eq!(decide(i64::MAX, 5, true), Deed::Advance(i64::MAX));
    }
}
