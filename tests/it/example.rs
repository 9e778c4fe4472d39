//! The example: a daemon with a handler of one's own.

use std::process::Command;

use rustix::process::Signal;

use crate::support::{Background, Database, clean, run};

#[test]
fn a_handler_of_ones_own_works_off_its_queue() {
    let db = Database::new();
    run(&db, &["push", "greetings", "ann", "bob"]).ok();
    // Cargo builds examples with the tests, beside them.
    let here = std::env::current_exe().unwrap();
    let mut example = Command::new(here.ancestors().nth(2).unwrap().join("examples/own_handler"));
    clean(&mut example, &db);
    example.env("KVQUEUE_DATABASE", &db.url);
    example.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/own_handler.toml"));
    // In its queue there is one consumer: when it is idle, both are greeted.
    example.env("KVQUEUE_LOG__LEVEL", "debug");
    let mut example = Background::start(example);
    example.wait_for("waiting for push");
    example.signal(Signal::TERM);
    let ran = example.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, "Good morning, ann!\nGood morning, bob!\n");
}
