//! Commands of all sorts, by the test kit.

use std::{path::Path, time::Instant};

use futures::executor::block_on;

use super::Exec;
use crate::{
    handlers::Outcome,
    testing::{Kit, Sample},
};

/// A kit that runs a shell script per item, in `directory`.
fn script(directory: &Path, script: &str, more: &str) -> Kit {
    let script = format!("cd '{}'; {script}", directory.display());
    let settings = format!("command = ['sh', '-c', '''{script}''']\n{more}");
    Kit::new(Exec::from_config(&settings.parse().unwrap()).unwrap()).queue("emails")
}

#[test]
fn the_command_gets_the_payload_and_environment_of_its_item() {
    let directory = tempfile::tempdir().unwrap();
    let kit = script(directory.path(), "cat > payload; env > environment", "");
    let item = Sample::new("hello").attempt(2).attribute("to", "ann").content_type("text/plain\0");
    assert_eq!(block_on(kit.handle(item)), Outcome::Done);
    let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("payload"), "hello");
    let environment = read("environment");
    let said: Vec<_> = environment.lines().filter(|line| line.starts_with("KVQUEUE_A")).collect();
    assert!(said.contains(&"KVQUEUE_ATTEMPT=2"), "{environment}");
    assert!(said.contains(&r#"KVQUEUE_ATTRIBUTES={"to":"ann"}"#), "{environment}");
    assert!(!environment.contains("KVQUEUE_CONTENT_TYPE"), "no variable can hold it: {environment}");
}

#[test]
fn exit_codes_are_outcomes() {
    let directory = tempfile::tempdir().unwrap();
    let kit = script(directory.path(), "exit $(cat)", "release-exit-codes = [99]");
    let outcome = |code: &str| block_on(kit.handle(code));
    assert_eq!(outcome("0"), Outcome::Done);
    assert_eq!(outcome("1"), Outcome::retry("sh failed with exit status: 1"));
    assert_eq!(outcome("65"), Outcome::dead("sh failed with exit status: 65"));
    assert_eq!(outcome("99"), Outcome::Release);
}

#[test]
fn a_failure_reason_has_the_beginning_of_the_commands_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let kit = script(
        directory.path(),
        "yes 'no such mailbox' | head -n 100000 >&2; exit 3",
        "stderr-limit = '15B'",
    );
    assert_eq!(block_on(kit.handle("")), Outcome::retry("sh failed with exit status: 3: no such mailbox"));
}

#[test]
fn a_failure_reason_has_the_stderr_also_if_a_process_that_the_command_left_running_holds_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let kit = script(directory.path(), "sleep 10 & echo 'no such host' >&2; exit 3", "");
    assert_eq!(block_on(kit.handle("")), Outcome::retry("sh failed with exit status: 3: no such host"));
}

#[test]
fn a_command_that_cannot_be_started_makes_the_handler_unavailable() {
    let kit = Kit::new(Exec::from_config(&"command = ['./nowhere']".parse().unwrap()).unwrap());
    let Outcome::Unavailable(reason) = block_on(kit.handle("")) else { panic!("that cannot be done") };
    assert!(reason.starts_with("its command cannot be started: "), "{reason}");
}

#[test]
fn an_item_too_large_for_the_environment_fails() {
    let directory = tempfile::tempdir().unwrap();
    // Linux takes 128 KiB for one variable.
    let item = Sample::new("").attribute("long", "x".repeat(200_000));
    let Outcome::Retry(reason) = block_on(script(directory.path(), "true", "").handle(item)) else {
        panic!("that cannot be done")
    };
    assert!(reason.starts_with("cannot start sh: "), "{reason}");
}

#[test]
fn a_cancelled_command_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let kit = script(directory.path(), "sleep 1000 > fifo & wait", "");
    let token = kit.cancelled();
    let watching = std::thread::spawn(move || {
        // Opened once the sleeper has it; at its end once the sleeper is gone.
        let mut fifo = std::fs::File::open(fifo).unwrap();
        token.cancel();
        std::io::Read::read(&mut fifo, &mut [0]).unwrap()
    });
    assert_eq!(block_on(kit.handle("")), Outcome::Release);
    assert_eq!(watching.join().unwrap(), 0);
}

#[test]
fn a_cancelled_command_can_clean_up_and_is_killed_if_it_does_not_end() {
    let directory = tempfile::tempdir().unwrap();
    let cancelled = |name: &str, trap: &str| {
        let fifo = directory.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let kit = script(
            directory.path(),
            &format!("trap '{trap}' TERM; echo > {name}; sleep 1000 & wait; wait"),
            "",
        );
        let token = kit.cancelled();
        let cancelling = std::thread::spawn(move || {
            // The trap is set once there is something to read.
            std::fs::read(fifo).unwrap();
            token.cancel();
        });
        assert_eq!(block_on(kit.handle("")), Outcome::Release);
        cancelling.join().unwrap();
    };
    cancelled("tidy", "echo > cleaned; exit");
    assert!(directory.path().join("cleaned").exists());
    let began = Instant::now();
    cancelled("stubborn", "");
    assert!(began.elapsed() >= super::TERM_DELAY);
}
