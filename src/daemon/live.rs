//! What runs, and how another configuration takes effect.
//!
//! What is taken under some settings ends under them: a queue whose settings change gets a new `QueueRuntime`, and with it new consumers, which
//! begin as those of the old one leave. The pause state and the meters are the name's, and stay. Nothing happens before everything that can fail or
//! wait has been done.

use std::{collections::BTreeMap, sync::Arc};

use foundationdb::Database;
use futures::future::join_all;

use super::{
    loader::Prepared,
    parts::{Part, Parts},
    reload::{self, Plan},
};
use crate::{
    actors::{ConsumerContext, ConsumerSpec, DesiredConsumers, SupervisorExit, SupervisorHandle},
    config::Config,
    consumer::runtime::QueueRuntime,
    control::{InForce, Left, Refused},
    handlers::AnyHandler,
    pause::Follower,
    sweep::Sweeping,
    telemetry,
};

/// What runs. On the actors' thread.
pub(super) struct Live {
    db: Arc<Database>,
    pub(super) shared: Arc<ConsumerContext>,
    supervisor: SupervisorHandle,
    until_empty: bool,
    in_force: InForce,
    queues: BTreeMap<Arc<str>, Running>,
}

/// By queue.
pub(super) type Followers = BTreeMap<Arc<str>, Follower>;

/// What runs for one queue.
struct Running {
    runtime: Arc<QueueRuntime>,
    sweeping: Sweeping,
    /// Kept for as long as the queue is.
    _follower: Follower,
}

impl Live {
    /// Without queues; `in_force` has the first configuration already.
    pub(super) fn new(
        db: Arc<Database>,
        shared: Arc<ConsumerContext>,
        supervisor: SupervisorHandle,
        until_empty: bool,
        in_force: InForce,
    ) -> Self {
        Self { db, shared, supervisor, until_empty, in_force, queues: BTreeMap::new() }
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        self.in_force.config()
    }

    /// The keys that a prepared configuration changes.
    pub(super) fn changes(&self, Prepared { plan, parts, .. }: &Prepared) -> Vec<String> {
        let mut changed = plan.changed();
        if self.in_force.is_other_token(parts.token.as_ref()) {
            changed.push("http.token-file (contents)".to_owned());
        }
        changed
    }

    /// The queues of the configuration before that are removed and have items.
    pub(super) async fn left(&self, before: &Config) -> Vec<Left> {
        reload::left(&self.db, before, &self.config()).await
    }

    /// The handlers in use.
    pub(super) fn handlers(&self) -> BTreeMap<Arc<str>, AnyHandler> {
        self.queues
            .iter()
            .map(|(name, running)| (name.clone(), running.runtime.tried.handling.clone()))
            .collect()
    }

    /// Another configuration takes effect, from the file of this path, if it is one. Consumers may still be finishing what they have in hand
    /// when this returns.
    pub(super) async fn reload(
        &mut self,
        Prepared { config, plan, parts: Parts { queues, token } }: Prepared,
        path: Option<String>,
    ) -> Result<(), SupervisorExit> {
        let followers = self.follow(&queues).await;
        let level = &config.log.level;
        if *level != self.config().log.level
            && let Err(error) = telemetry::set_level(level)
        {
            tracing::warn!(event = "log_level_unchanged", %error, "cannot change the log level");
        }
        self.shared.status.configure(path, &config);
        // A drain uses the new shutdown timeout from here on.
        self.in_force.take_up(config, token);
        self.run(&queues, followers, Some(&plan)).await
    }

    /// Asks the database whether new queues are paused, and follows what it says.
    pub(super) async fn follow(&self, parts: &[Part]) -> Followers {
        let new = parts.iter().filter(|part| !self.queues.contains_key(&part.name));
        let follow = new.map(async |part| {
            (part.name.clone(), part.follow(&self.db, &self.shared, self.until_empty).await)
        });
        join_all(follow).await.into_iter().collect()
    }

    /// These are the queues from here on. Without a plan none of them stays as it is.
    pub(super) async fn run(
        &mut self,
        parts: &[Part],
        mut followers: Followers,
        plan: Option<&Plan>,
    ) -> Result<(), SupervisorExit> {
        let mut queues = BTreeMap::new();
        let mut wanted = DesiredConsumers::new();
        for part in parts {
            let name = &part.name;
            let keeps_source = plan.is_some_and(|plan| plan.keeps_source(name));
            let running = match (self.queues.remove(name), followers.remove(name)) {
                (Some(mut running), _) => {
                    if !keeps_source {
                        running.runtime = self.runtime(part);
                    }
                    running.sweeping.follow(part.sweep_rules());
                    running
                }
                (None, Some(follower)) => Running {
                    runtime: self.runtime(part),
                    sweeping: part.sweep(&self.db, &self.shared),
                    _follower: follower,
                },
                (None, None) => continue,
            };
            let spec = |k| ConsumerSpec { runtime: running.runtime.clone(), k };
            wanted.insert(name.clone(), part.ks().map(spec).collect());
            queues.insert(name.clone(), running);
        }
        // Those that are not among them are swept no more, and their pauses not followed.
        self.queues = queues;
        self.supervisor.reconcile(wanted).await
    }

    fn runtime(&self, part: &Part) -> Arc<QueueRuntime> {
        part.runtime(&self.db, &self.shared, self.until_empty)
    }

    /// Holds back a queue's takes in this daemon alone, or lets them go on.
    pub(super) fn pause_locally(&self, queue: &str, paused: bool) -> Result<(), Refused> {
        let Some(running) = self.queues.get(queue) else {
            let names: Vec<_> = self.queues.keys().collect();
            let text = format!("this daemon has no queue {queue:?}; it has {}", telemetry::listed(&names));
            return Err(Refused(text));
        };
        if running.runtime.pause.pause_locally(paused) {
            if paused {
                tracing::info!(event = "queue_paused_locally", queue, "queue paused in this daemon");
            } else {
                tracing::info!(event = "queue_resumed_locally", queue, "queue resumed in this daemon");
            }
            self.shared.status.touch();
        }
        Ok(())
    }
}
