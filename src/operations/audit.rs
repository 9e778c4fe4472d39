//! The audit trail: who changed a queue or the daemon, what, and when.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use super::{
    Answer, Operation, Page, Refusal, Route, Site, Text, Visit,
    names::{self, QueueName},
};
use crate::{
    audit::{AuditStore, Cursor, Filter, Record},
    database::item_history::moment,
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListAudit>();
}

/// List the records of the audit trail, the newest first. Records that a newer version of kvqueue wrote may be left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListAudit {
    /// Only records about this queue, also of items that were moved to it.
    #[serde(flatten, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<QueueName>,
    /// Only records of then or later: how long ago, as in 2h, or a time in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// A record, as [`Record::json`] has it.
#[derive(Clone, Debug)]
pub(crate) struct ShownRecord(pub(crate) Record);

impl Serialize for ShownRecord {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        self.0.json().serialize(output)
    }
}

impl<'de> Deserialize<'de> for ShownRecord {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Record::of_json(Value::deserialize(input)?).map(Self).map_err(D::Error::custom)
    }
}

/// Records, the newest first. A page may have few, or none, and a next one.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Records {
    #[schemars(schema_with = "records_schema")]
    pub(crate) records: Vec<ShownRecord>,
    /// Where the next page begins.
    next: Option<String>,
}

fn records_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/components/schemas/AuditRecord" } })
}

impl Answer for Records {
    const LIST: Option<&'static str> = Some("records");

    fn text(&self) -> Text {
        let lines: Vec<_> = self.records.iter().map(|record| record.0.line()).collect();
        Text::Line(lines.join("\n"))
    }
}

impl ListAudit {
    fn after(&self) -> Result<Option<Cursor>, Refusal> {
        let after = self.page.after.as_deref().map(str::parse::<Cursor>).transpose();
        after.map_err(|error| Refusal::bad(format!("after: {error}")))
    }

    fn filter(&self) -> Result<Filter, Refusal> {
        let since = self.since.as_deref().map(moment).transpose();
        let since = since.map_err(|error| Refusal::bad(format!("since: {error}")))?;
        Ok(Filter { queue: self.queue.clone().map(|queue| queue.0), since })
    }
}

impl Operation for ListAudit {
    const ROUTE: Route = {
        const NOTES: &str = "`since` is a time ago (`2h`) or a time. [The audit trail](security/audit.md#the-audit-trail) has more";
        Route::read("/api/v1/audit").of_operators().with_notes(NOTES)
    };
    type Answer = Records;

    fn check(&self) -> Result<(), Refusal> {
        self.filter().and(self.after()).map(drop)
    }

    fn go_on(&mut self, so_far: &Records) -> bool {
        self.page.go_on(so_far.records.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Records> {
        let store = &AuditStore::new(site.config().prefix.as_bytes());
        let (filter, after, most) = (&self.filter()?, self.after()?, self.page.most().get());
        let page = site.transact(async |tr| store.page(tr, after, filter, most).await).await?;
        let records = page.records.into_iter().map(ShownRecord).collect();
        Ok(Records { records, next: page.next.map(|next| next.to_string()) })
    }
}
