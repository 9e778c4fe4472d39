use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use foundationdb::Database;
use kvqueue_queue::{Queue, Session};

use super::{super::configured::Configured, *};
use crate::{
    actors::{self, ConsumerContext},
    config::Config,
    consumer::status::ConsumerState,
    control::CommandSender,
    daemon::active_config::ActiveConfig,
    daemon::handler_pool,
    testing::TestDatabase,
};

// Without HTTP: for that, a reload would make a secret in the working directory.
const ONE: &str = "http.listen = 'off'\n[queues.q]\nhandler = 'log'";

/// A daemon at work on its own database.
struct AtWork {
    control: CommandSender,
    shared: Arc<ConsumerContext>,
    db: Arc<Database>,
    /// The configuration of the next reload.
    next: Arc<Mutex<String>>,
}

impl AtWork {
    /// Runs `test` at the same time. The daemon starts with one queue.
    fn run(test: impl AsyncFnOnce(Self)) {
        // The network under it stays.
        drop(TestDatabase::new().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let db = Arc::new(Database::from_path(&format!("embedded:{}", directory.path().display())).unwrap());
        let pool = handler_pool().unwrap();
        let shared = ConsumerContext::new(pool.handle().clone(), None, DaemonStatus::new("test"));
        let next = Arc::new(Mutex::new(ONE.to_owned()));
        let text = next.clone();
        let loader = Loader::new(None, move || Ok(toml::from_str(&text.lock().unwrap()).unwrap()));
        actors::run(async {
            let (supervisor, _exits) = actors::supervise(shared.clone());
            let config: Config = toml::from_str(ONE).unwrap();
            let configured = Configured::to_run(&config, &Registry::builtin(), &BTreeMap::new()).unwrap();
            let active = ActiveConfig::new(config, configured.files.clone());
            let mut running =
                RunningQueues::new(db.clone(), shared.clone(), supervisor.clone(), false, active);
            let new = running.prepare(&configured.queues).await;
            running.run(&configured.queues, new, None).await.unwrap();
            let (control, commands) = CommandSender::new();
            let control_loop = ControlLoop::new(running, Some(loader), Registry::builtin());
            tokio::select! {
                never = control_loop.run(commands, SignalCommands::default()) => match never {},
                () = test(Self { control, shared: shared.clone(), db, next }) => {}
            }
        })
        .unwrap();
        pool.shutdown_background();
    }

    /// Waits until all consumers are at this.
    async fn all(&self, state: ConsumerState, consumers: usize) {
        let mut changed = self.shared.status.changed();
        loop {
            let found = self.shared.status.consumers();
            if found.len() == consumers && found.iter().all(|status| status.state().0 == state) {
                return;
            }
            // The status does not report changes of its consumers.
            let _ = timeout(Duration::from_millis(5), changed.changed()).await;
        }
    }
}

#[test]
fn a_queue_can_be_paused_locally() {
    AtWork::run(async |daemon| {
        daemon.all(ConsumerState::Idle, 1).await;
        daemon.control.pause_locally("q", true).await.unwrap();
        let queue = Queue::new(b"", b"q").unwrap();
        Session::new(queue).push(&daemon.db, &["one"]).await.unwrap();
        daemon.all(ConsumerState::Paused, 1).await;
        assert!(daemon.shared.status.snapshot().queues.iter().all(|queue| queue.paused_locally));
        daemon.control.pause_locally("q", false).await.unwrap();
        daemon.all(ConsumerState::Idle, 1).await;
        let error = daemon.control.pause_locally("r", true).await.unwrap_err();
        assert_eq!(error.to_string(), r#"this daemon has no queue "r"; it has q"#);
    });
}

#[test]
fn a_reload_is_answered_after_all_consumers_are_replaced() {
    AtWork::run(async |daemon| {
        let put = |text: &str| text.clone_into(&mut daemon.next.lock().unwrap());
        put(
            "http.listen = 'off'\nshutdown-timeout = '9s'\n[queues.q]\nhandler = 'log'\nlease = '9s'\nconsumers = [ { count = 3 } ]",
        );
        let reloaded = daemon.control.reload().await.unwrap();
        assert_eq!(reloaded.changed, ["queues.q.consumers", "queues.q.lease", "shutdown-timeout"]);
        assert!(reloaded.finishing.is_empty());
        assert_eq!(daemon.shared.consumers(), 3);
        put("http.listen = 'off'\n[queues.q]\nhandler = 'none'");
        let refused = daemon.control.reload().await.unwrap_err();
        assert!(refused.to_string().contains("there is no such handler"), "{refused}");
        let status = &daemon.shared.status;
        assert_eq!(status.snapshot().config.refused, Some(refused.0));
        assert_eq!((status.metrics.reloads_applied.get(), status.metrics.reloads_refused.get()), (1, 1));
    });
}

#[test]
fn commands_during_a_drain_are_refused() {
    AtWork::run(async |daemon| {
        let (control, shutdown) = (daemon.control.clone(), daemon.shared.shutdown.clone());
        // The first is given before, and not seen to.
        let first = tokio::spawn(async move { control.reload().await });
        shutdown.draining.cancel();
        for answer in [first.await.unwrap(), daemon.control.reload().await] {
            assert_eq!(answer.unwrap_err().to_string(), "the daemon is stopping");
        }
    });
}
