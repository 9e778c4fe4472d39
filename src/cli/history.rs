//! `kvqueue history`

use kvqueue_queue::Ending;

use super::{UsageError, api_client::ApiClient, globals::Globals, operation, target::Target, values};
use crate::{
    base::exit::Exit,
    operations::{Page, ended::ListEnded},
};

/// Print which items have ended, how and when; the newest first
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print which items have ended, how and when; the newest first.\n\n\
    A queue keeps ended items, without their payloads, for the time that its setting `history` names; without the setting it keeps none.",
    after_help = "Examples:\n  \
    kvqueue history emails --outcome dead --since 2h\n  \
    kvqueue history emails --attribute customer=ann -n 10\n  \
    kvqueue item show emails ID"
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Only items that ended so: done, dead, cancelled, expired or taken
    #[arg(long)]
    outcome: Option<Ending>,
    /// Only items with this attribute, as in customer=ann; with several, items that have all of them
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = values::attribute)]
    attributes: Vec<(String, String)>,
    /// Only items that this schedule pushed
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// Only items that ended then or later: a time ago, as in 2h, or a time in RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only items that ended before: a time ago, as in 2h, or a time in RFC 3339
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    page: Page,
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut attributes = self.attributes.into_iter();
        let attribute = attributes.next().map(|(name, value)| format!("{name}={value}"));
        let list = ListEnded {
            target: self.target.of_operation(),
            outcome: self.outcome.map(|outcome| outcome.to_string()),
            attribute,
            attributes: attributes.collect(),
            schedule: self.schedule,
            since: self.since,
            until: self.until,
            page: self.page,
        };
        if !list.attributes.is_empty() && ApiClient::of_database(globals)?.is_some() {
            let problem = "over HTTP one --attribute is possible; give one, or the database itself";
            return Err(UsageError(problem.to_owned()).into());
        }
        operation::run(list, globals)
    }
}
