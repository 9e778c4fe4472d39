//! The program as a user runs it, and workers that are shut down, dropped, and given functions that fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::pending,
    io::{BufRead, BufReader, ErrorKind},
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use kvqueue::{
    Context, Handler, Item, Outcome, Worker, async_trait,
    config::Delivery,
    database::Store,
    foundationdb::Database,
    queue::{Counts, Kind, NewItem, PushOptions, Queue, Session},
};
use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};

/// Far longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process opens one database.
static STORE: LazyLock<(Store, String, TempDir)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("embedded:{}", directory.path().join("data").display());
    let url = std::env::var("KVQUEUE_TEST_CLUSTER_FILE").unwrap_or(embedded);
    (Store::open(&url).unwrap(), url, directory)
});

fn db() -> &'static Arc<Database> {
    &STORE.0.db
}

/// A queue that no other test and no other run has.
fn queue(name: &str, kind: Kind) -> Queue {
    let run = STORE.2.path().file_name().unwrap().to_str().unwrap();
    Queue::of_kind(format!("courier{run}/").as_bytes(), name.as_bytes(), kind).unwrap()
}

async fn push(queue: &Queue, items: &[NewItem]) {
    let mut session = Session::new(queue.clone());
    session.push_items(db(), items, &PushOptions::default()).await.unwrap();
}

async fn counts(queue: &Queue) -> Counts {
    let tr = db().create_trx().unwrap();
    queue.counts(&tr).await.unwrap()
}

/// The program on the database of this process, in an empty directory.
fn courier(directory: &TempDir) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_courier"));
    program.arg(&STORE.1).current_dir(directory);
    program
}

#[tokio::test]
async fn the_program_ends_with_the_last_item_or_at_a_signal_and_leaves_systemd_to_its_author() {
    // It has the name of its queue for itself: the program knows no prefix.
    if std::env::var("KVQUEUE_TEST_CLUSTER_FILE").is_ok() {
        return;
    }
    let mails = Queue::new(b"", b"mails").unwrap();
    push(&mails, &["ann", "bob"].map(NewItem::new)).await;
    let directory = tempfile::tempdir().unwrap();
    let mut program = courier(&directory);
    let output = tokio::task::spawn_blocking(move || program.output().unwrap()).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["to ann, attempt 1", "to bob, attempt 1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "the worker made a directory of its own");

    // The second item keeps it from ending by itself.
    let in_an_hour = SystemTime::now() + Duration::from_secs(3_600);
    push(&mails, &[NewItem::new("carol"), NewItem::new("dave").with_due(in_an_hour)]).await;
    let socket = directory.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_nonblocking(true).unwrap();
    let mut program = courier(&directory);
    program.env("NOTIFY_SOCKET", socket).stdout(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || {
        let mut program = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "to carol, attempt 1\n");
        assert!(Command::new("kill").arg(program.id().to_string()).status().unwrap().success());
        program.wait().unwrap()
    });
    assert!(ended.await.unwrap().success());
    assert_eq!(systemd.recv(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn an_error_and_a_panic_fail_attempts_and_the_last_one_leaves_a_dead_letter() {
    let queue = queue("failing", Kind::Keyed);
    push(&queue, &["error", "panic", "second", "good"].map(|text| NewItem::new(text).with_key(text))).await;
    let handle = |item: Item| async move {
        match &item.payload[..] {
            b"error" => Err("it is wrong"),
            b"panic" => panic!("it is wrong"),
            b"second" if item.attempt == 1 => Err("not yet"),
            _ => Ok(()),
        }
    };
    let worker = Worker::new(queue.clone()).with_consumers(2).with_settings(|settings| {
        settings.retry.max_attempts = 2;
        settings.retry.base = Duration::from_millis(1);
    });
    timeout(PATIENCE, worker.until_empty().run(db(), handle)).await.unwrap().unwrap();
    let tr = db().create_trx().unwrap();
    let letters = queue.dead_after(&tr, None, 9.try_into().unwrap()).await.unwrap();
    let mut reasons: Vec<_> = letters.iter().map(|letter| letter.reason.clone()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().all(|reason| reason.contains("it is wrong")), "{reasons:?}");
    assert_eq!(counts(&queue).await.done, 2);
}

/// A worker whose function never returns releases its item when `end` has ended it.
async fn released_by(name: &str, end: impl AsyncFnOnce(Worker, mpsc::Receiver<()>, mpsc::Sender<()>)) {
    let queue = queue(name, Kind::Fifo);
    push(&queue, &[NewItem::new("waits")]).await;
    let (begun, is_begun) = mpsc::channel(9);
    let worker = Worker::new(queue.clone()).with_shutdown_timeout(Duration::from_millis(10));
    timeout(PATIENCE, end(worker, is_begun, begun)).await.unwrap();
    // The next worker gets it at once, and it is the first attempt still.
    let attempt = Arc::new(AtomicU32::new(0));
    let seen = attempt.clone();
    let handle = move |item: Item| {
        seen.store(item.attempt, Ordering::Relaxed);
        async {}
    };
    timeout(PATIENCE, Worker::new(queue).until_empty().run(db(), handle)).await.unwrap().unwrap();
    assert_eq!(attempt.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_shutdown_releases_unfinished_items() {
    released_by("shutdown", async |worker, mut is_begun, begun| {
        let shutdown = async move {
            is_begun.recv().await;
        };
        let handle = move |_| {
            let begun = begun.clone();
            async move {
                begun.send(()).await.unwrap();
                pending::<()>().await;
            }
        };
        worker.with_shutdown(shutdown).run(db(), handle).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn dropping_the_future_of_a_worker_releases_unfinished_items() {
    released_by("dropped", async |worker, mut is_begun, begun| {
        let handle = move |_| {
            let begun = begun.clone();
            async move {
                begun.send(()).await.unwrap();
                pending::<()>().await;
            }
        };
        tokio::select! {
            ended = worker.run(db(), handle) => panic!("it ended: {ended:?}"),
            begun = is_begun.recv() => begun.unwrap(),
        }
    })
    .await;
}

/// Writes each item under its payload, together with the acknowledgement.
struct Note;

#[async_trait]
impl Handler for Note {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let Some(tr) = context.transaction() else { return Outcome::dead("it has no transaction") };
        tr.set(&item.payload, b"noted");
        Outcome::Done
    }
}

#[tokio::test]
async fn a_handler_writes_together_with_its_acknowledgement() {
    let queue = queue("exactly-once", Kind::Fifo);
    let key = [queue.prefix(), b"note"].concat();
    push(&queue, &[NewItem::new(key.clone())]).await;
    let worker =
        Worker::new(queue.clone()).with_settings(|settings| settings.delivery = Delivery::ExactlyOnce);
    timeout(PATIENCE, worker.until_empty().run_handler(db(), Note)).await.unwrap().unwrap();
    let noted = db().create_trx().unwrap().get(&key, true).await.unwrap();
    assert_eq!(noted.as_deref(), Some(&b"noted"[..]));
    assert_eq!(counts(&queue).await.done, 1);
}

#[tokio::test]
async fn a_setting_out_of_its_range_is_refused_before_anything_runs() {
    let worker = Worker::new(queue("settings", Kind::Fifo)).with_batch_size(0);
    let error = worker.run(db(), async |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("queues.settings") && error.contains("k = 0"), "{error}");
}
