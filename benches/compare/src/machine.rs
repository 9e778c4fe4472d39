//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// A machine, and when.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Day and minute.
    pub date: String,
    /// What the processor calls itself.
    pub processor: String,
    /// How many can run at once.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// Linux's version.
    pub kernel: String,
    /// The file system of the scratch directory.
    pub file_system: String,
}

impl Machine {
    /// This one; `scratch` is where the databases are.
    pub fn here(scratch: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
        let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let memory = value(&read("/proc/meminfo"), "MemTotal").and_then(|value| kib(&value)).unwrap_or(0);
        Self {
            date: date.unwrap_or_default(),
            processor: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory / (1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&read("/proc/mounts"), scratch).unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// The first value of a name in lines of `name: value`.
fn value(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kib(value: &str) -> Option<u64> {
    value.strip_suffix(" kB")?.parse().ok()
}

/// The type of the file system that a directory is in.
fn file_system(mounts: &str, directory: &Path) -> Option<String> {
    let entries = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let below = entries.filter(|(mount, _)| directory.starts_with(mount));
    below.max_by_key(|(mount, _)| mount.components().count()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(file_system(mounts, Path::new("/var/x")).as_deref(), Some("ext4"));
    }

    #[test]
    fn meminfo_values_are_found_by_name() {
        assert_eq!(value("MemTotal:   8 kB\n", "MemTotal").and_then(|value| kib(&value)), Some(8));
        assert_eq!(value("MemFree: 8 kB\n", "MemTotal"), None);
    }
}
