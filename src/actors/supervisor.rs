//! The supervisor: keeps consumers alive, within a limit.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, Addr, AsyncContext, Context, Handler};
use tokio::sync::mpsc;

use super::{
    consumer::Consumer,
    crew::Shared,
    intensity::Intensity,
    messages::{Drain, End, Ended, Ending, Spec, Start, Stop},
    obituary::Obituary,
};

/// So many failed consumers are replaced...
const RESTARTS: usize = 5;

/// ...within this time; one more ends the crew.
const WITHIN: Duration = Duration::from_secs(30);

/// The actor.
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    consumers: BTreeMap<u64, Member>,
    next_id: u64,
    intensity: Intensity,
    draining: bool,
    /// Told how it all ended: at most once per consumer, and once per drain. Dropped, it tells that the supervisor died.
    ends: mpsc::UnboundedSender<End>,
}

struct Member {
    spec: Spec,
    address: Addr<Consumer>,
    /// Told to stop, so not to be replaced.
    leaving: bool,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, ends: mpsc::UnboundedSender<End>) -> Self {
        Self {
            shared,
            consumers: BTreeMap::new(),
            next_id: 1,
            intensity: Intensity::new(RESTARTS, WITHIN),
            draining: false,
            ends,
        }
    }

    fn start_consumer(&mut self, id: u64, spec: Spec, context: &Context<Self>) {
        let obituary = Obituary::new(context.address(), id);
        let address = Consumer::new(id, spec.clone(), self.shared.clone(), obituary).start();
        self.consumers.insert(id, Member { spec, address, leaving: false });
    }

    fn restart(&mut self, id: u64, member: Member, context: &Context<Self>) {
        let queue = member.spec.source.name.clone();
        if self.intensity.allows(Instant::now()) {
            tracing::warn!(%queue, consumer = id, "consumer replaced");
            self.start_consumer(id, member.spec, context);
            return;
        }
        let (restarts, within) = self.intensity.limit();
        tracing::error!(%queue, consumer = id, restarts, ?within, "too many consumers failed");
        self.finish(End::TooManyFailures { queue, restarts, within });
    }

    fn finish(&self, end: End) {
        // Nobody waits any more when the daemon is on its way out already.
        let _ = self.ends.send(end);
    }

    fn drain(&mut self) {
        self.draining = true;
        for member in self.consumers.values_mut() {
            member.leaving = true;
            member.address.do_send(Drain);
        }
        if self.consumers.is_empty() {
            self.finish(End::Finished);
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
        let ids = (self.next_id..).zip(specs).map(|(id, spec)| {
            self.next_id = id + 1;
            self.start_consumer(id, spec, context);
            id
        });
        let ids = ids.collect();
        self.shared.left(self.consumers.len());
        ids
    }
}

impl Handler<Stop> for Supervisor {
    type Result = bool;

    fn handle(&mut self, Stop(id): Stop, _: &mut Context<Self>) -> bool {
        let Some(member) = self.consumers.get_mut(&id) else { return false };
        member.leaving = true;
        member.address.do_send(Drain);
        true
    }
}

impl Handler<Drain> for Supervisor {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Context<Self>) {
        self.drain();
    }
}

impl Handler<Ended> for Supervisor {
    type Result = ();

    fn handle(&mut self, Ended { consumer: id, ending }: Ended, context: &mut Context<Self>) {
        let Some(member) = self.consumers.remove(&id) else { return };
        let queue = &member.spec.source.name;
        let ran_dry = ending == Ending::Stopped && !member.leaving;
        if ending == Ending::Stopped {
            tracing::debug!(%queue, consumer = id, "consumer stopped");
        } else {
            tracing::error!(%queue, consumer = id, ?ending, "consumer failed");
            if !member.leaving {
                self.restart(id, member, context);
            }
        }
        self.shared.left(self.consumers.len());
        if self.consumers.is_empty() && (self.draining || ran_dry) {
            self.finish(End::Finished);
        }
    }
}
