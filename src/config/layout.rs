//! How a queue's items are laid out: `kind`, `values`, `end`.

use serde::{Deserialize, Serialize};

/// The kinds of queues by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "http", derive(clap::ValueEnum))]
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// Items in the order of their commits.
    #[default]
    Fifo,
    /// FoundationDB's queue recipe.
    Recipe,
    /// FoundationDB's priority queue recipe.
    Priority,
    /// A small queue for each key. Keys take turns, and have limits.
    Keyed,
}

/// The packing of a recipe's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "http", derive(clap::ValueEnum))]
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// The payload, as the recipe's Python program has it.
    #[default]
    Raw,
    /// A tuple with the payload as its element, as the recipe's Java program has it.
    Tuple,
}

/// The end of a priority queue that items are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "http", derive(clap::ValueEnum))]
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TakeEnd {
    /// The lowest priority first.
    #[default]
    Min,
    /// The highest priority first.
    Max,
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{End, Kind, Packing};

    use crate::config::QueueConfig;

    fn layout(lines: &str) -> Kind {
        toml::from_str::<QueueConfig>(&format!("handler = 'log'\n{lines}")).unwrap().layout()
    }

    #[test]
    fn a_queue_is_configured_with_any_layout() {
        let packings = [Packing::Raw, Packing::Tuple];
        let ends = [End::Min, End::Max].map(|end| packings.map(|packing| Kind::Priority(end, packing)));
        let recipes = packings.map(Kind::Recipe);
        for layout in [Kind::Fifo, Kind::Keyed].into_iter().chain(recipes).chain(ends.concat()) {
            assert_eq!(QueueConfig::new("log").with_layout(layout).layout(), layout);
        }
    }

    #[test]
    fn kind_values_and_end_select_the_queue_kind() {
        assert_eq!(layout(""), Kind::Fifo);
        assert_eq!(layout("kind = 'recipe'"), Kind::Recipe(Packing::Raw));
        assert_eq!(layout("kind = 'recipe'\nvalues = 'tuple'"), Kind::Recipe(Packing::Tuple));
        assert_eq!(layout("kind = 'priority'"), Kind::Priority(End::Min, Packing::Raw));
        assert_eq!(layout("kind = 'keyed'"), Kind::Keyed);
        assert_eq!(
            layout("kind = 'priority'\nend = 'max'\nvalues = 'tuple'"),
            Kind::Priority(End::Max, Packing::Tuple)
        );
    }
}
