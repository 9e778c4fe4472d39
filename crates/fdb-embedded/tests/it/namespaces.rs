//! Processes of several PID namespaces on one directory, as containers that share a volume.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Helper, get, open, set};

/// The command that runs its arguments as the first process of a PID namespace; `None` if this system does not allow that.
fn in_namespace() -> Option<Command> {
    // A user who is not root needs a user namespace for it.
    let found = [&[][..], &["--map-root-user"]].into_iter().find_map(|by| {
        let command = || {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).args(by);
            command
        };
        let tried = command().arg("true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success()).then(command)
    });
    if found.is_none() {
        println!("skipped: cannot make a PID namespace");
    }
    found
}

fn helper_in_namespace(name: &str, directory: &Path) -> Option<Helper> {
    let mut command = in_namespace()?;
    command.arg(std::env::current_exe().unwrap());
    let mut helper = Helper::spawn_by(command, name, directory);
    helper.wait_for("ready");
    Some(helper)
}

#[test]
fn a_host_of_another_pid_namespace_lets_guests_in() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_host) = helper_in_namespace("hosts", dir.path()) else { return };
    let db = open(dir.path());
    set(&db, b"k", b"v").unwrap();
    assert_eq!(get(&db, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    // Seen from outside it has a pid. A container next to it sees none.
    let host = fdb_embedded::doctor::host_process(dir.path()).unwrap();
    let pid = host.holder.pid.unwrap();
    assert!(!host.holder.is_elsewhere && pid > 1, "{}", host.advice());
    let Some(mut neighbour) = helper_in_namespace("tells_the_holder", dir.path()) else { return };
    neighbour.wait_for("elsewhere: true, its pid: Some(1)");
}

pub fn helper_tells_the_holder(directory: &Path) {
    let host = fdb_embedded::doctor::host_process(directory).unwrap();
    println!("\nready");
    println!("elsewhere: {}, its pid: {:?}", host.holder.is_elsewhere, host.holder.pid);
    assert!(host.advice().contains("where its pid is 1"), "{}", host.advice());
}

#[test]
fn a_guest_of_another_pid_namespace_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    set(&db, b"k", b"v").unwrap();
    let Some(mut guest) = helper_in_namespace("increments", dir.path()) else { return };
    drop(guest.stdin.take());
    assert!(guest.child.wait().unwrap().success());
    assert!(get(&db, b"counter").unwrap().is_some());
}
