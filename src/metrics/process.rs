//! What the process uses, as `/proc` has it. Where that is not mounted nothing is said.

use std::{fs, time::Duration};

/// The kernel's unit of CPU time in `stat` is a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// This process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// Of all its threads.
    pub(super) cpu: Option<Duration>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_files: Option<usize>,
}

impl Process {
    pub(super) fn now() -> Self {
        let read = |file| fs::read_to_string(format!("/proc/self/{file}")).ok();
        Self {
            cpu: read("stat").and_then(|stat| cpu(&stat)),
            resident_bytes: read("status").and_then(|status| resident(&status)),
            // The listing itself has one of them open.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1)),
        }
    }
}

/// User and system time: the fourteenth and fifteenth field. The second one, a name in brackets, may have blanks.
fn cpu(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u32>().ok();
    Some(TICK.saturating_mul(field()?.saturating_add(field()?)))
}

fn resident(status: &str) -> Option<u64> {
    let kb = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    kb.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 100 1000 10";
        assert_eq!(cpu(stat), Some(Duration::from_millis(460)));
        assert_eq!(resident("Name:\tx\nVmRSS:\t   1234 kB\n"), Some(1_234 * 1_024));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_something() {
        let Process { cpu, resident_bytes, open_files } = Process::now();
        assert!(cpu.is_some() && resident_bytes > Some(100_000) && open_files > Some(2));
    }
}
