//! The history of a queue: which items have ended, how and when.

use std::{num::NonZeroUsize, time::SystemTime};

use kvqueue_queue::{Ending, HistoryCursor, HistoryFilter, Queue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Answer, Operation, Page, Refusal, Route, Site, Text, Visit, look::Item, target::Target};
use crate::{
    base::json,
    database::item_history::{self, moment},
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListEnded>();
}

/// List the items that have ended, if the queue keeps a history.
/// The newest come first: by the clocks of the processes that ended them, to a minute, and within a minute in the order of the commits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListEnded {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// Items that ended so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["done", "dead", "cancelled", "expired", "taken", null]))]
    pub(crate) outcome: Option<String>,
    /// Items with this attribute, as in customer=ann.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[^=]+=.*$"))]
    pub(crate) attribute: Option<String>,
    /// Further attributes, which a request cannot have.
    #[serde(skip)]
    pub(crate) attributes: Vec<(String, String)>,
    /// Items that this schedule pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    /// Items that ended then or later: how long ago, as in 2h, or a time in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// Items that ended before: how long ago, as in 2h, or a time in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Items that have ended. A request reads about a megabyte of records, so with a filter a page may be short, or even empty, and have a next one.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Ended {
    #[schemars(schema_with = "ended_schema")]
    items: Vec<Item>,
    /// Where the next page begins.
    next: Option<String>,
    /// Records of the page that cannot be read: damaged, or of a later version of kvqueue.
    unreadable: usize,
    /// How long the queue keeps ended items, in seconds; null if it keeps none.
    kept_seconds: Option<u64>,
    /// The attributes by which a search does not read all ended items; of one that was declared lately, for items that ended ten minutes later.
    indexed: Vec<String>,
}

fn ended_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/components/schemas/EndedItem" } })
}

impl Answer for Ended {
    const LIST: Option<&'static str> = Some("items");

    fn text(&self) -> Text {
        let columns = vec!["ended", "id", "outcome", "attempts", "took", "reason"];
        Text::Table(columns, self.items.iter().map(Item::ended_cells).collect())
    }
}

impl ListEnded {
    fn filter(&self) -> Result<HistoryFilter, Refusal> {
        let wrong = |name: &str, error: String| Refusal::bad(format!("{name}: {error}"));
        let attribute = self.attribute.as_ref().map(|text| match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(wrong("attribute", "write it as in customer=ann".to_owned())),
        });
        let time = |name, text: &Option<String>| -> Result<Option<SystemTime>, Refusal> {
            text.as_deref().map(moment).transpose().map_err(|error| wrong(name, error))
        };
        let ending = self.outcome.as_deref().map(str::parse::<Ending>).transpose();
        Ok(HistoryFilter {
            ending: ending.map_err(|error| wrong("outcome", error.to_string()))?,
            attributes: attribute.transpose()?.into_iter().chain(self.attributes.clone()).collect(),
            schedule: self.schedule.clone(),
            since: time("since", &self.since)?,
            until: time("until", &self.until)?,
        })
    }

    fn after(&self) -> Result<Option<HistoryCursor>, Refusal> {
        let after = self.page.after.as_deref().map(str::parse::<HistoryCursor>).transpose();
        after.map_err(|error| Refusal::bad(format!("after: {error}")))
    }

    /// Tells a person why there may be none.
    async fn note_if_off(&self, site: &dyn Site, queue: &Queue, is_kept: bool) -> anyhow::Result<()> {
        site.note_if_absent(queue).await?;
        let exists = site.transact(async |tr| queue.exists(tr).await);
        if !is_kept && site.notes().is_some() && exists.await? {
            let example = item_history::EXAMPLE;
            site.note(&format!(
                "queue \"{}\" keeps no history; set {example} in its configuration",
                self.target.queue
            ));
        }
        Ok(())
    }
}

impl Operation for ListEnded {
    const ROUTE: Route = {
        const NOTES: &str = "`attribute` is as in `customer=ann`; `since` and `until` are a time ago (`2h`) or a time. [HISTORY.md](HISTORY.md) has more; \
            `indexed` of the answer names the attributes of the [index](HISTORY.md#an-index-by-attributes)";
        Route::read("/api/v1/queues/{queue}/ended").with_notes(NOTES)
    };
    type Answer = Ended;

    fn check(&self) -> Result<(), Refusal> {
        self.filter().and(self.after()).map(drop)
    }

    fn go_on(&mut self, so_far: &Ended) -> bool {
        self.page.go_on(so_far.items.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Ended> {
        let (queue, filter, after) = (&site.queue(&self.target)?, &self.filter()?, self.after()?);
        let (limit, after) = (self.page.most(), after.as_ref());
        let page = site.transact(async |tr| {
            let mut page = queue.history(tr, filter, after, limit).await?;
            if page.items.len() == limit.get() && page.next.is_some() {
                // One look tells whether the page was the last one by chance. It does not read all of a long history.
                let rest = queue.history(tr, filter, page.next.as_ref(), NonZeroUsize::MIN).await?;
                page.next = page.next.filter(|_| !rest.items.is_empty() || rest.next.is_some());
            }
            Ok((page, queue.history_kept(tr).await?, queue.history_index(tr).await?))
        });
        let (page, kept, index) = page.await?;
        if page.items.is_empty() && after.is_none() && site.notes().is_some() {
            self.note_if_off(site, queue, kept.is_some()).await?;
        }
        Ok(Ended {
            items: page.items.iter().map(|item| Item::of(json::ended(item))).collect(),
            next: page.next.map(|next| next.to_string()),
            unreadable: page.unreadable,
            kept_seconds: kept.map(|kept| kept.as_secs()),
            indexed: index.names().map(str::to_owned).collect(),
        })
    }
}
