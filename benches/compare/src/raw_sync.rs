//! The disk's own measure: how often a small append can be flushed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;

/// Bytes of an append: about what a push of one small item writes.
const APPEND: [u8; 512] = [b'.'; 512];
/// How long it is measured.
const TIME: Duration = Duration::from_millis(300);

/// Appends of 512 bytes with an fdatasync each, per second.
pub fn measure(directory: &Path) -> Result<f64, Error> {
    let path = directory.join("raw-sync");
    let mut file = File::create(&path).map_err(Error::io(format!("cannot write {}", path.display())))?;
    let (begin, mut count) = (Instant::now(), 0_u32);
    while begin.elapsed() < TIME {
        let append = file.write_all(&APPEND).and_then(|()| file.sync_data());
        append.map_err(Error::io(format!("cannot write {}", path.display())))?;
        count += 1;
    }
    let rate = f64::from(count) / begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path).map_err(Error::io(format!("cannot remove {}", path.display())))?;
    Ok(rate)
}
