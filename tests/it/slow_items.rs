//! A slow item keeps no other item from an idle consumer.

use std::fs;

use crate::support::{Database, Ran, run, run_script, serve, wait_until};

#[test]
fn without_k_as_many_commands_run_at_a_time_as_there_are_consumers() {
    let db = Database::new();
    run(&db, &["push", "q", "1", "2", "3", "4"]).ok();
    // Each waits for all others.
    let script = "touch begun-$$; tries=0; until test $(ls begun-* | wc -l) -eq 4; do \
        tries=$((tries + 1)); test $tries -lt 200 || exit 65; sleep 0.05; done";
    let options = ["--until-empty", "--fail-on-dead"];
    let ran: Ran = run_script(&db, script, "consumers = 4", &options).output().unwrap().into();
    ran.ok();
}

/// Pushes items of which every tenth is slow, up to so many slow ones.
fn push(db: &Database, items: usize, slow: usize) {
    let payload = |item| if item % 10 == 0 && item / 10 < slow { "slow" } else { "quick" };
    let items: Vec<_> = (0..items).map(payload).collect();
    run(db, &[&["push", "q"], &items[..]].concat()).ok();
}

/// Each slow item waits for all quick ones, which consumers have fetched together with slow ones.
#[test]
fn idle_consumers_get_the_items_behind_slow_ones() {
    for delivery in ["at-least-once", "at-most-once"] {
        let db = Database::new();
        push(&db, 60, 5);
        let script = "case $(cat) in quick) echo >> quick ;; *) tries=0; until test \"$(wc -l < quick)\" = 55; do \
            tries=$((tries + 1)); test $tries -lt 300 || exit 65; sleep 0.05; done; echo >> slow ;; esac";
        let queue = format!("consumers = [{{ k = 10, count = 6 }}]\ndelivery = '{delivery}'");
        let ran: Ran = run_script(&db, script, &queue, &["--until-empty"]).output().unwrap().into();
        ran.ok();
        let ended = ["quick", "slow"].map(|name| fs::read_to_string(db.file(name)).unwrap_or_default().len());
        assert_eq!(ended, [55, 5], "{delivery}");
    }
}

#[test]
fn only_items_that_a_handler_has_are_running_while_consumers_are_idle() {
    let db = Database::new();
    push(&db, 40, 3);
    let go = db.file("go");
    let config = format!(
        "[queues.q]\nhandler = 'exec'\nconsumers = [{{ k = 10, count = 4 }}]\n[queues.q.handler-config]\n\
         command = ['sh', '-c', '''if test $(cat) = slow; then until test -e {}; do sleep 0.05; done; fi''']\n",
        go.display()
    );
    let served = serve(&db, &config);
    let queue = || {
        let queue = served.at.get("/api/v1/queues/q").is(200);
        ["running", "ready", "done"].map(|count| queue[count].as_u64())
    };
    wait_until("all but the slow items have ended", || queue() == [Some(3), Some(0), Some(37)]);
    let states = served.at.get("/api/v1/consumers").is(200);
    let states = states["consumers"].as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap());
    assert_eq!(states.filter(|state| *state == "handling").count(), 3);
    fs::write(&go, "").unwrap();
    wait_until("the slow items have ended", || queue() == [Some(0), Some(0), Some(40)]);
}
