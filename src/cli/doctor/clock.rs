//! Compares this machine's clock with the database's. Scheduled items become ready by the clock of
//! the daemon that sweeps.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::findings::Findings;

const ABOUT: &str = "clock";

/// How far clocks may lie apart.
const TOLERANCE: Duration = Duration::from_secs(10);

/// How many seconds more or less than time itself versions may have gone on. The rows have whole seconds.
const JUMP: f64 = 5.0;

/// Versions of a second.
const PER_SECOND: f64 = 1e6;

const ADVICE: &str = "set it right, and have it kept right by NTP: delayed items and schedules come at their time by this clock";

/// A row of a cluster's time keeper: what version it was at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) time: i64,
    pub(super) version: i64,
}

/// Of a directory it is known when it was last written.
pub(super) fn directory(path: &Path, findings: &mut Findings) {
    let written = |name| fs::metadata(path.join(name)).and_then(|metadata| metadata.modified()).ok();
    // A directory without data says nothing of the time.
    let Some(last) = ["data.redb", "log"].into_iter().filter_map(written).max() else { return };
    judge_written(last, SystemTime::now(), findings);
}

fn judge_written(last: SystemTime, now: SystemTime, findings: &mut Findings) {
    match last.duration_since(now) {
        Ok(ahead) if ahead > TOLERANCE => {
            let text =
                format!("the data was last written {} s after now: this clock was set back", ahead.as_secs());
            findings.problem(ABOUT, text, ADVICE);
        }
        _ => findings.fine(ABOUT, "the data was last written before now"),
    }
}

/// Of a cluster it is known what time it is there, and how versions went lately. Rows in their order.
pub(super) fn cluster(rows: &[Moment], version: i64, findings: &mut Findings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    judge_cluster(rows, version, now.as_secs_f64(), findings);
}

#[expect(clippy::cast_precision_loss, reason = "versions of a day, in seconds, are well below 2^53")]
fn judge_cluster(rows: &[Moment], version: i64, now: f64, findings: &mut Findings) {
    let Some(last) = rows.last() else {
        // A cluster notes its time every ten seconds: this one is very young.
        return;
    };
    let there = last.time as f64 + (version - last.version) as f64 / PER_SECOND;
    let apart = now - there;
    if apart.abs() > TOLERANCE.as_secs_f64() {
        let side = if apart > 0.0 { "ahead of" } else { "behind" };
        findings.problem(ABOUT, format!("{:.0} s {side} the cluster's", apart.abs()), ADVICE);
    } else {
        findings.fine(ABOUT, format!("within {} s of the cluster's", TOLERANCE.as_secs()));
    }
    let first = rows[0];
    let (seconds, versions) = ((last.time - first.time) as f64, (last.version - first.version) as f64);
    if (versions / PER_SECOND - seconds).abs() > JUMP {
        let text = format!("versions went on by {:.0} s in the last {seconds:.0} s", versions / PER_SECOND);
        findings.note(
            ABOUT,
            text,
            "a cluster that recovers lets them jump, and leases wait for it; look why it did",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(judge: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        judge(&mut findings);
        findings.lines()
    }

    #[test]
    fn data_from_the_future_is_a_problem() {
        let now = SystemTime::now();
        insta::assert_snapshot!(lines(|it| judge_written(now + TOLERANCE, now, it)), @"clock     fine     the data was last written before now");
        insta::assert_snapshot!(lines(|it| judge_written(now + Duration::from_secs(3600), now, it)), @"clock     PROBLEM  the data was last written 3600 s after now: this clock was set back; set it right, and have it kept right by NTP: delayed items and schedules come at their time by this clock");
    }

    #[test]
    fn a_clock_that_differs_from_the_clusters_is_a_problem() {
        let rows = [Moment { time: 1_000, version: 0 }, Moment { time: 1_060, version: 60_000_000 }];
        let judge = |version, now| lines(|it| judge_cluster(&rows, version, now, it));
        insta::assert_snapshot!(judge(65_000_000, 1_066.0), @"clock     fine     within 10 s of the cluster's");
        insta::assert_snapshot!(judge(65_000_000, 1_165.0), @"clock     PROBLEM  100 s ahead of the cluster's; set it right, and have it kept right by NTP: delayed items and schedules come at their time by this clock");
        insta::assert_snapshot!(judge(65_000_000, 965.0), @"clock     PROBLEM  100 s behind the cluster's; set it right, and have it kept right by NTP: delayed items and schedules come at their time by this clock");
        assert_eq!(lines(|it| judge_cluster(&[], 1, 1.0, it)), "");
    }

    #[test]
    fn a_recovery_is_noted() {
        let rows = [Moment { time: 1_000, version: 0 }, Moment { time: 1_060, version: 160_000_000 }];
        insta::assert_snapshot!(lines(|it| judge_cluster(&rows, 160_000_000, 1_060.0, it)), @r"
        clock     fine     within 10 s of the cluster's
        clock     note     versions went on by 160 s in the last 60 s; a cluster that recovers lets them jump, and leases wait for it; look why it did
        ");
    }
}
