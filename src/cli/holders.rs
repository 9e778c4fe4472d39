//! Who has the leases of running items: a worker over HTTP, as the daemon knows it, or else the process whose session leased them.

use std::{collections::HashMap, ffi::OsStr, time::Duration};

use kvqueue_queue::LeaseView;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api_client::{ApiClient, encoded},
    client::Client,
    globals::Globals,
    status::Worker,
};
use crate::{consumer::identity, status::shortened};

/// How long the daemon may take. Without an answer, the processes are named.
const PATIENCE: Duration = Duration::from_secs(2);

/// The workers of a queue, by their leases as the daemon shows them.
#[derive(Default)]
pub(super) struct Holders(HashMap<String, Value>);

impl Holders {
    /// Asks the configuration's daemon. Other daemons of the database may know of others.
    pub(super) fn ask(globals: &Globals, client: &Client, queue: &OsStr) -> Self {
        let ask = || {
            let patience = globals.timeout().map_or(PATIENCE, |limit| limit.min(PATIENCE));
            let daemon = ApiClient::of(globals, client.config()).ok()?.within(patience);
            let path = format!("/api/v1/workers?queue={}", encoded(queue.to_str()?));
            let mut answer = daemon.get(&path).ok()?;
            let workers = answer["workers"].as_array_mut()?;
            let leased =
                workers.iter_mut().filter_map(|it| Some((it["lease"].as_str()?.to_owned(), it.take())));
            Some(Self(leased.collect()))
        };
        ask().unwrap_or_default()
    }

    /// Who has a lease, for people.
    pub(super) fn of(&self, lease: &LeaseView) -> String {
        let worker = self.0.get(&shortened(lease.id)).and_then(|worker| Worker::deserialize(worker).ok());
        let session = lease.id.session;
        match (worker, identity::maker(session)) {
            (Some(worker), _) => worker.to_string(),
            (None, Some(maker)) => format!("process {} (…{})", maker.pid, &format!("{session:?}")[24..]),
            (None, None) => format!("session {session:?}"),
        }
    }

    /// Adds the worker to an item's object, as the API has it.
    pub(super) fn insert(&self, lease: Option<&LeaseView>, object: &mut Value) {
        let worker = lease.and_then(|lease| self.0.get(&shortened(lease.id)));
        if let Some(worker) = worker {
            let [who, address, user_agent] = ["who", "address", "user_agent"].map(|key| &worker[key]);
            object["worker"] = json!({ "who": who, "address": address, "user_agent": user_agent });
        }
    }
}
