//! How the schedules of the database follow the configuration.

use std::fs;

use rustix::process::Signal;

use super::{configure, daemon, names, put_at_run_time, queue, schedules, stop};
use crate::support::{Database, events, freeze, run};

const HOURLY: &str = "cron = '@hourly'";
const DAILY: &str = "cron = '@daily'";

#[test]
fn configured_schedules_are_stored_changed_and_removed_by_a_reload_and_at_a_start() {
    let db = Database::new();
    put_at_run_time(&db, "by-hand", 0);
    let mut first = daemon(&db, "a.toml", &queue(&[("changes", HOURLY), ("goes", HOURLY)]));
    first.wait_for_all(&[r#""schedule":"changes""#, r#""schedule":"goes""#]);
    assert_eq!(first.events("schedule_created"), 2);
    let before = schedules(&db);
    assert_eq!(before["changes"]["owner"], db.file("a.toml").display().to_string());
    assert_eq!(before["changes"]["definition"]["cron"], "@hourly");

    configure(&db, "a.toml", &queue(&[("changes", DAILY), ("new", HOURLY)]));
    first.signal(Signal::HUP);
    let removed = first.wait_for_event("schedule_removed");
    assert!(removed.contains(r#""schedule":"goes""#), "{removed}");
    assert_eq!((first.events("schedule_replaced"), first.events("schedule_created")), (1, 3));
    let after = schedules(&db);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["by-hand", "changes", "new"]);
    assert_eq!(after["changes"]["definition"]["cron"], "@daily");
    assert_eq!(after["by-hand"], before["by-hand"]);
    // A daemon that stops leaves them.
    stop(first);
    assert_eq!(names(&db), ["by-hand", "changes", "new"]);

    let mut second = daemon(&db, "a.toml", &queue(&[("changes", DAILY)]));
    second.wait_for_event("schedule_removed");
    assert_eq!((second.events("schedule_created"), second.events("schedule_replaced")), (0, 0));
    assert_eq!(names(&db), ["by-hand", "changes"]);
    // A queue that is not configured any more keeps them.
    configure(&db, "a.toml", "[queues.other]\nhandler = 'pull'");
    second.signal(Signal::HUP);
    second.wait_for_event("configuration_reloaded");
    assert_eq!(second.events("schedule_removed"), 1);
    stop(second);
    assert_eq!(names(&db), ["by-hand", "changes"]);

    let mut third = daemon(&db, "a.toml", &queue(&[]));
    third.wait_for_event("schedule_removed");
    stop(third);
    assert_eq!(names(&db), ["by-hand"]);
}

#[test]
fn daemons_with_different_owners_leave_each_others_schedules_alone() {
    let db = Database::new();
    let mut first = daemon(&db, "a.toml", &queue(&[("shared", HOURLY), ("mine", HOURLY)]));
    first.wait_for_all(&[r#""schedule":"shared""#, r#""schedule":"mine""#]);
    let before = schedules(&db);
    // A schedule that is refused does not keep others from being stored.
    let mut second = daemon(&db, "b.toml", &queue(&[("shared", DAILY), ("yours", DAILY)]));
    second.wait_for_all(&[r#""schedule":"shared""#, r#""schedule":"yours""#]);
    assert_eq!((second.events("schedule_refused"), second.events("schedule_created")), (1, 1));
    assert_eq!(second.said("belongs to configuration"), 1);
    configure(&db, "b.toml", &queue(&[]));
    second.signal(Signal::HUP);
    let removed = second.wait_for_event("schedule_removed");
    assert!(removed.contains(r#""schedule":"yours""#), "{removed}");
    stop(second);
    stop(first);
    assert_eq!(schedules(&db), before);
}

#[test]
fn daemons_with_the_same_owner_share_their_schedules() {
    let db = Database::new();
    let text = format!("schedule-owner = 'production'\n{}", queue(&[("shared", HOURLY)]));
    let mut first = daemon(&db, "a.toml", &text);
    first.wait_for_event("schedule_created");
    let mut second = daemon(&db, "b.toml", &text.replace("hourly", "daily"));
    second.wait_for_event("schedule_replaced");
    stop(second);
    stop(first);
    let schedules = schedules(&db);
    assert_eq!((&schedules["shared"]["owner"], schedules.len()), (&"production".into(), 1));
}

#[test]
fn a_file_that_is_named_by_a_path_with_steps_back_keeps_its_schedules() {
    let db = Database::new();
    fs::create_dir(db.file("bin")).unwrap();
    let mut first = daemon(&db, "bin/../a.toml", &queue(&[("changes", HOURLY), ("goes", HOURLY)]));
    first.wait_for_all(&[r#""schedule":"changes""#, r#""schedule":"goes""#]);
    stop(first);
    assert_eq!(schedules(&db)["changes"]["owner"], db.file("a.toml").display().to_string());
    let mut second = daemon(&db, "a.toml", &queue(&[("changes", DAILY)]));
    second.wait_for_event("schedule_removed");
    let log = stop(second);
    assert_eq!((events(&log, "schedule_replaced"), events(&log, "schedule_refused")), (1, 0), "{log}");
}

#[test]
fn schedules_of_a_frozen_queue_are_stored_once_it_is_resumed() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    freeze(&db);
    let mut daemon = daemon(&db, "a.toml", &queue(&[("waits", HOURLY)]));
    daemon.wait_for_event("ready");
    assert_eq!(names(&db), [""; 0]);
    run(&db, &["resume", "q", "--frozen"]).ok();
    daemon.wait_for_event("schedule_created");
    let log = stop(daemon);
    assert!(!log.contains("schedules_not_stored"), "{log}");
    assert_eq!(names(&db), ["waits"]);
}

#[test]
fn an_option_of_run_leaves_the_schedules_of_a_queue_that_the_file_does_not_have() {
    let db = Database::new();
    let mut first = daemon(&db, "a.toml", &queue(&[("stays", HOURLY)]));
    first.wait_for_event("schedule_created");
    stop(first);
    let config = configure(&db, "a.toml", "[queues.other]\nhandler = 'pull'");
    let args =
        ["run", "--config", config.to_str().unwrap(), "--queue", "q", "--handler", "log", "--until-empty"];
    run(&db, &args).ok();
    assert_eq!(names(&db), ["stays"]);
}
