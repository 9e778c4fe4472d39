//! The queue that an operation is about: its name, and its layout where that matters.

use clap::Args;
use kvqueue_queue::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::QueueName;
use crate::config::{KindName, QueueConfig, TakeEnd, Values};

/// A queue by its name. The configuration has its layout, unless the arguments have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Target {
    /// The queue.
    #[serde(flatten)]
    pub(crate) queue: QueueName,
    #[serde(flatten)]
    pub(crate) layout: Layout,
}

// Each option has the heading: a heading for all of them would also be that of the command's own options.
pub(crate) const HEADING: &str = "Layout of the queue (default: as configured)";

/// How the items are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct Layout {
    /// The kind of the queue [default: fifo]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, help_heading = HEADING)]
    pub(crate) kind: Option<KindName>,
    /// The packing of the values in a recipe's queue [default: raw]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, help_heading = HEADING)]
    pub(crate) values: Option<Values>,
    /// The end of a priority queue that items are taken from [default: min]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, help_heading = HEADING)]
    pub(crate) end: Option<TakeEnd>,
}

impl Target {
    /// The queue of this name, with the layout of the configuration.
    pub(crate) fn named(name: &str) -> Self {
        Self { queue: QueueName(name.as_bytes().to_vec()), layout: Layout::default() }
    }
}

impl Layout {
    /// The layout by the arguments, and otherwise by the configuration. The names of the arguments begin with `dashes`.
    ///
    /// # Errors
    /// An argument that is for another kind of queue.
    pub(crate) fn over(&self, config: Option<&QueueConfig>, dashes: &str) -> Result<Kind, String> {
        let mut config = config.cloned().unwrap_or_else(|| QueueConfig::new(""));
        config.kind = self.kind.unwrap_or(config.kind);
        config.values = self.values.unwrap_or(config.values);
        config.end = self.end.unwrap_or(config.end);
        let wrong = |option, kinds: String| {
            Err(format!("{dashes}{option} is for {kinds}; add {dashes}kind, or leave it out"))
        };
        match (config.kind, self.values, self.end) {
            (KindName::Fifo | KindName::Keyed, Some(_), _) => {
                wrong("values", format!("{dashes}kind recipe and {dashes}kind priority"))
            }
            (KindName::Fifo | KindName::Recipe | KindName::Keyed, _, Some(_)) => {
                wrong("end", format!("{dashes}kind priority"))
            }
            _ => Ok(config.layout()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{End, Packing};

    use super::*;

    #[test]
    fn arguments_win_over_the_configuration() {
        let config: QueueConfig =
            toml::from_str("handler = 'log'\nkind = 'priority'\nvalues = 'tuple'\nend = 'max'").unwrap();
        let layout = |kind, values, end| Layout { kind, values, end }.over(Some(&config), "--");
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
        assert_eq!(layout(Some(KindName::Keyed), None, None), Ok(Kind::Keyed));
        assert!(layout(Some(KindName::Keyed), None, Some(TakeEnd::Max)).is_err());
    }
}
