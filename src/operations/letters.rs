//! Dead letters: their list, and one of them.

use kvqueue_queue::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, Operation, Page, Refusal, Route, Site, Text, Visit,
    items::ItemTarget,
    object::{JsonObject, schema},
    target::Target,
};
use crate::base::{
    json,
    text::{one_line, visible},
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListLetters>();
    visit.operation::<ShowLetter>();
}

/// List the dead letters of a queue, without their payloads
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListLetters {
    #[serde(flatten)]
    pub(crate) target: Target,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Show all that is known of a dead letter
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShowLetter {
    #[serde(flatten)]
    pub(crate) item: ItemTarget,
}

/// A dead letter, as [`json::letter`] has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Letter(JsonObject);

schema!(Letter, { "$ref": "#/components/schemas/Letter", "description": "A dead letter, with up to 1 MiB of its payload." });

/// The most characters of a reason in a table. All of it is in the letter.
const REASON: usize = 200;

impl Letter {
    fn cells(&self, keyed: bool) -> Vec<String> {
        let field = |name| self.0.text_of(name).unwrap_or_default();
        let key = keyed.then(|| self.0.key_cell().unwrap_or_default());
        let rest = [field("died_at"), field("attempts"), one_line(&field("reason"), REASON)];
        [field("id")].into_iter().chain(key).chain(rest).collect()
    }
}

impl Answer for Letter {
    fn text(&self) -> Text {
        let fields = [("id", "id"), ("died", "died_at"), ("reason", "reason"), ("attempts", "attempts")];
        let (length, payload) = self.0.payload();
        Text::Fields(self.0.lines(&fields).chain(self.0.about()).chain([length]).collect(), payload)
    }

    fn problem(&self) -> Option<String> {
        self.0.problem("dead letter")
    }
}

/// Dead letters, in the order of their ids; if these are all, the oldest death comes first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Letters {
    letters: Vec<Letter>,
    /// The id behind which the next page begins.
    next: Option<String>,
}

impl Answer for Letters {
    const LIST: Option<&'static str> = Some("letters");

    fn text(&self) -> Text {
        let keyed = self.letters.iter().any(|letter| letter.0.key_cell().is_some());
        let columns = ["id"].into_iter().chain(keyed.then_some("key")).chain(["died", "attempts", "reason"]);
        Text::Table(columns.collect(), self.letters.iter().map(|letter| letter.cells(keyed)).collect())
    }
}

impl Operation for ListLetters {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/dead");
    type Answer = Letters;

    fn go_on(&mut self, so_far: &Letters) -> bool {
        self.page.go_on(so_far.letters.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Letters> {
        let queue = &site.queue_to_read(&self.target).await?;
        let after = self.page.after.as_deref().map(str::parse::<ItemId>).transpose();
        let after = after.map_err(|error| Refusal::bad(format!("after: {error}")))?;
        // One more than wanted tells whether there are more.
        let (most, after) = (self.page.most(), after.as_ref());
        let limit = most.saturating_add(1);
        let mut letters = site.transact(async |tr| queue.dead_list(tr, after, limit).await).await?;
        let is_more = letters.len() > most.get();
        letters.truncate(most.get());
        let next = letters.last().filter(|_| is_more).map(|letter| letter.id.to_string());
        if after.is_none() && !is_more {
            letters.sort_by_key(|letter| letter.died_at);
        }
        if after.is_none() && letters.is_empty() && site.notes().is_some() {
            // Who misses an item among the dead letters may look for one that is to be tried again.
            let waiting = site.transact(async |tr| queue.counts(tr).await).await?.waiting;
            if waiting > 0 {
                let name = &self.target.queue;
                site.note(&format!(
                    "no dead letters; {waiting} waiting for a retry or their time: kvqueue peek {name} --state retrying"
                ));
            }
        }
        Ok(Letters {
            letters: letters.iter().map(|it| Letter(JsonObject::of(json::letter(it)))).collect(),
            next,
        })
    }
}

impl Operation for ShowLetter {
    const ROUTE: Route =
        Route::read("/api/v1/queues/{queue}/dead/{id}").with_notes("How its attempts ended, and its payload");
    type Answer = Letter;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Letter> {
        let (queue, id) = (&site.queue_to_read(&self.item.target).await?, &self.item.id);
        let found = site.transact(async |tr| queue.dead_get(tr, id).await).await?;
        let Some(letter) = found else {
            let name = visible(&String::from_utf8_lossy(queue.name()));
            let message = format!("queue \"{name}\" has no dead letter {id}");
            return Err(Refusal::not_found(message, "`kvqueue item show` says where the item is").into());
        };
        Ok(Letter(JsonObject::of(json::beginning(json::letter, &letter, site.most_of_payload()))))
    }
}
