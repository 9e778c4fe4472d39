//! `kvqueue init`: what it writes works at once.

use std::{fs, path::Path, process::Command};

use crate::support::{Database, Ran, clean, run};

/// A command in a directory with a configuration.
fn there(db: &Database, directory: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
    clean(&mut command, db);
    command.current_dir(directory).env("KVQUEUE_CONFIG", directory.join("kvqueue.toml")).args(args);
    command.output().unwrap().into()
}

#[test]
fn the_files_of_init_handle_an_item_at_once() {
    for (language, handler) in [("python", "handler.py"), ("node", "handler.js"), ("shell", "handler.sh")] {
        let db = Database::embedded();
        let directory = db.file("app");
        let said = run(&db, &["init", directory.to_str().unwrap(), "--handler", language]).ok();
        assert!(said.starts_with(&format!("wrote kvqueue.toml and {handler}; next:")), "{said}");
        there(&db, &directory, &["config", "check", "--strict"]).ok();
        there(&db, &directory, &["push", "mails", r#"{"to": "ann"}"#, r#"{"for": "bob"}"#]).ok();
        there(&db, &directory, &["run", "--until-empty"]).ok();
        assert!(fs::read_to_string(directory.join("sent")).unwrap().contains("ann"));
        let dead = there(&db, &directory, &["dead", "list", "mails"]).ok();
        assert!(dead.contains("no address"), "{dead}");
    }
}

#[test]
fn a_configuration_that_nothing_names_is_pointed_out() {
    let db = Database::embedded();
    let directory = db.file("app");
    run(&db, &["init", directory.to_str().unwrap(), "--handler", "shell"]).ok();
    let unnamed = |args: &[&str]| -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
        clean(&mut command, &db);
        command.current_dir(&directory).env_remove("KVQUEUE_CONFIG").env_remove("KVQUEUE_DATABASE");
        command.args(args).output().unwrap().into()
    };
    let hint = "kvqueue.toml in this directory was not read; name it with --config kvqueue.toml";
    for (args, code) in [(&["run"][..], 78), (&["push", "mails", "x"], 69), (&["status"], 69)] {
        let said = unnamed(args).failed(code);
        assert!(said.contains(hint), "{args:?}: {said}");
    }
    assert!(!unnamed(&["run", "--config", "absent.toml"]).failed(78).contains(hint));
}

#[test]
fn init_overwrites_nothing() {
    let db = Database::embedded();
    let directory = db.directory.path();
    fs::write(db.file("handler.py"), "mine").unwrap();
    let refused = run(&db, &["init", directory.to_str().unwrap()]).failed(1);
    assert!(refused.contains("handler.py is there already, and nothing was written"), "{refused}");
    assert!(!db.file("kvqueue.toml").exists());
    assert_eq!(fs::read_to_string(db.file("handler.py")).unwrap(), "mine");
}
