//! Workers that wait, and nothing to do: what that costs, server and workers together.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cell::IDLE_WORKERS;
use crate::error::Error;
use crate::outcome::{CPU, Outcome, RESIDENT, as_f64};
use crate::peers::{Address, Peer, UP_LIMIT};
use crate::process::{Processes, Program};

/// How long everything has to come to rest before it is looked at.
pub const SETTLE: Duration = Duration::from_millis(700);
/// How long a worker waits in one request.
const WAIT: Duration = Duration::from_secs(5);
/// What a process of waiting workers says when all are connected.
const READY: &str = "waiting\n";
/// Clock ticks in a second: the same on every Linux.
const TICKS: f64 = 100.0;

/// CPU and memory of the peer's server and of a process with its workers.
pub fn run(peer: &dyn Peer, processes: &Processes, seconds: f64) -> Result<Outcome, Error> {
    let scratch = tempfile::tempdir().map_err(Error::io("cannot make a temporary directory"))?;
    let output = scratch.path().join("workers");
    let Address { kind, port } = peer.address();
    let this = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    let kind = clap::ValueEnum::to_possible_value(&kind).expect("no kind is skipped");
    let program = Program::new(this, Signal::TERM, None).with(|command| {
        command.args(["idle-worker", kind.get_name(), &port.to_string(), &IDLE_WORKERS.to_string()]);
    });
    let workers = processes.start(program, &output)?;
    let waiting = || fs::read_to_string(&output).is_ok_and(|said| said == READY);
    let measured = workers
        .wait_until(UP_LIMIT, waiting)
        .and_then(|()| measure(&[peer.server().pid(), workers.pid()], Duration::from_secs_f64(seconds)));
    processes.stop(&workers);
    let (cpu, resident) = measured?;
    Ok(Outcome::default().with(CPU, cpu).with(RESIDENT, resident))
}

/// The other side: workers that wait until they are ended.
pub fn wait(address: Address, workers: u32) -> Result<(), Error> {
    let consumers = (0..workers).map(|worker| address.consumer(worker, true));
    let consumers = consumers.collect::<Result<Vec<_>, _>>()?;
    print!("{READY}");
    std::io::Write::flush(&mut std::io::stdout()).map_err(Error::io("cannot write to stdout"))?;
    let threads: Vec<_> = consumers
        .into_iter()
        .map(|mut consumer| {
            thread::spawn(move || {
                loop {
                    consumer.take(1, Some(WAIT), &mut Vec::new())?;
                    consumer.finish()?;
                }
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Error::Stopped)))
}

/// Percent of a core, and KiB, of these processes and all below them, over a time.
pub fn measure(pids: &[u32], time: Duration) -> Result<(f64, f64), Error> {
    thread::sleep(SETTLE);
    let tree = tree(pids, &parents());
    let (begin, before) = (Instant::now(), ticks(&tree));
    thread::sleep(time);
    let cpu = as_f64(ticks(&tree).saturating_sub(before)) / TICKS / begin.elapsed().as_secs_f64() * 100.0;
    let resident: u64 = tree.iter().filter_map(|pid| share(&proc(*pid, "smaps_rollup")?)).sum();
    if resident == 0 {
        return Err(Error::Unusable("the memory of its processes cannot be read".to_owned()));
    }
    Ok((cpu, as_f64(resident)))
}

fn proc(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

fn ticks(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|pid| used(&proc(*pid, "stat")?)).sum()
}

/// The parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(all) = fs::read_dir("/proc") else { return BTreeMap::new() };
    all.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((pid, field(&proc(pid, "stat")?, 4)?.try_into().ok()?))
    })
    .collect()
}

/// These, and all that descend from them.
fn tree(roots: &[u32], parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = roots.to_vec();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// A number of /proc/PID/stat by its place there, from 1; the second, a name, may hold anything.
fn field(stat: &str, place: usize) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(place - 3)?.parse().ok()
}

/// User and system time, in ticks.
fn used(stat: &str) -> Option<u64> {
    Some(field(stat, 14)? + field(stat, 15)?)
}

/// The proportional share of memory, in KiB.
fn share(rollup: &str) -> Option<u64> {
    rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_from_a_stat_line_with_any_process_name() {
        let stat = "42 (a) b (c) S 7 1 1 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0";
        assert_eq!(field(stat, 4), Some(7));
        assert_eq!(used(stat), Some(42));
    }

    #[test]
    fn proportional_memory_is_read_from_smaps() {
        assert_eq!(share("Rss:     900 kB\nPss:     120 kB\nPss_Dirty: 3 kB\n"), Some(120));
        assert_eq!(share("Rss: 1 kB"), None);
    }

    #[test]
    fn a_process_tree_contains_all_descendants() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 9)]);
        assert_eq!(tree(&[1], &parents), [1, 2, 3]);
    }

    #[test]
    fn measuring_this_process_finds_memory() {
        let (cpu, resident) = measure(&[std::process::id()], Duration::from_millis(10)).unwrap();
        assert!(cpu >= 0.0 && resident > 0.0);
    }
}
