//! What a process uses: CPU time and memory, as `/proc` has it.

use std::{fs, time::Duration};

use anyhow::Context;

/// The kernel's unit of CPU time in `stat` is a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time of a process's threads so far.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    // To the nanosecond where the kernel keeps it; an idle process uses less than a tick.
    match threads(pid) {
        Some(time) => Ok(time),
        None => ticks(&read(pid, "stat")?).context("/proc/PID/stat has another form than Linux gives it"),
    }
}

/// The memory of a process that is resident, in kB.
pub(super) fn resident_kb(pid: u32) -> anyhow::Result<u64> {
    resident(&read(pid, "status")?).context("/proc/PID/status has no VmRSS")
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}; this cell needs Linux"))
}

fn threads(pid: u32) -> Option<Duration> {
    let mut time = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        time += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
    }
    Some(time)
}

/// User and system time: the fourteenth and fifteenth field. The second one, a name in brackets, may have blanks.
fn ticks(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (field()? + field()?))
}

fn resident(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_memory_are_read_from_proc_files() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 100 1000 10";
        assert_eq!(ticks(stat), Some(Duration::from_millis(460)));
        assert_eq!(resident("Name:\tx\nVmRSS:\t   1234 kB\n"), Some(1_234));
    }
}
