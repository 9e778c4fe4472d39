//! The daemon itself, run and stopped as it would be in earnest.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{process::Stdio, time::Duration};

use futures::future::{join, join_all};
use greeter::{key, number};
use kvqueue::{
    database::Store,
    foundationdb::{Database, FdbResult},
    queue::{Counts, NewItem, PushOptions, Queue, Session},
};
use tokio::{process::Command, time::timeout};

/// Far longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/greeter.toml");

async fn push(db: &Database, queue: &Queue, items: &[NewItem]) {
    let mut session = Session::new(queue.clone());
    session.push_items(db, items, &PushOptions::default()).await.unwrap();
}

/// Resolves once `name` has been greeted; to be called before.
async fn watch(db: &Database, name: &str) -> impl Future<Output = FdbResult<()>> + use<> {
    let tr = db.create_trx().unwrap();
    let watch = tr.watch(&key(name));
    tr.commit().await.unwrap();
    watch
}

async fn greeted(db: &Database, name: &str) -> u64 {
    let value = db.create_trx().unwrap().get(&key(name), true).await.unwrap();
    value.as_deref().map_or(0, number)
}

#[tokio::test]
async fn daemon_greets_each_name_once_and_keeps_bad_items_as_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    // A directory, or the cluster that the environment names. There, no other run has this name.
    let embedded = format!("embedded:{}", directory.path().join("data").display());
    let url = std::env::var("KVQUEUE_TEST_CLUSTER_FILE").unwrap_or(embedded);
    let run = directory.path().file_name().unwrap().to_str().unwrap();
    let (prefix, ann, bob) = (format!("greeter{run}/"), format!("ann{run}"), format!("bob{run}"));
    let store = Store::open(&url).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"greetings").unwrap();
    let items = [
        NewItem::new(ann.clone()),
        NewItem::new(bob.clone()).with_attribute("knocks", "2"),
        NewItem::new(""),
    ];
    push(&store.db, &queue, &items).await;
    let watches = join(watch(&store.db, &ann), watch(&store.db, &bob)).await;

    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_greeter"));
        command.args(arguments).args(["--config", CONFIG]);
        command.env("KVQUEUE_DATABASE", &url).env("KVQUEUE_PREFIX", &prefix);
        command
    };
    let greeter = command(&["run"]).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let pid = greeter.id().unwrap().to_string();
    for result in timeout(PATIENCE, join_all([watches.0, watches.1])).await.unwrap() {
        result.unwrap();
    }
    // A stop waits for the items that the handlers work on.
    assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
    let ended = timeout(PATIENCE, greeter.wait_with_output()).await.unwrap().unwrap();

    assert_eq!(ended.status.code(), Some(0));
    let said = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(said, format!("Good morning, {ann}! (1)\nGood morning, {bob}! (1)\n"));
    assert_eq!((greeted(&store.db, &ann).await, greeted(&store.db, &bob).await), (1, 1));
    let counts = queue.counts(&store.db.create_trx().unwrap()).await.unwrap();
    assert_eq!(counts, Counts { done: 2, dead: 1, pushed: Some(3), ..Counts::default() });

    // A cluster would keep it all.
    assert!(command(&["delete", "--yes", "greetings"]).status().await.unwrap().success());
    let tr = store.db.create_trx().unwrap();
    [&ann, &bob].into_iter().for_each(|name| tr.clear(&key(name)));
    tr.commit().await.unwrap();
}

#[tokio::test]
async fn config_check_reports_wrong_handler_settings() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.toml");
    let text = std::fs::read_to_string(CONFIG).unwrap().replace("pause = \"100ms\"", "pose = \"100ms\"");
    std::fs::write(&wrong, text).unwrap();
    let check = async |config: &std::path::Path| {
        let mut greeter = Command::new(env!("CARGO_BIN_EXE_greeter"));
        let checked = greeter.args(["config", "check", "--config"]).arg(config).output().await.unwrap();
        (checked.status.code(), String::from_utf8(checked.stderr).unwrap())
    };
    assert_eq!(check(CONFIG.as_ref()).await, (Some(0), String::new()));
    let (code, message) = check(&wrong).await;
    assert_eq!(code, Some(78));
    assert!(message.contains("queues.greetings.handler-config") && message.contains("pose"), "{message}");
}

#[tokio::test]
async fn version_option_prints_the_examples_name_and_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_greeter")).arg("--version").output().await.unwrap();
    let version = concat!("greeter ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
}
