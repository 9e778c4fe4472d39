//! What the disk under a benchmark allows.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// How often a second an append of 512 bytes to a file in `place` is flushed, over `count` of them.
pub fn flushes_per_second(place: &Path, count: u32) -> f64 {
    let path = place.join("flushes");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let start = Instant::now();
    for _ in 0..count {
        file.write_all(&[1; 512]).unwrap();
        file.sync_data().unwrap();
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}
