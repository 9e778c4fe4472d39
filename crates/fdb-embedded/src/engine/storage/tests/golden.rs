//! Directories that earlier versions of this program left, in `golden/`: each is opened with all its rows, and brought up to date.

use super::*;

/// The content of each directory, by format and by how the process that wrote it ended.
macro_rules! golden {
    ($($name:literal: $format:literal, log: $log:expr;)*) => {
        [$(($name, $format, sparse(include_bytes!(concat!("golden/", $name, ".data"))), $log),)*]
    };
}

macro_rules! log {
    ($name:literal) => {
        sparse(include_bytes!(concat!("golden/", $name, ".log")))
    };
}

/// Name, format, data file and log of each. Format 2 had no log.
fn directories() -> [(&'static str, u8, Vec<u8>, Vec<u8>); 6] {
    golden! {
        "2-closed": 2, log: Vec::new();
        "2-killed": 2, log: Vec::new();
        "3-closed": 3, log: log!("3-closed");
        "3-killed": 3, log: log!("3-killed");
        "4-closed": 4, log: log!("4-closed");
        "4-killed": 4, log: log!("4-killed");
    }
}

/// A file of which only the sectors that are not zero were kept: its length, then offset and bytes of each, little endian.
fn sparse(bytes: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.try_into().unwrap())).unwrap();
    let (len, sectors) = bytes.split_at(8);
    let mut file = vec![0; number(len)];
    for sector in sectors.chunks_exact(8 + 512) {
        let at = number(&sector[..8]);
        let end = file.len().min(at + 512);
        file[at..end].copy_from_slice(&sector[8..][..end - at]);
    }
    file
}

fn expected(format: u8) -> Model {
    let mut rows = Model::new();
    rows.insert(b"format".to_vec(), vec![b'0' + format]);
    for n in (0..10).chain(20..50) {
        let text = format!("{n:02}");
        rows.insert(format!("row/{text}").into_bytes(), text.repeat(n + 1).into_bytes());
    }
    rows.insert(b"count".to_vec(), (0..50).sum::<u64>().to_le_bytes().to_vec());
    rows.insert(b"long".to_vec(), (0..=255).collect::<Vec<u8>>().repeat(12));
    rows.insert(b"last".to_vec(), b"acknowledged".to_vec());
    rows
}

/// The rows of clients: the system's are left out.
fn clients_rows(storage: &Storage) -> Model {
    let mut rows = rows(storage).unwrap();
    rows.retain(|key, _| key[0] != 0xff);
    rows
}

#[test]
fn directories_of_earlier_formats_are_opened_with_all_their_rows() {
    for (name, format, data, log) in directories() {
        assert_eq!(data[8], format, "{name}");
        let dir = tempfile::tempdir().unwrap();
        let (file, log_file) = (dir.path().join("data.redb"), dir.path().join("log"));
        std::fs::write(&file, &data).unwrap();
        if !log.is_empty() {
            std::fs::write(&log_file, &log).unwrap();
        }
        for more in 0..2 {
            let (storage, ceiling) = Storage::open(&file, &log_file).unwrap();
            assert!(ceiling > 0, "{name}");
            let mut rows = clients_rows(&storage);
            assert_eq!(rows.remove(&b"more"[..]).is_some(), more > 0, "{name}");
            assert!(rows == expected(format), "{name}");
            apply(&storage, &[set(b"more", b"1")], None).unwrap();
        }
        assert_eq!(u32::from(std::fs::read(&file).unwrap()[8]), FORMAT, "{name}");
    }
}

#[test]
fn a_power_failure_during_a_format_upgrade_loses_no_rows() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        for (name, format, data, log) in directories() {
            let files = Files::new(&[data, log]);
            let (storage, _) = open(&files).unwrap();
            for n in 0..4 {
                apply(&storage, &[set(b"more", &[n])], None).unwrap();
            }
            drop(storage);
            for moment in 0..=files.moments() {
                let left = [files.after_kill(moment), files.after_power_failure(moment, &mut random)];
                for (bytes, what) in left.into_iter().zip(["kill", "power failure"]) {
                    let (storage, _) = open(&Files::new(&bytes))
                        .unwrap_or_else(|error| panic!("{name}, {what} at {moment}: {error}"));
                    let mut rows = clients_rows(&storage);
                    rows.remove(&b"more"[..]);
                    assert!(rows == expected(format), "{name}, {what} at {moment}");
                }
            }
        }
    });
}
