//! The supervisor: keeps consumers alive, within a limit.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler};
use tokio::sync::mpsc;

use super::{
    consumer::Consumer,
    context::ConsumerContext,
    fetcher::Fetcher,
    messages::{
        ActorExited, ConsumerRef, ConsumerSpec, Drain, ExitGuard, ExitReason, ListConsumers, Ping, Reconcile,
        Start, Stop, StopFetcher, SupervisorExit, Who,
    },
    reconciler::{Changes, Reconciler, RunningConsumer},
    restart_limiter::RestartLimiter,
};
use crate::consumer::{runtime::QueueRuntime, status::ConsumerStatus};

/// The most failed consumers that are replaced within [`WITHIN`]. One more ends the supervisor.
const RESTARTS: usize = 5;

/// The sliding window of time for [`RESTARTS`].
const WITHIN: Duration = Duration::from_secs(30);

/// The actor.
pub(super) struct Supervisor {
    shared: Arc<ConsumerContext>,
    consumers: BTreeMap<u64, Member>,
    /// The queues that have consumers, by their runtime.
    fetchers: HashMap<*const QueueRuntime, FetcherOf>,
    /// Each queue that ever had consumers.
    queues: BTreeMap<Arc<str>, QueueConsumers>,
    next_id: u64,
    restart_limiter: RestartLimiter,
    draining: bool,
    /// A consumer has found its queue empty and ended. When all have ended, the supervisor ends.
    ran_dry: bool,
    /// Gets the end of the supervisor: at most once per consumer, and once per drain. If it is dropped, the supervisor has died.
    ends: mpsc::UnboundedSender<SupervisorExit>,
}

struct Member {
    spec: ConsumerSpec,
    status: Arc<ConsumerStatus>,
    address: Addr<Consumer>,
    fetcher: Addr<Fetcher>,
    /// How many consumers with its number failed before it.
    restarts: u64,
    /// It is stopping, so it is not replaced.
    leaving: bool,
}

/// The fetcher of a runtime.
struct FetcherOf {
    address: Addr<Fetcher>,
    /// How many consumers it has.
    consumers: usize,
}

/// The consumers of a queue: an index of `consumers`, so that no change to one queue walks through the consumers of all.
#[derive(Default)]
struct QueueConsumers {
    members: BTreeSet<u64>,
    /// How many of them are leaving.
    leaving: usize,
    /// `None` until the configuration has named its consumers.
    reconciler: Option<Reconciler<ConsumerSpec>>,
}

impl QueueConsumers {
    /// Consumers are leaving, or new ones wait for that.
    fn is_finishing(&self) -> bool {
        self.leaving > 0 || self.reconciler.as_ref().is_some_and(|reconciler| !reconciler.is_complete())
    }
}

impl Supervisor {
    pub(super) fn new(shared: Arc<ConsumerContext>, ends: mpsc::UnboundedSender<SupervisorExit>) -> Self {
        Self {
            shared,
            consumers: BTreeMap::new(),
            fetchers: HashMap::new(),
            queues: BTreeMap::new(),
            next_id: 1,
            restart_limiter: RestartLimiter::new(RESTARTS, WITHIN),
            draining: false,
            ran_dry: false,
            ends,
        }
    }

    /// Starts a new consumer.
    fn begin(&mut self, spec: ConsumerSpec, context: &Context<Self>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.start_consumer(id, spec, 0, context);
        id
    }

    fn start_consumer(&mut self, id: u64, spec: ConsumerSpec, restarts: u64, context: &Context<Self>) {
        let status = self.shared.status.join(id, &spec.runtime.name, spec.k, restarts);
        let fetcher = self.fetcher(&spec.runtime, context);
        let exit_guard = ExitGuard::new(context.address().recipient(), Who::Consumer(id));
        let address =
            Consumer::new(spec.clone(), self.shared.clone(), status.clone(), fetcher.clone(), exit_guard)
                .start();
        self.queues.entry(spec.runtime.name.clone()).or_default().members.insert(id);
        self.consumers.insert(id, Member { spec, status, address, fetcher, restarts, leaving: false });
    }

    /// The fetcher for another consumer of the runtime.
    fn fetcher(&mut self, runtime: &Arc<QueueRuntime>, context: &Context<Self>) -> Addr<Fetcher> {
        let fetcher = self.fetchers.entry(Arc::as_ptr(runtime)).or_insert_with(|| {
            let exit_guard = ExitGuard::new(context.address().recipient(), Who::Fetcher(runtime.clone()));
            FetcherOf {
                address: Fetcher::new(runtime.clone(), self.shared.observer.clone(), exit_guard).start(),
                consumers: 0,
            }
        });
        fetcher.consumers += 1;
        fetcher.address.clone()
    }

    /// A consumer of the runtime has ended. After the last one the fetcher ends.
    fn leave_fetcher(&mut self, Member { spec, fetcher: left, .. }: &Member) {
        let key = Arc::as_ptr(&spec.runtime);
        // A fetcher that panicked is gone, and another may have replaced it.
        let Some(fetcher) = self.fetchers.get_mut(&key).filter(|it| it.address == *left) else { return };
        fetcher.consumers -= 1;
        if fetcher.consumers == 0 {
            fetcher.address.do_send(StopFetcher);
            self.fetchers.remove(&key);
        }
    }

    fn restart(&mut self, id: u64, member: Member, context: &Context<Self>) {
        let queue = member.spec.runtime.name.clone();
        if self.restart_limiter.allows(Instant::now()) {
            tracing::warn!(
                event = "consumer_restarted",
                %queue,
                consumer = id,
                "consumer restarted"
            );
            member.spec.runtime.meters.restarts.inc();
            self.start_consumer(id, member.spec, member.restarts + 1, context);
            return;
        }
        let (restarts, within) = self.restart_limiter.limit();
        tracing::error!(
            event = "restart_limit_exceeded",
            %queue,
            consumer = id,
            restarts,
            ?within,
            "too many consumer failures; the daemon stops"
        );
        self.finish(SupervisorExit::TooManyFailures { queue, restarts, within });
    }

    /// Replaces a queue's consumers.
    fn reconcile(&mut self, queue: &Arc<str>, wanted: Vec<ConsumerSpec>, context: &Context<Self>) {
        let queue_consumers = self.queues.entry(queue.clone()).or_default();
        let running = queue_consumers.members.iter().filter_map(|id| {
            let Member { spec, leaving, .. } = self.consumers.get(id)?;
            Some(RunningConsumer { id: *id, spec: spec.clone(), leaving: *leaving })
        });
        let (reconciler, Changes { leave, start }) =
            Reconciler::reconcile(&running.collect::<Vec<_>>(), wanted);
        queue_consumers.reconciler = Some(reconciler);
        for id in leave {
            self.leave(id);
        }
        for spec in start {
            self.begin(spec, context);
        }
        self.tell_finishing(queue);
    }

    /// Lets a consumer finish and stop. False if there is no such consumer.
    fn leave(&mut self, id: u64) -> bool {
        let Some(member) = self.consumers.get_mut(&id) else { return false };
        if !std::mem::replace(&mut member.leaving, true)
            && let Some(queue_consumers) = self.queues.get_mut(&member.spec.runtime.name)
        {
            queue_consumers.leaving += 1;
        }
        member.address.do_send(Drain);
        true
    }

    /// A consumer of the queue has ended.
    fn left(&mut self, queue: &Arc<str>, id: u64, was_leaving: bool) {
        let Some(queue_consumers) = self.queues.get_mut(queue) else { return };
        queue_consumers.members.remove(&id);
        queue_consumers.leaving -= usize::from(was_leaving);
    }

    /// A consumer of the queue has ended, so a waiting one may start.
    fn fill(&mut self, queue: &Arc<str>, context: &Context<Self>) {
        let start = self.queues.get_mut(queue).and_then(|queue_consumers| {
            let running = queue_consumers.members.len();
            Some(queue_consumers.reconciler.as_mut()?.fill_vacancies(running))
        });
        for spec in start.into_iter().flatten() {
            self.begin(spec, context);
        }
    }

    /// Publishes whether the queue has consumers that are leaving, or new ones that wait for that.
    fn tell_finishing(&self, queue: &Arc<str>) {
        let is_finishing = self.queues.get(queue).is_some_and(QueueConsumers::is_finishing);
        self.shared.finishing(queue, is_finishing);
    }

    fn finish(&self, end: SupervisorExit) {
        // When the daemon is stopping already, nobody waits.
        let _ = self.ends.send(end);
    }

    fn drain(&mut self) {
        self.draining = true;
        self.queues.values_mut().for_each(|queue_consumers| queue_consumers.reconciler = None);
        for id in self.consumers.keys().copied().collect::<Vec<_>>() {
            self.leave(id);
        }
        if self.consumers.is_empty() {
            self.finish(SupervisorExit::Finished);
        }
        self.shared.left(self.consumers.len());
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;
}

impl Handler<Start> for Supervisor {
    type Result = Vec<u64>;

    fn handle(&mut self, Start(specs): Start, context: &mut Context<Self>) -> Self::Result {
        let ids = specs.into_iter().map(|spec| self.begin(spec, context)).collect();
        self.shared.left(self.consumers.len());
        ids
    }
}

impl Handler<Stop> for Supervisor {
    type Result = bool;

    fn handle(&mut self, Stop(id): Stop, _: &mut Context<Self>) -> bool {
        self.leave(id)
    }
}

impl Handler<Reconcile> for Supervisor {
    type Result = ();

    fn handle(&mut self, Reconcile(mut wanted): Reconcile, context: &mut Context<Self>) {
        if self.draining {
            return;
        }
        for (queue, _) in
            self.queues.iter().filter(|(_, queue_consumers)| queue_consumers.reconciler.is_some())
        {
            wanted.entry(queue.clone()).or_default();
        }
        for (queue, specs) in wanted {
            self.reconcile(&queue, specs, context);
        }
        self.shared.left(self.consumers.len());
    }
}

impl Handler<ListConsumers> for Supervisor {
    type Result = Vec<ConsumerRef>;

    fn handle(&mut self, _: ListConsumers, _: &mut Context<Self>) -> Self::Result {
        let present = self.consumers.values().map(|Member { spec, status, address, .. }| {
            // A full mailbox shows that the consumer does not read it.
            let _ = address.try_send(Ping);
            ConsumerRef { status: status.clone(), runtime: spec.runtime.clone() }
        });
        present.collect()
    }
}

impl Handler<Drain> for Supervisor {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Context<Self>) {
        self.drain();
    }
}

impl Handler<ActorExited> for Supervisor {
    type Result = ();

    fn handle(&mut self, ActorExited { who, reason }: ActorExited, context: &mut Context<Self>) {
        match who {
            Who::Consumer(id) => self.consumer_ended(id, reason, context),
            Who::Fetcher(runtime) if reason != ExitReason::Stopped => {
                self.fetcher_failed(&runtime, reason, context);
            }
            Who::Fetcher(_) => {}
        }
    }
}

impl Supervisor {
    fn consumer_ended(&mut self, id: u64, reason: ExitReason, context: &Context<Self>) {
        let Some(member) = self.consumers.remove(&id) else { return };
        self.leave_fetcher(&member);
        self.shared.status.leave(id);
        let queue = member.spec.runtime.name.clone();
        let leaving = member.leaving;
        self.left(&queue, id, leaving);
        if reason == ExitReason::Stopped {
            tracing::debug!(event = "consumer_stopped", %queue, consumer = id, "consumer stopped");
            self.ran_dry |= !leaving;
        } else {
            tracing::error!(
                event = "consumer_failed",
                %queue,
                consumer = id,
                ?reason,
                "consumer failed"
            );
            if !leaving {
                self.restart(id, member, context);
            }
        }
        self.fill(&queue, context);
        self.shared.left(self.consumers.len());
        if !self.draining {
            self.tell_finishing(&queue);
        }
        if self.consumers.is_empty() && (self.draining || self.ran_dry) {
            self.finish(SupervisorExit::Finished);
        }
    }

    /// Its consumers get no more replies. They end, and new ones with another fetcher replace them.
    fn fetcher_failed(&mut self, runtime: &Arc<QueueRuntime>, reason: ExitReason, context: &Context<Self>) {
        let queue = &runtime.name;
        tracing::error!(event = "fetcher_failed", %queue, ?reason, "fetcher failed");
        self.fetchers.remove(&Arc::as_ptr(runtime));
        let of_source = |member: &&Member| Arc::ptr_eq(&member.spec.runtime, runtime) && !member.leaving;
        let specs: Vec<_> =
            self.consumers.values().filter(of_source).map(|member| member.spec.clone()).collect();
        let ids: Vec<_> =
            self.consumers.iter().filter(|(_, member)| of_source(member)).map(|(id, _)| *id).collect();
        if specs.is_empty() {
            return;
        }
        if !self.restart_limiter.allows(Instant::now()) {
            let (restarts, within) = self.restart_limiter.limit();
            tracing::error!(
                event = "restart_limit_exceeded",
                %queue,
                restarts,
                ?within,
                "too many consumer failures; the daemon stops"
            );
            return self.finish(SupervisorExit::TooManyFailures { queue: queue.clone(), restarts, within });
        }
        runtime.meters.restarts.inc();
        for id in ids {
            self.leave(id);
        }
        self.reconcile(queue, specs, context);
    }
}
