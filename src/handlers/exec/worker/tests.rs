//! Processes of all sorts, by the test kit.

use std::{fs, path::Path, sync::Arc, time::Duration};

use futures::executor::block_on;
use tokio::sync::{mpsc, oneshot};

use super::Process;
use crate::{
    handlers::Processes,
    handlers::{Exec, Outcome, exec::settings::ExecSettings},
    testing::Kit,
};

/// What every worker of these tests begins with: it notes that it has started, says that it is
/// ready, and ends an item with `end OUTCOME`.
const BEGIN: &str = r#"
    echo $$ >> started; read -r hello; echo '{"kvqueue": 1}'
    next() { read -r line || exit 0; id=${line#'{"id":"'}; id=${id%%'"'*}; }
    end() { echo "{\"id\":\"$id\",\"outcome\":\"$1\"}"; }
"#;

/// A kit with a shell script as the worker, in `directory`.
fn script(directory: &Path, script: &str, more: &str) -> Kit {
    let script = format!("cd '{}'; {script}", directory.display());
    let settings = format!("command = ['sh', '-c', '''{script}''']\nmode = 'worker'\n{more}");
    Kit::new(Exec::from_config(&settings.parse().unwrap()).unwrap()).queue("emails")
}

fn worker(directory: &Path, items: &str, more: &str) -> Kit {
    script(directory, &format!("{BEGIN} while next; do {items} done"), more)
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}

/// How many processes have started.
fn started(directory: &Path) -> usize {
    read(directory, "started").lines().count()
}

#[test]
fn one_process_handles_many_items_and_ends_at_the_end_of_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let items = "echo \"$hello $line\" >> lines; case $line in *bad*) end dead ;; *) end done ;; esac;";
    let kit = script(
        directory,
        &format!("{BEGIN} trap 'echo ended > ended' EXIT; while next; do {items} done"),
        "",
    );
    let outcomes = block_on(kit.handle_all(["one", "bad", "two"]));
    assert_eq!(outcomes, [Outcome::Done, Outcome::dead("the worker gave no reason"), Outcome::Done]);
    assert_eq!(started(directory), 1);
    let lines = read(directory, "lines");
    let first = lines.lines().next().unwrap();
    let expected =
        r#"{"kvqueue":1,"queue":"emails"} {"id":"000000000000000000000000","payload":"one","attempt":1}"#;
    assert_eq!(first, expected);
    drop(kit);
    until("it ends", || read(directory, "ended") == "ended\n");
}

/// Waits for something that another process does.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let last = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < last, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_that_dies_costs_its_own_item_an_attempt_and_another_one_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let items = "case $line in *die*) echo no such mailbox >&2; exit 3 ;; *) end done ;; esac;";
    let kit = worker(directory.path(), items, "");
    let outcomes = block_on(kit.handle_all(["one", "die", "two"]));
    let died = Outcome::retry("sh ended while it had the item: exit status: 3: no such mailbox");
    assert_eq!(outcomes, [Outcome::Done, died, Outcome::Done]);
    assert_eq!(started(directory.path()), 2);
}

#[test]
fn an_idle_process_that_dies_costs_no_item_an_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let kit = worker(directory.path(), "end done;", "");
    assert_eq!(block_on(kit.handle("one")), Outcome::Done);
    let pid = read(directory.path(), "started");
    assert!(std::process::Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    let stat = format!("/proc/{}/stat", pid.trim());
    until("it is gone", || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")));
    assert_eq!(block_on(kit.handle("two")), Outcome::Done);
    assert_eq!(started(directory.path()), 2);
}

#[test]
fn a_line_that_is_not_of_the_protocol_fails_the_item_and_replaces_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let items = "case $line in *chat*) echo hello ;; *other*) id=x; end done ;; *long*) head -c 1100000 /dev/zero | tr '\\0' 0 ;; *) end done ;; esac;";
    let kit = worker(directory.path(), items, "");
    let outcomes = block_on(kit.handle_all(["chat", "other", "long", "fine"]));
    let reason = |outcome: &Outcome| match outcome {
        Outcome::Retry(reason) => reason.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason(&outcomes[0]),
        "sh: it wrote a line that is not of the protocol: \"hello\": expected value at line 1 column 1"
    );
    assert_eq!(reason(&outcomes[1]), "sh: it wrote the outcome of an item that it does not have");
    let long = reason(&outcomes[2]);
    assert!(long.contains("\"000") && long.ends_with("it is longer than 1048576 bytes"), "{long}");
    assert_eq!(outcomes[3], Outcome::Done);
    assert_eq!(started(directory.path()), 4);
}

#[test]
fn a_hung_process_is_asked_then_terminated_then_killed_with_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let items = "trap '' TERM; sleep 1000 & echo $! > sleeper; next; echo \"$line\" > asked; wait;";
    let kit = worker(directory.path(), items, "").handler_timeout(Duration::from_millis(300));
    assert_eq!(block_on(kit.handle("one")), Outcome::retry("not done after 300 ms (handler-timeout)"));
    assert_eq!(read(directory.path(), "asked"), "{\"cancel\":\"000000000000000000000000\"}\n");
    let stat = format!("/proc/{}/stat", read(directory.path(), "sleeper").trim());
    until("its child is gone", || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")));
}

#[test]
fn a_process_that_has_closed_its_input_is_terminated_and_its_item_has_its_time_out() {
    let directory = tempfile::tempdir().unwrap();
    let items = "exec 0<&-; trap 'echo term > terminated; exit' TERM; sleep 1000 & wait;";
    let kit = worker(directory.path(), items, "").handler_timeout(Duration::from_millis(300));
    assert_eq!(block_on(kit.handle("one")), Outcome::retry("not done after 300 ms (handler-timeout)"));
    assert_eq!(read(directory.path(), "terminated"), "term\n");
}

/// A worker that loads for ever, and ends at the end of its input.
const LOADS: &str = "read -r hello; echo > begun; read -r rest; echo ended > ended";

#[test]
fn a_process_whose_call_is_cancelled_while_it_starts_gets_the_end_of_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let kit = script(directory.path(), LOADS, "");
    let (token, begun) = (kit.cancelled(), directory.path().join("begun"));
    let cancels = std::thread::spawn(move || {
        until("it starts", || begun.exists());
        token.cancel();
    });
    assert_eq!(block_on(kit.handle("1")), Outcome::Release);
    cancels.join().unwrap();
    until("it ends", || read(directory.path(), "ended") == "ended\n");
}

#[tokio::test]
async fn a_process_that_starts_when_the_daemon_ends_gets_the_end_of_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("cd '{}'; {LOADS}", directory.path().display());
    let settings = format!("command = ['sh', '-c', '{}']\nmode = 'worker'", text.replace('\'', ""));
    let settings = Arc::new(ExecSettings::read(&settings.parse().unwrap()).unwrap());
    let process = Process::start(&settings, &"q".into(), Arc::default()).unwrap();
    let (processes, (_sender, items)) = (Processes::default(), mpsc::channel(1));
    let (ready, _is_ready) = oneshot::channel();
    processes.tasks.spawn(process.run(ready, items, processes.end.clone()));
    while !directory.path().join("begun").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    processes.end().await;
    assert_eq!((processes.tasks.len(), &*read(directory.path(), "ended")), (0, "ended\n"));
}

#[test]
fn the_start_of_a_process_does_not_count_for_the_time_limit() {
    let directory = tempfile::tempdir().unwrap();
    let slow = format!("sleep 0.6; {BEGIN} while next; do end done; done");
    let kit = script(directory.path(), &slow, "").handler_timeout(Duration::from_millis(300));
    assert_eq!(block_on(kit.handle("one")), Outcome::Done);
}

#[test]
fn a_process_that_ends_its_item_when_it_is_asked_stays() {
    let directory = tempfile::tempdir().unwrap();
    let items = "case $line in *slow*) read -r cancel; end release ;; *) end done ;; esac;";
    let kit = worker(directory.path(), items, "").handler_timeout(Duration::from_millis(300));
    let outcomes = block_on(kit.handle_all(["slow", "fast"]));
    assert_eq!(outcomes, [Outcome::retry("not done after 300 ms (handler-timeout)"), Outcome::Done]);
    assert_eq!(started(directory.path()), 1);
}

#[test]
fn heartbeats_keep_an_item_and_silence_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let items = "case $line in *busy*) for i in 1 2 3 4 5 6; do sleep 0.2; echo \"{\\\"heartbeat\\\":\\\"$id\\\"}\"; done; end done ;; \
         *) sleep 1000 ;; esac;";
    let kit = worker(directory.path(), items, "heartbeat-timeout = '700ms'");
    let outcomes = block_on(kit.handle_all(["busy", "silent"]));
    assert_eq!(outcomes, [Outcome::Done, Outcome::retry("no heartbeat for 700 ms (heartbeat-timeout)")]);
}

#[test]
fn a_process_is_replaced_after_its_number_of_items() {
    let directory = tempfile::tempdir().unwrap();
    let kit = worker(directory.path(), "end done;", "max-items = 2");
    assert_eq!(block_on(kit.handle_all(["1", "2", "3", "4", "5"])), vec![Outcome::Done; 5]);
    assert_eq!(started(directory.path()), 3);
}

#[test]
fn a_process_that_has_too_much_memory_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let kit = worker(directory.path(), "end done;", "max-memory = '1kB'");
    assert_eq!(block_on(kit.handle_all(["1", "2"])), vec![Outcome::Done; 2]);
    assert_eq!(started(directory.path()), 2);
    let kit = worker(directory.path(), "end done;", "max-memory = '1GB'");
    assert_eq!(block_on(kit.handle_all(["1", "2"])), vec![Outcome::Done; 2]);
    assert_eq!(started(directory.path()), 3);
}

#[test]
fn a_process_that_does_not_end_with_its_input_is_killed_with_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        format!("trap '' TERM; {BEGIN} next; end done; read -r rest; sleep 1000 & echo $! > sleeper; wait");
    let kit = script(directory.path(), &text, "");
    assert_eq!(block_on(kit.handle("1")), Outcome::Done);
    drop(kit);
    until("it goes on after the end of its input", || read(directory.path(), "sleeper").ends_with('\n'));
    let [shell, sleeper] = ["started", "sleeper"].map(|name| read(directory.path(), name).trim().to_owned());
    let is_gone =
        |pid: &str| !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    until("both are gone", || is_gone(&shell) && is_gone(&sleeper));
}

#[test]
fn an_idle_process_ends_after_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let items = "trap 'echo ended > ended' EXIT; end done;";
    let kit = worker(directory.path(), items, "idle-timeout = '50ms'");
    assert_eq!(block_on(kit.handle("1")), Outcome::Done);
    until("it ends", || read(directory.path(), "ended") == "ended\n");
    assert_eq!(block_on(kit.handle("2")), Outcome::Done);
    assert_eq!(started(directory.path()), 2);
}

#[test]
fn a_program_that_does_not_get_ready_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = |text: &str, more| block_on(script(directory.path(), text, more).handle("1"));
    let dies = outcome("echo no module >&2; exit 4", "");
    assert_eq!(dies, Outcome::unavailable("sh ended before it was ready: exit status: 4: no module"));
    // Found long before start-timeout (30 s), although its child holds its output open.
    let began = std::time::Instant::now();
    let leaves_a_child = outcome("sleep 1000 & exit 5", "");
    assert_eq!(leaves_a_child, Outcome::unavailable("sh ended before it was ready: exit status: 5"));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let chats = outcome("echo welcome; read -r line", "");
    let problem = "sh is not a worker: it wrote a line that is not of the protocol: \"welcome\": expected value at line 1 column 1";
    assert_eq!(chats, Outcome::unavailable(problem));
    let newer = outcome("echo '{\"kvqueue\": 2}'; read -r line", "");
    let problem = "sh is not a worker: it speaks version 2 of the protocol, kvqueue speaks version 1; write {\"kvqueue\": 1}";
    assert_eq!(newer, Outcome::unavailable(problem));
    let silent = outcome("read -r line; read -r line", "start-timeout = '200ms'");
    let problem = "sh was not ready within 200 ms (start-timeout): with mode = \"worker\" it has to write the line {\"kvqueue\": 1}";
    assert_eq!(silent, Outcome::unavailable(problem));
    let missing = Exec::from_config(&"command = ['./nowhere']\nmode = 'worker'".parse().unwrap()).unwrap();
    let Outcome::Unavailable(reason) = block_on(Kit::new(missing).handle("1")) else {
        panic!("that cannot be done")
    };
    assert!(reason.starts_with("its command cannot be started: "), "{reason}");
}

#[test]
fn processes_that_break_at_their_first_item_start_after_pauses() {
    let directory = tempfile::tempdir().unwrap();
    let kit = worker(directory.path(), "exit 3;", "");
    let began = std::time::Instant::now();
    let outcomes = block_on(kit.handle_all(["1", "2", "3", "4"]));
    assert_eq!(outcomes, vec![Outcome::retry("sh ended while it had the item: exit status: 3"); 4]);
    // After the first one 100 ms, then 200 ms, then 400 ms.
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
}

#[test]
fn a_cancelled_item_is_released_and_its_process_killed() {
    let directory = tempfile::tempdir().unwrap();
    let kit = worker(directory.path(), "echo $$ > has; sleep 1000;", "");
    let (token, has) = (kit.cancelled(), directory.path().join("has"));
    let cancels = std::thread::spawn(move || {
        until("it has the item", || fs::read_to_string(&has).is_ok_and(|text| text.ends_with('\n')));
        token.cancel();
    });
    assert_eq!(block_on(kit.handle("1")), Outcome::Release);
    cancels.join().unwrap();
    let stat = format!("/proc/{}/stat", read(directory.path(), "has").trim());
    until("it is gone", || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")));
}
