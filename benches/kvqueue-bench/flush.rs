//! How often the disk flushes: the measure of everything durable.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

/// What is appended before each flush.
const APPENDED: usize = 512;

/// Appends and flushes of a file in `directory` a second. The file has no name, so none is left.
pub(super) fn flushes_per_second(directory: &Path, time: Duration) -> io::Result<f64> {
    let mut file: File = tempfile::tempfile_in(directory)?;
    let (begun, mut flushes) = (Instant::now(), 0_u32);
    while begun.elapsed() < time {
        file.write_all(&[0x5a; APPENDED])?;
        file.sync_data()?;
        flushes += 1;
    }
    Ok(f64::from(flushes) / begun.elapsed().as_secs_f64())
}
