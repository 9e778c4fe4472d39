//! The content of packages: manual pages, completions, and files that they name.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::support::{Database, clean, commands, kvqueue, run, wait_until};

/// The manual pages, made again.
fn manual() -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::embedded();
    let mut command = kvqueue(&db, &["man", "--out", directory.path().to_str().unwrap()]);
    command.env("SOURCE_DATE_EPOCH", "1700000000");
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let pages = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    (directory, pages)
}

#[test]
fn every_command_has_a_manual_page() {
    let (_directory, pages) = manual();
    let pages: BTreeSet<_> = pages.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    let mut commands = commands();
    // `kvqueue-bench` shows its cells by itself.
    commands.retain(|command| !command.starts_with("kvqueue bench "));
    let mut wanted: Vec<_> = commands.iter().map(|command| command.replace(' ', "-")).collect();
    wanted.push("kvqueue.toml".to_owned());
    assert_eq!(pages, wanted.iter().map(String::as_str).collect());
}

#[test]
fn manual_pages_pass_mandoc_lint() {
    let (_directory, pages) = manual();
    let lint = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output();
    let Ok(lint) = lint else {
        println!("mandoc is not installed, so the manual pages are not checked");
        return;
    };
    assert_eq!(String::from_utf8(lint.stdout).unwrap() + &String::from_utf8(lint.stderr).unwrap(), "");
    assert!(lint.status.success());
}

#[test]
fn manual_pages_are_reproducible_for_a_date() {
    let ((_one, mut first), (_other, mut second)) = (manual(), manual());
    first.sort();
    second.sort();
    for (first, second) in first.iter().zip(&second) {
        let page = fs::read_to_string(first).unwrap();
        assert_eq!(page, fs::read_to_string(second).unwrap());
        assert!(page.contains(" 1 2023-11-14 ") || page.contains(" 5 2023-11-14 "), "{page}");
    }
}

#[test]
fn completions_are_valid_shell_scripts() {
    let db = Database::embedded();
    for (shell, program) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let script = run(&db, &["completions", shell]).ok();
        assert!(script.contains("KVQUEUE_COMPLETE"), "{shell}: {script}");
        let path = db.file(shell);
        fs::write(&path, script).unwrap();
        match Command::new(program).arg("-n").arg(&path).output() {
            Ok(ran) => assert!(ran.status.success() && ran.stderr.is_empty(), "{shell}: {ran:?}"),
            Err(_) => println!("{program} is not installed, so its completions are not checked"),
        }
    }
}

/// The completions of bash after these words for a prefix.
fn offered(db: &Database, words: &str, begin: &str) -> String {
    let path = db.file("bash");
    fs::write(&path, run(db, &["completions", "bash"]).ok()).unwrap();
    let script = format!(
        "source {}; COMP_WORDS=({words} \"{begin}\"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         _clap_complete_kvqueue kvqueue \"{begin}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\"",
        path.display()
    );
    let programs = Path::new(env!("CARGO_BIN_EXE_kvqueue")).parent().unwrap();
    let mut shell = Command::new("bash");
    clean(&mut shell, db);
    shell.args(["-c", &script]).env("KVQUEUE_DATABASE", &db.url).current_dir(db.directory.path());
    shell.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
    let ran = shell.output().unwrap();
    assert!(ran.stderr.is_empty(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap().trim_end().replace('\x0b', " ")
}

#[test]
fn bash_completes_commands_and_options() {
    let db = Database::embedded();
    assert_eq!(offered(&db, "kvqueue", "pee"), "peek");
    assert_eq!(offered(&db, "kvqueue run", "--until"), "--until-empty");
    assert_eq!(offered(&db, "kvqueue dead", "pu"), "purge");
}

#[test]
fn bash_completes_names_of_queues() {
    let db = Database::new();
    for queue in ["emails", "events", "other", "em $(touch made)"] {
        run(&db, &["push", queue, "item"]).ok();
    }
    // A shell does not wait for long.
    wait_until("the queues are offered", || offered(&db, "kvqueue push", "e") == "emails events");
    wait_until("also behind options", || offered(&db, "kvqueue dead purge --json", "o") == "other");
    wait_until("also as a value", || offered(&db, "kvqueue run --queue", "ev") == "events");
    wait_until("and as the second", || offered(&db, "kvqueue move emails", "ev") == "events");
    assert!(!db.file("made").exists());
}

#[test]
fn completion_makes_no_database_and_knows_the_configuration() {
    let db = Database::embedded();
    fs::write(db.file("some.toml"), "[queues.configured]\nhandler = 'log'\n").unwrap();
    let words = "kvqueue --config some.toml --database embedded:./none push";
    assert_eq!(offered(&db, words, "conf"), "configured");
    assert!(!db.file("none").exists());
}

/// Recipes for packages name files. A moved file fails this test instead of the build of a package.
#[test]
fn files_named_by_package_recipes_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest: toml::Table = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets: Vec<_> =
        deb["assets"].as_array().unwrap().iter().map(|asset| asset[0].as_str().unwrap()).collect();
    let build = include_str!("../../packaging/deb/build");
    let made = |asset: &str| {
        let name = asset.strip_prefix("target/release/package/").unwrap_or(asset);
        let name = name.split("/*").next().unwrap();
        ["target/release/kvqueue", "target/release/kvqueue-bench"].contains(&asset)
            || build.contains(&format!("$prepared/{name}\""))
    };
    let container = include_str!("../../packaging/container/Containerfile");
    let copies = container.lines().filter_map(|line| line.strip_prefix("COPY "));
    let copied = copies.filter(|copy| !copy.starts_with("--from")).flat_map(|copy| {
        let words: Vec<_> = copy.split(' ').collect();
        words[..words.len() - 1].to_vec()
    });
    let copied: Vec<_> = copied.collect();
    assert!(assets.len() > 10 && copied.len() >= 4, "{assets:?} {copied:?}");
    let exists = |file: &str| match file.rsplit_once("/*") {
        None => root.join(file).exists(),
        Some((directory, end)) => fs::read_dir(root.join(directory.trim_end_matches("/*")))
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(end)),
    };
    for file in assets.iter().chain(&copied) {
        assert!(if file.starts_with("target/") { made(file) } else { exists(file) }, "{file}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        assert!(root.join(deb["maintainer-scripts"].as_str().unwrap()).join(script).is_file(), "{script}");
    }
}

#[test]
fn the_container_uses_valid_commands_and_settings() {
    let container = include_str!("../../packaging/container/Containerfile");
    // What it names last, `run`, is a command; the directory is what the daemon takes for its own.
    let command =
        container.lines().find_map(|line| line.strip_prefix("CMD [\"")?.strip_suffix("\"]")).unwrap();
    let check = container.lines().find(|line| line.starts_with("HEALTHCHECK ")).unwrap();
    let check: Vec<&str> = serde_json::from_str(check.split_once("CMD ").unwrap().1).unwrap();
    assert_eq!(check[0], "/usr/bin/kvqueue");
    assert!(commands().contains(&format!("kvqueue {command}")));
    let db = Database::embedded();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kvqueue.toml");
    let mut show = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
    show.args(["config", "show", "--json"]).env_remove("KVQUEUE_DATABASE");
    show.env("KVQUEUE_CONFIG", config).env("STATE_DIRECTORY", db.directory.path());
    let shown: serde_json::Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
    assert_eq!(shown["database"], format!("embedded:{}", db.directory.path().display()));
    // Without a daemon: its health is looked at, and is not good.
    let mut check_up = kvqueue(&db, &check[1..]);
    check_up.env("KVQUEUE_HTTP__LISTEN", format!("unix:{}", db.file("nobody").display()));
    assert_eq!(check_up.output().unwrap().status.code(), Some(69), "{check:?}");
    assert!(container.contains("STATE_DIRECTORY=/var/lib/kvqueue"));
    assert!(container.contains("VOLUME /var/lib/kvqueue"));
}
