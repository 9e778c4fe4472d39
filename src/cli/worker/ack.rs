//! `kvqueue ack`

use std::time::Duration;

use kvqueue_queue::ItemId;
use serde_json::{Value, json};

use super::{
    daemons::{PATIENCE, Until, Urls},
    queue_path, runtime,
};
use crate::{
    base::{exit::Exit, lease_text::LeaseText},
    cli::{UsageError, completions, globals::Globals, output},
    config::duration,
    handlers::ScopeName,
};

/// Acknowledge items of a lease: say how their attempts ended
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Acknowledge items of a lease: say how their attempts ended.\n\n\
    In one call or in several; each extends the lease of the items that are left. A call can be repeated: items that were acknowledged \
    before are passed over. If the lease is over, the exit code is 1, and others handle the items again.",
    after_help = "Examples:\n  \
    kvqueue ack emails $lease --done $ids\n  \
    kvqueue ack emails $lease --retry $id --after 5m --reason 'mailbox full'\n  \
    kvqueue ack emails $lease --throttle $id --after 30s --scope tenant\n  \
    kvqueue ack emails $lease --done $id --release-rest"
)]
pub(in crate::cli) struct Args {
    /// The queue
    #[arg(add = completions::queue())]
    queue: String,
    /// The lease, as `kvqueue lease` prints it
    lease: LeaseText,
    /// Items that are finished
    #[arg(long, value_name = "ID", num_args = 1..)]
    done: Vec<ItemId>,
    /// Items that failed: they are tried again by the queue's rules, and after the last attempt
    /// they are dead letters
    #[arg(long, value_name = "ID", num_args = 1..)]
    retry: Vec<ItemId>,
    /// Items that go back to the queue; the attempt does not count
    #[arg(long, value_name = "ID", num_args = 1..)]
    release: Vec<ItemId>,
    /// Items that failed for good: they are dead letters
    #[arg(long, value_name = "ID", num_args = 1..)]
    dead: Vec<ItemId>,
    /// Items that a service has refused for now: they go back to the queue, the attempt does not count, and no item of
    /// --scope starts for the time of --after
    #[arg(long, value_name = "ID", num_args = 1.., requires = "after")]
    throttle: Vec<ItemId>,
    /// Release all other items of the lease
    #[arg(long)]
    release_rest: bool,
    /// With --retry: when to try again, as in 5m. With --throttle: for how long
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    after: Option<Duration>,
    /// With --throttle: what waits [default: key]
    #[arg(long, value_name = "SCOPE", requires = "throttle")]
    scope: Option<ScopeName>,
    /// With --retry, --dead and --throttle: why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    urls: Urls,
}

impl Args {
    pub(in crate::cli) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let body = self.body()?;
        let daemons =
            self.urls.daemons(globals, globals.start_to_ask(self.urls.are_given())?, "kvqueue-ack")?;
        let path = format!("{}/leases/{}/acknowledge", queue_path(&self.queue), self.lease);
        let patience = globals.timeout().unwrap_or(PATIENCE);
        let answer = runtime()?.block_on(daemons.change(&path, &body, patience, Until::RoundEnds))?;
        let (acknowledged, open) = (output::items_of(&answer["acknowledged"]), &answer["open"]);
        let text = format!("acknowledged {acknowledged}; {open} left");
        output::line(globals.json, text.as_bytes(), &answer)?;
        Ok(Exit::Done)
    }

    /// The request.
    fn body(&self) -> Result<Value, UsageError> {
        let outcomes = [
            ("done", &self.done),
            ("retry", &self.retry),
            ("release", &self.release),
            ("dead", &self.dead),
            ("throttle", &self.throttle),
        ];
        let waits = !self.retry.is_empty() || !self.throttle.is_empty();
        if self.after.is_some() && !waits {
            return Err(UsageError("--after is for items of --retry and --throttle; name some".to_owned()));
        }
        if self.reason.is_some() && !waits && self.dead.is_empty() {
            let problem = "--reason is for items of --retry, --dead and --throttle; name some";
            return Err(UsageError(problem.to_owned()));
        }
        let of = |(word, ids): (&'static str, &Vec<ItemId>)| {
            ids.iter().map(|id| self.outcome(word, id)).collect::<Vec<_>>()
        };
        let outcomes: Vec<Value> = outcomes.into_iter().flat_map(of).collect();
        if outcomes.is_empty() && !self.release_rest {
            let fix =
                "name them with --done, --retry, --release, --dead or --throttle, or use --release-rest";
            return Err(UsageError(format!("there is no item to acknowledge; {fix}")));
        }
        Ok(json!({ "outcomes": outcomes, "release_rest": self.release_rest }))
    }

    fn outcome(&self, word: &str, id: &ItemId) -> Value {
        let mut outcome = json!({ "id": id.to_string(), "outcome": word });
        if let (Some(reason), "retry" | "dead" | "throttle") = (&self.reason, word) {
            outcome["reason"] = json!(reason);
        }
        if let (Some(after), "retry" | "throttle") = (self.after, word) {
            outcome["after_ms"] = json!(after.as_millis());
        }
        if let (Some(scope), "throttle") = (self.scope, word) {
            outcome["scope"] = json!(scope);
        }
        outcome
    }
}
