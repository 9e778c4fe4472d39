//! The options by which a command names a queue and its layout.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use kvqueue_queue::{Queue, Recording};

use super::{UsageError, api_client::encoded, client::Client, completions};
use crate::{
    config::{KindName, QueueConfig, TakeEnd, Values},
    database::item_history,
    operations::{
        self, Site,
        names::QueueName,
        target::{HEADING, Layout},
    },
};

/// A queue by its name. The configuration has the layout if the options do not.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The queue; one that was never pushed to is empty
    #[arg(add = completions::queue())]
    pub(super) queue: OsString,
    #[command(flatten)]
    layout: Layout,
}

impl Target {
    /// The same for an operation.
    pub(super) fn of_operation(&self) -> operations::target::Target {
        operations::target::Target { queue: QueueName(self.queue.as_bytes().to_vec()), layout: self.layout }
    }

    /// For a command that adds items, and so makes the queue if it is not there.
    pub(super) fn open(&self, client: &Client) -> anyhow::Result<Queue> {
        let queue = self.open_quietly(client)?;
        client.note_if_new(&queue)?;
        Ok(queue)
    }

    /// The same without a note about a new queue.
    pub(super) fn open_quietly(&self, client: &Client) -> anyhow::Result<Queue> {
        to_add(client, &self.queue, &self.layout, "--")
    }

    /// A path of the queue at a daemon, whose configuration has the layout.
    pub(super) fn path_at_daemon(&self, rest: &str) -> Result<String, UsageError> {
        if self.layout != Layout::default() {
            let problem =
                "the daemon's configuration has the kind of each queue; leave out --kind, --values and --end";
            return Err(UsageError(problem.to_owned()));
        }
        Ok(path_at_daemon(&self.queue)? + rest)
    }

    /// For a command that looks at the queue. If there is none, stderr says so.
    pub(super) fn find(&self, client: &Client) -> anyhow::Result<Queue> {
        let queue = open(client, &self.queue, &self.layout, "--")?;
        let site: &dyn Site = client;
        client.wait(async {
            site.note_if_absent(&queue).await?;
            site.check_kind(&queue).await
        })?;
        Ok(queue)
    }

    /// For a command that acts on what the queue has. It is an error if there is none.
    pub(super) fn find_there(&self, client: &Client) -> anyhow::Result<Queue> {
        let queue = open(client, &self.queue, &self.layout, "--")?;
        let site: &dyn Site = client;
        client.wait(async {
            site.expect_queue(&queue, None).await?;
            site.check_kind(&queue).await
        })?;
        Ok(queue)
    }

    /// The queue's settings: from the configuration, or the defaults.
    pub(super) fn settings(&self, client: &Client) -> QueueConfig {
        self.config(client).cloned().unwrap_or_else(|| QueueConfig::new(""))
    }

    /// The longest payload that the configuration allows in it, in bytes.
    pub(super) fn max_payload(&self, client: &Client) -> usize {
        usize::try_from(self.settings(client).max_payload).unwrap_or(usize::MAX)
    }

    fn config<'c>(&self, client: &'c Client) -> Option<&'c QueueConfig> {
        settings(client, &self.queue)
    }
}

/// The path of a queue at a daemon.
pub(super) fn path_at_daemon(queue: &OsStr) -> Result<String, UsageError> {
    match queue.to_str() {
        Some(name) => Ok(format!("/api/v1/queues/{}", encoded(name))),
        None => Err(UsageError("over HTTP the name of a queue has to be UTF-8".to_owned())),
    }
}

/// The queue of a name with its configured layout, for a command that adds items.
pub(super) fn configured(client: &Client, name: &OsStr) -> anyhow::Result<Queue> {
    let layout = Layout::default();
    let queue = to_add(client, name, &layout, "--")?;
    client.note_if_new(&queue)?;
    Ok(queue)
}

/// A second queue, that something goes to.
#[derive(Debug, clap::Args)]
pub(super) struct Destination {
    /// The queue that they go to
    #[arg(value_name = "TO", add = completions::queue())]
    pub(super) to: OsString,
    /// The kind of that queue [default: fifo]
    #[arg(long, value_enum, help_heading = HEADING)]
    to_kind: Option<KindName>,
    /// The packing of that queue's values, in a recipe's queue [default: raw]
    #[arg(long, value_enum, help_heading = HEADING)]
    to_values: Option<Values>,
    /// The end of that priority queue that items are taken from [default: min]
    #[arg(long, value_enum, help_heading = HEADING)]
    to_end: Option<TakeEnd>,
}

impl Destination {
    pub(super) fn layout(&self) -> Layout {
        Layout { kind: self.to_kind, values: self.to_values, end: self.to_end }
    }

    pub(super) fn queue(&self, client: &Client) -> anyhow::Result<Queue> {
        to_add(client, &self.to, &self.layout(), "--to-")
    }
}

fn settings<'c>(client: &'c Client, name: &OsStr) -> Option<&'c QueueConfig> {
    client.config().queues.get(name.to_str()?)
}

/// A queue that items are added to. Its kind must be the configured one, because a daemon finds no items of another kind.
fn to_add(client: &Client, name: &OsStr, layout: &Layout, dashes: &str) -> anyhow::Result<Queue> {
    if let (Some(config), Some(kind)) = (settings(client, name), layout.kind)
        && config.kind != kind
    {
        let (there, name) = (config.layout(), name.display());
        return Err(UsageError(format!(
            "queue \"{name}\" is of kind {there} in the configuration, so no daemon would find these items; leave out {dashes}kind, or use another queue"
        )).into());
    }
    open(client, name, layout, dashes)
}

/// `dashes` is what the layout's options begin with.
fn open(client: &Client, name: &OsStr, layout: &Layout, dashes: &str) -> anyhow::Result<Queue> {
    client.expect_settings(name)?;
    let kind = layout.over(settings(client, name), dashes).map_err(UsageError)?;
    let queue = Queue::of_kind(client.prefix(), name.as_bytes(), kind)
        .map_err(|error| UsageError(error.to_string()))?;
    Ok(queue.with_recorder(&item_history::recorder(Recording::AsStored)))
}
