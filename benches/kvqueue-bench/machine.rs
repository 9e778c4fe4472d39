//! What all this is measured on, in a line.

use std::{fs, path::Path, thread::available_parallelism};

use jiff::Timestamp;

/// Processor, cores, system, version and date.
pub(super) fn line() -> String {
    let cores = available_parallelism().map_or(1, usize::from);
    let system = system();
    let (version, date) = (env!("CARGO_PKG_VERSION"), date());
    format!("{}, {cores} cores, {system}; kvqueue {version}, {date}", processor())
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&info).unwrap_or(std::env::consts::ARCH).to_owned()
}

fn model(info: &str) -> Option<&str> {
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned()
}

/// The kind of file system that a directory is on.
pub(super) fn file_system(directory: &Path) -> Option<String> {
    let (mounts, directory) = (fs::read_to_string("/proc/mounts").ok()?, directory.canonicalize().ok()?);
    kind(&mounts, &directory).map(str::to_owned)
}

/// Of the mounts above it the nearest; of several at one place the last.
fn kind<'m>(mounts: &'m str, directory: &Path) -> Option<&'m str> {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let above = fields.filter(|(place, _)| directory.starts_with(place));
    above.max_by_key(|(place, _)| place.components().count()).map(|(_, kind)| kind)
}

/// The day, in UTC.
fn date() -> String {
    Timestamp::now().to_string().chars().take("2030-01-31".len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp xfs rw 0 0\n";
        assert_eq!(kind(mounts, Path::new("/tmp/x")), Some("xfs"));
        assert_eq!(kind(mounts, Path::new("/tmpx")), Some("ext4"));
    }

    #[test]
    fn the_processor_has_a_name() {
        assert_eq!(model("vendor_id\t: X\nmodel name\t: A 1\nmodel name\t: A 1\n"), Some("A 1"));
        assert_eq!(model(""), None);
        assert_eq!(date().len(), 10);
    }
}
