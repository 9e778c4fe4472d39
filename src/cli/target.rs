//! Which queue, and what is it like: options of all commands about one queue.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use kvqueue_queue::{Kind, Queue};

use super::{UsageError, client::Client};
use crate::config::{KindName, QueueConfig, TakeEnd, Values};

/// A queue by its name. What its options do not say, the configuration does if it has a queue of that name.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The queue; one that was never pushed to is empty
    pub(super) queue: OsString,
    #[command(flatten)]
    layout: Layout,
}

// Said for each option: a heading for all of them would go on over the command's own.
const HEADING: &str = "The queue's layout, where the configuration does not say it";

/// How the items are laid out.
#[derive(Debug, clap::Args)]
struct Layout {
    /// What kind of queue it is [default: fifo]
    #[arg(long, value_enum, help_heading = HEADING)]
    kind: Option<KindName>,
    /// What the values of a recipe's queue are [default: raw]
    #[arg(long, value_enum, help_heading = HEADING)]
    values: Option<Values>,
    /// The end of a priority queue that items are taken from [default: min]
    #[arg(long, value_enum, help_heading = HEADING)]
    end: Option<TakeEnd>,
}

impl Target {
    pub(super) fn open(&self, client: &Client) -> Result<Queue, UsageError> {
        let kind = self.layout.over(self.config(client))?;
        Queue::of_kind(client.prefix(), self.queue.as_bytes(), kind)
            .map_err(|error| UsageError(error.to_string()))
    }

    /// The longest payload that the configuration allows in it, in bytes.
    pub(super) fn max_payload(&self, client: &Client) -> usize {
        let limit =
            self.config(client).map_or_else(|| QueueConfig::new("").max_payload, |config| config.max_payload);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    fn config<'c>(&self, client: &'c Client) -> Option<&'c QueueConfig> {
        client.config().queues.get(self.queue.to_str()?)
    }
}

impl Layout {
    /// The layout that the options say, and where they say nothing, the configuration.
    fn over(&self, config: Option<&QueueConfig>) -> Result<Kind, UsageError> {
        let mut config = config.cloned().unwrap_or_else(|| QueueConfig::new(""));
        config.kind = self.kind.unwrap_or(config.kind);
        config.values = self.values.unwrap_or(config.values);
        config.end = self.end.unwrap_or(config.end);
        let wrong =
            |option, kinds| Err(UsageError(format!("{option} is for {kinds}; add --kind, or leave it out")));
        match (config.kind, self.values, self.end) {
            (KindName::Fifo, Some(_), _) => wrong("--values", "--kind recipe and --kind priority"),
            (KindName::Fifo | KindName::Recipe, _, Some(_)) => wrong("--end", "--kind priority"),
            _ => Ok(config.layout()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{End, Packing};

    use super::*;

    #[test]
    fn options_win_over_the_configuration() {
        let config: QueueConfig =
            toml::from_str("handler = 'log'\nkind = 'priority'\nvalues = 'tuple'\nend = 'max'").unwrap();
        let layout =
            |kind, values, end| Layout { kind, values, end }.over(Some(&config)).map_err(|error| error.0);
        assert_eq!(layout(None, None, None), Ok(Kind::Priority(End::Max, Packing::Tuple)));
        assert_eq!(layout(None, None, Some(TakeEnd::Min)), Ok(Kind::Priority(End::Min, Packing::Tuple)));
        assert_eq!(layout(Some(KindName::Recipe), None, None), Ok(Kind::Recipe(Packing::Tuple)));
        assert_eq!(layout(Some(KindName::Fifo), None, None), Ok(Kind::Fifo));
        let wrong = layout(Some(KindName::Fifo), Some(Values::Raw), None);
        assert_eq!(
            wrong.unwrap_err(),
            "--values is for --kind recipe and --kind priority; add --kind, or leave it out"
        );
        let wrong = layout(Some(KindName::Recipe), None, Some(TakeEnd::Max));
        assert_eq!(wrong.unwrap_err(), "--end is for --kind priority; add --kind, or leave it out");
    }
}
