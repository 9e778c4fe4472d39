//! Files with flipped bits or exchanged pages, and files that were cut off.

use super::*;

/// Opens and reads damaged files. An error has to name the file; rows have to be right.
pub fn check_damage(bytes: &Bytes, right: &[&Model], what: &str) -> bool {
    let read = open(&Files::new(bytes)).and_then(|(storage, _)| rows(&storage));
    match read {
        Ok(found) => {
            assert!(right.contains(&&found), "{what}: wrong data was served");
            false
        }
        Err(StorageError::Panicked) => panic!("{what}: redb panicked"),
        Err(error) => {
            assert!(
                error.to_string().contains("sim") || matches!(error, StorageError::Foreign),
                "{what}: {error}"
            );
            true
        }
    }
}

fn flip_bits(bytes: &Bytes, right: &[&Model], random: &mut SplitMix, what: &str) -> usize {
    let used: Vec<usize> = (0..bytes[0].len()).filter(|at| bytes[0][*at] != 0).collect();
    let mut found = 0;
    for round in 0..600_usize {
        let draw = usize::try_from(random.next() >> 8).unwrap();
        // A third of them where something is, a third in the first page, a third anywhere.
        let at = match round % 3 {
            0 => used[draw % used.len()],
            1 => draw % 2048,
            _ => draw % bytes[0].len(),
        };
        let mut damaged = bytes.clone();
        damaged[0][at] ^= 1 << (random.next() % 8);
        found += usize::from(check_damage(&damaged, right, &format!("{what}, byte {at}")));
    }
    found
}

#[test]
fn a_flipped_bit_is_never_read_as_data() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(60, &mut random);
        let [.., before, newest] = &history[..] else { unreachable!("60 batches") };
        let crashed = files.bytes();
        let in_flight = files.after_kill(before.at + (newest.at - before.at) / 2);
        drop(storage);
        let found = [
            flip_bits(&files.bytes(), &[&newest.model], &mut random, "closed"),
            flip_bits(&crashed, &[&newest.model], &mut random, "crashed"),
            flip_bits(&in_flight, &[&before.model, &newest.model], &mut random, "in flight"),
        ];
        assert!(found.iter().sum::<usize>() > 60, "too few were found for this to be a test: {found:?}");
    });
}

#[test]
fn a_misplaced_page_is_detected() {
    let (files, storage, history) = history(60, &mut SplitMix(1));
    drop(storage);
    let [bytes, log] = files.bytes();
    let pages: Vec<usize> = (2..bytes.len() / 4096).filter(|p| bytes[p * 4096] != 0).collect();
    let right = &history.last().unwrap().model;
    let mut found = 0;
    for pair in pages.windows(2) {
        let mut damaged = bytes.clone();
        damaged.copy_within(pair[0] * 4096..(pair[0] + 1) * 4096, pair[1] * 4096);
        found += usize::from(check_damage(&[damaged, log.clone()], &[right], "swapped"));
    }
    assert!(found > 3, "{found} of {}", pages.len());
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(60, &mut random);
        let crashed = files.bytes();
        drop(storage);
        let right = &history.last().unwrap().model;
        for ([data, log], what) in [(files.bytes(), "closed"), (crashed, "crashed")] {
            for round in 0..100 {
                let mut len = usize::try_from(random.next() >> 8).unwrap() % data.len();
                if round % 2 == 0 {
                    len -= len % 4096;
                }
                let damaged = [data[..len].to_vec(), log.clone()];
                check_damage(&damaged, &[right], &format!("{what}, {len} bytes"));
            }
        }
    });
}
