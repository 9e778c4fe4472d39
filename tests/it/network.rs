//! A database directory on a network file system.
//!
//! The test serves a file system through FUSE, which counts as one, in a namespace of its own, where that may be mounted.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use crate::{
    full_disk::inside,
    support::{Database, Ran, kvqueue},
};

/// The kernel's requests; this file system answers a few of them.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;

/// Mounts an empty file system; false if that is not possible here.
fn mount(at: &Path) -> bool {
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else { return false };
    let mut mount = Command::new("mount");
    mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "none"]).arg(at);
    let mounted = mount.stdin(device.try_clone().unwrap()).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return false;
    }
    thread::spawn(move || serve(device));
    true
}

/// Answers the kernel until the test's process ends.
fn serve(mut device: File) {
    let mut request = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut request) {
        let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        assert!(length >= 40, "a request of {length} bytes");
        let (error, body) = match number(4) {
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            INIT => (0, words(&[7, 31, 0, 0, 0, 1 << 16], 64)),
            // The root: valid for an hour; inode 1, a directory with two names.
            GETATTR => {
                (0, words(&[3_600, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0o40_755, 2], 104))
            }
            STATFS => (0, words(&[], 80)),
            LOOKUP => (ENOENT, Vec::new()),
            _ => (ENOSYS, Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).unwrap();
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &request[8..16]].concat();
        // A request that was interrupted is not waited for any more.
        let _ = device.write_all(&[head, body].concat());
    }
}

/// These numbers, and zeros after them.
fn words(words: &[u32], length: usize) -> Vec<u8> {
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.resize(length, 0);
    body
}

#[test]
fn a_network_file_system_is_refused_by_name_unless_it_is_allowed() {
    if !inside("network", "a_network_file_system_is_refused_by_name_unless_it_is_allowed") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    if !mount(directory.path()) {
        return eprintln!("FUSE cannot be mounted here");
    }
    let db = Database::at(format!("embedded:{}", directory.path().display()), String::new());
    let push = |allow: Option<&str>| -> String {
        let mut command = kvqueue(&db, &["push", "q", "x"]);
        command.env_remove("FDB_EMBEDDED_NETWORK_FS").stdin(Stdio::null());
        if let Some(value) = allow {
            command.env("FDB_EMBEDDED_NETWORK_FS", value);
        }
        Ran::from(command.output().unwrap()).failed(69)
    };
    for wrong in [None, Some("1")] {
        let error = push(wrong);
        for part in ["cannot use", "is on FUSE, a network file system", "set FDB_EMBEDDED_NETWORK_FS=allow"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
    // Then it comes to the first file, which this file system does not make.
    let error = push(Some("allow"));
    assert!(error.contains("Function not implemented") && !error.contains("network"), "{error}");
    // The namespace's end takes it down too.
    let _ = Command::new("umount").arg("-l").arg(directory.path()).status();
}
