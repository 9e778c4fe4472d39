//! Schedules: their list, one of them, what became of its times, and changes.

use std::{num::NonZeroUsize, time::SystemTime};

use kvqueue_queue::{
    ItemId, Queue,
    schedule::{ByHand, PutEffect, Schedule, ScheduleError},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Answer, Method, Operation, Page, Refusal, Route, Site, Text, Visit, is_false,
    names::QueueName,
    object::{JsonObject, Line, schema, text},
    target::Target,
};
use crate::{
    audit::Action,
    base::{
        causes::with_causes,
        clock::now,
        text::{one_line, visible},
        times::{between, just_before, parse},
    },
    config::{ScheduleDefinition, duration},
    schedules::{
        self, Change, Effect, Firing, ScheduleChange, SchedulePage, check_firable, firings, from, from_now,
        gone, local, local_exact, outcome_words, record_object, schedule_object,
    },
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListSchedules>();
    visit.operation::<ShowSchedule>();
    visit.operation::<RemoveSchedule>();
    visit.operation::<PauseSchedule>();
    visit.operation::<ResumeSchedule>();
    visit.operation::<FireSchedule>();
    visit.operation::<ListOccurrences>();
}

/// A schedule of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScheduleTarget {
    #[serde(flatten)]
    pub(crate) queue: QueueName,
    /// Its name.
    pub(crate) name: String,
}

/// List the schedules of a queue
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListSchedules {
    #[serde(flatten)]
    pub(crate) queue: QueueName,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Show all that is known of a schedule: its definition, how it stands, its next times and its last records
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ShowSchedule {
    #[serde(flatten)]
    pub(crate) schedule: ScheduleTarget,
}

/// List what became of a schedule's times, the newest first; the last 1,000 records are kept
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListOccurrences {
    #[serde(flatten)]
    pub(crate) schedule: ScheduleTarget,
    #[serde(flatten)]
    pub(crate) page: Page,
}

/// Remove a schedule with its history; the items that it has pushed stay
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RemoveSchedule {
    #[serde(flatten)]
    pub(crate) schedule: ScheduleTarget,
    /// Also if it belongs to a configuration, or cannot be read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) force: bool,
}

/// Pause a schedule: it does not fire until it is resumed
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PauseSchedule {
    #[serde(flatten)]
    pub(crate) schedule: ScheduleTarget,
}

/// Resume a paused schedule: it fires from now on; times of the pause are skipped
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ResumeSchedule {
    #[serde(flatten)]
    pub(crate) schedule: ScheduleTarget,
    /// Begin now, also if it is not paused: this mends a schedule that a wrong clock has moved ahead. Times after now that have fired already fire
    /// again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) restart: bool,
}

/// Push an item of a schedule now, also if it is paused; it goes on as if nothing had happened
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FireSchedule {
    #[serde(flatten)]
    pub(crate) target: Target,
    /// The schedule's name.
    pub(crate) name: String,
}

/// Makes a schedule, or replaces one that was made so. It is no [`Operation`], because the payload of its definition may be JSON, whose text is kept.
pub(crate) struct PutSchedule {
    pub(crate) target: Target,
    pub(crate) name: String,
    pub(crate) definition: ScheduleDefinition,
    /// Also before the first push to the queue.
    pub(crate) create: bool,
}

/// A schedule, as [`schedule_object`] has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ShownSchedule(JsonObject);

/// A schedule with its payload, its next times and its last records.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct WholeSchedule(ShownSchedule);

schema!(WholeSchedule, { "$ref": "#/components/schemas/WholeSchedule", "description": "The schedule." });

/// Schedules, in the order of their names.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Schedules {
    #[schemars(schema_with = "shown_schema")]
    schedules: Vec<ShownSchedule>,
    /// The name behind which the next page begins.
    next: Option<String>,
}

fn shown_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/components/schemas/Schedule" } })
}

/// What became of times of a schedule, the newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Occurrences {
    #[schemars(schema_with = "record_schema")]
    records: Vec<Value>,
    /// The number of the record behind which the next page begins.
    next: Option<String>,
    /// The time zone of the schedule.
    zone: Option<String>,
}

fn record_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/components/schemas/Occurrence" } })
}

/// A schedule that was changed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChangedSchedule {
    #[serde(flatten)]
    queue: QueueName,
    schedule: String,
    /// What was done: removed, paused, resumed or restarted.
    done: String,
    /// Whether it was not so before.
    changed: bool,
}

/// A schedule that was fired.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FiredSchedule {
    #[serde(flatten)]
    queue: QueueName,
    schedule: String,
    /// The id of its item; null if that is gone already.
    item: Option<String>,
}

/// A schedule that is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSchedule {
    #[serde(flatten)]
    queue: QueueName,
    schedule: String,
    /// created, replaced or unchanged.
    effect: String,
    /// When it fires, in English.
    description: String,
    /// Its time zone.
    zone: Option<String>,
    /// When it fires next.
    next: Option<Value>,
}

/// A time of JSON.
fn time_of(time: &Value) -> Option<SystemTime> {
    parse(time.as_str()?)
}

/// How many next times and records are shown.
const SOME: NonZeroUsize = NonZeroUsize::new(5).expect("5 is not 0");

/// The most characters of a payload in the text.
const PAYLOAD: usize = 200;

impl ShownSchedule {
    fn field(&self, name: &str) -> String {
        self.0.text_of(name).unwrap_or_default()
    }

    fn zone(&self) -> Option<&str> {
        self.0.get("definition")["zone"].as_str()
    }

    /// The schedule, unless it cannot be read. In a list it has no payload.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let definition =
            serde_json::from_value::<ScheduleDefinition>(self.0.get("definition").clone()).ok()?;
        definition.schedule(self.field("name"), None).ok()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.0.get("paused_since").is_string()
    }

    /// The time after which its next times are.
    pub(crate) fn from(&self, now: SystemTime) -> SystemTime {
        time_of(&self.0.get("next")["time"]).map_or(now, just_before)
    }

    /// How it stands, in words.
    fn standing(&self) -> String {
        let since =
            |field: &str| time_of(self.0.get(field)).map(|at| local(at, self.zone())).unwrap_or_default();
        match self.field("state").as_str() {
            "overdue" => "overdue: no daemon has fired it".to_owned(),
            "paused" => format!("paused since {}", since("paused_since")),
            "waiting" => format!("waiting for the end of its last item, since {}", since("waiting_time")),
            "unreadable" => "unreadable: upgrade kvqueue".to_owned(),
            state => state.to_owned(),
        }
    }

    fn cells(&self, now: SystemTime) -> Vec<String> {
        let when = |time: &Value| {
            time_of(time)
                .map(|at| format!("{}, {}", local(at, self.zone()), from_now(at, now)))
                .unwrap_or_default()
        };
        vec![
            visible(&self.field("name")),
            self.schedule().as_ref().map(calendar).unwrap_or_default(),
            self.zone().unwrap_or_default().to_owned(),
            when(&self.0.get("next")["fires_at"]),
            when(&self.0.get("last")["time"]),
            self.standing(),
            visible(self.0.get("owner").as_str().unwrap_or_default()),
        ]
    }

    fn lines(&self, now: SystemTime) -> Vec<Line> {
        let queue = QueueName::deserialize(&self.0.0).unwrap_or_default();
        let mut lines = vec![("queue", queue.to_string()), ("schedule", visible(&self.field("name")))];
        if let Some(schedule) = self.schedule() {
            self.definition(&mut lines, &schedule);
        }
        lines.push(("state", self.standing()));
        lines.extend(self.0.lines(&[("items", "occurrences")]));
        let last = self.0.get("last");
        lines.extend(time_of(&last["time"]).map(|at| {
            let (time, item) = (local(at, self.zone()), text(&last["item"]));
            ("last", format!("{time}, {}, item {item}", from_now(at, now)))
        }));
        lines
    }

    fn definition(&self, lines: &mut Vec<Line>, schedule: &Schedule) {
        let (item, named) = (&schedule.item, self.0.get("definition"));
        lines.push(("calendar", calendar(schedule)));
        lines.extend(self.zone().map(|zone| ("zone", zone.to_owned())));
        lines.push(("description", self.field("description")));
        let owner = self.0.get("owner").as_str();
        lines.push(("owner", owner.map_or("none: it was made at run time".to_owned(), visible)));
        lines.push(("payload", payload(&item.payload)));
        let attributes = item.attributes.iter();
        lines.extend(attributes.map(|(name, value)| ("attribute", visible(&format!("{name}={value}")))));
        lines.extend(item.content_type.as_deref().map(|text| ("content type", visible(text))));
        lines.extend(item.key.as_ref().map(|key| ("key", key.escape_ascii().to_string())));
        lines.extend((item.priority != 0).then(|| ("priority", item.priority.to_string())));
        lines.push(("missed", missed(named)));
        lines.push(("overlap", text(&named["overlap"])));
        if !schedule.jitter.is_zero() {
            let next = self.0.get("next");
            let offset = time_of(&next["fires_at"])
                .zip(time_of(&next["time"]))
                .map(|(fires, time)| between(time, fires));
            let jitter = duration::format(schedule.jitter);
            lines.push((
                "jitter",
                match offset {
                    Some(offset) => {
                        let offset = duration::format(offset);
                        format!("{jitter}: it fires {offset} after its times")
                    }
                    None => jitter,
                },
            ));
        }
    }
}

/// The expression as it was written, or the period.
fn calendar(schedule: &Schedule) -> String {
    match schedule.calendar.period() {
        Some(_) => format!("every {}", schedule.calendar),
        None => visible(&schedule.calendar.to_string()),
    }
}

fn missed(definition: &Value) -> String {
    let mut missed = text(&definition["missed"]);
    if let Some(window) = definition["missed_window"].as_str() {
        missed += &format!(", not older than {window}");
    }
    if missed.starts_with("all") {
        let default = ScheduleDefinition::default().missed_max;
        missed += &format!(", at most {}", definition["missed_max"].as_u64().unwrap_or(default.into()));
    }
    missed
}

fn payload(payload: &[u8]) -> String {
    let bytes = format!("{} bytes", payload.len());
    match str::from_utf8(payload) {
        Ok("") => "empty".to_owned(),
        Ok(text) => format!("{bytes}: {}", one_line(text, PAYLOAD)),
        Err(_) => format!("{bytes} that are not text"),
    }
}

/// The columns and rows of times: as the calendar has them, when they fire, and how far that is from `now`.
pub(crate) fn times_table(
    schedule: &Schedule,
    firings: &[Firing],
    now: Option<SystemTime>,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let (zone, is_exact) = (schedule.calendar.zone(), schedule.jitter.is_zero());
    let columns = ["time"].into_iter().chain((!is_exact).then_some("fires")).chain(now.map(|_| "from now"));
    let rows = firings.iter().map(|Firing { nominal, fires }| {
        let at = (!is_exact).then(|| local(*fires, zone));
        let from_now = now.map(|now| from_now(*fires, now));
        [local_exact(*nominal, zone)].into_iter().chain(at).chain(from_now).collect()
    });
    (columns.collect(), rows.collect())
}

/// A record of times, with times on the clock of a zone.
fn record_cells(record: &Value, zone: Option<&str>) -> Vec<String> {
    let at = |field: &str| time_of(&record[field]).map(|at| local(at, zone)).unwrap_or_default();
    let (from, to) = (at("from"), at("to"));
    let times = match (record["from"] == record["to"], record["exact"] == true) {
        (true, _) => from,
        (false, true) => format!("{from} to {to}, {} times", record["count"]),
        (false, false) => format!("{from} to {to}, {} times or more", record["count"]),
    };
    let outcome = outcome_words(&text(&record["outcome"]), record["reason"].as_str());
    let item = record["item"].as_str().unwrap_or_default().to_owned();
    vec![record["number"].to_string(), at("at"), times, outcome, item]
}

const RECORD_COLUMNS: [&str; 5] = ["number", "recorded", "time", "outcome", "item"];

impl WholeSchedule {
    pub(crate) fn shown(&self) -> &ShownSchedule {
        &self.0
    }
}

impl Answer for WholeSchedule {
    fn text(&self) -> Text {
        let now = now();
        let Self(shown) = self;
        let mut tables = Vec::new();
        let times = shown.0.get("times").as_array().into_iter().flatten();
        let firings: Vec<_> = times
            .filter_map(|it| {
                Some(Firing { nominal: time_of(&it["time"])?, fires: time_of(&it["fires_at"])? })
            })
            .collect();
        if let Some(schedule) = shown.schedule().filter(|_| !firings.is_empty()) {
            let (columns, rows) = times_table(&schedule, &firings, Some(now));
            tables.push(("next times", columns, rows));
        }
        let records = shown.0.get("history").as_array().into_iter().flatten();
        let rows: Vec<_> = records.map(|record| record_cells(record, shown.zone())).collect();
        if !rows.is_empty() {
            tables.push(("last records", RECORD_COLUMNS.to_vec(), rows));
        }
        Text::Tables(shown.lines(now), tables)
    }
}

impl Answer for Schedules {
    const LIST: Option<&'static str> = Some("schedules");

    fn text(&self) -> Text {
        let (columns, now) = (vec!["name", "calendar", "zone", "next", "last", "state", "owner"], now());
        Text::Table(columns, self.schedules.iter().map(|shown| shown.cells(now)).collect())
    }
}

impl Answer for Occurrences {
    const LIST: Option<&'static str> = Some("records");

    fn text(&self) -> Text {
        let rows = self.records.iter().map(|record| record_cells(record, self.zone.as_deref()));
        Text::Table(RECORD_COLUMNS.to_vec(), rows.collect())
    }
}

impl Answer for ChangedSchedule {
    fn text(&self) -> Text {
        let Self { queue, schedule, done, changed } = self;
        let done = match (done.as_str(), changed) {
            ("restarted", _) => "begins now",
            ("resumed", false) => "was not paused",
            ("paused", false) => "was paused already",
            (done, _) => &format!("is {done}"),
        };
        Text::Line(format!("schedule {} of queue {queue} {done}", visible(schedule)))
    }
}

impl Answer for FiredSchedule {
    fn text(&self) -> Text {
        Text::Line(self.item.clone().unwrap_or_else(|| "fired; the item is gone already".to_owned()))
    }
}

impl StoredSchedule {
    /// The same for people.
    pub(crate) fn text(&self) -> String {
        let Self { queue, schedule, effect, description, zone, next } = self;
        let done = match effect.as_str() {
            "created" => "added",
            effect => effect,
        };
        let fires = next.as_ref().and_then(|next| time_of(&next["fires_at"]));
        let next =
            fires.map(|at| format!("; next at {}, {}", local(at, zone.as_deref()), from_now(at, now())));
        let next = next.unwrap_or_default();
        format!("schedule {} of queue {queue} is {done}: {description}{next}", visible(schedule))
    }
}

/// What a command prints if the outcome of firing a schedule is unknown.
const FIRED: &str = "it may be fired all the same; see `kvqueue schedule history`";

/// What to do about a schedule of a configuration, and about one that cannot be read.
type Fixes = [&'static str; 2];

const UPGRADE: Fixes = ["upgrade kvqueue"; 2];
const CHANGE_THERE: Fixes = [
    "change it there and reload its daemons, or choose another name",
    "upgrade kvqueue, or choose another name",
];
const REMOVE_THERE: Fixes = [
    "remove it there and reload its daemons; if no daemon has it in its configuration any more, add --force, or ?force=true to the request",
    "upgrade kvqueue, or remove it all the same with --force, or ?force=true",
];

impl ScheduleTarget {
    /// Why `verb` cannot be done to the schedule.
    fn refused(&self, verb: &str, refusal: &schedules::Refusal, [configured, unreadable]: Fixes) -> Refusal {
        let (queue, name) = (&self.queue, visible(&self.name));
        let message = |why: &str| format!("cannot {verb} schedule \"{name}\" of queue \"{queue}\": {why}");
        let why = visible(&refusal.to_string());
        match refusal {
            schedules::Refusal::Gone { near } => {
                let fix = match near {
                    Some(near) => format!("did you mean \"{}\"?", visible(near)),
                    None => format!("`kvqueue schedule list {queue}` shows which there are"),
                };
                Refusal::not_found(format!("queue \"{queue}\" has no schedule \"{name}\""), fix)
            }
            schedules::Refusal::Configured { .. } => {
                Refusal::conflict("configured", message(&why), configured)
            }
            schedules::Refusal::Unreadable => {
                Refusal::conflict("unreadable_schedule", message(&why), unreadable)
            }
            schedules::Refusal::Schedule(error @ ScheduleError::TooMany) => {
                let fix = "remove a schedule, or use another queue";
                Refusal::conflict("too_many_schedules", message(&with_causes(error)), fix)
            }
            schedules::Refusal::Schedule(error) => Refusal::bad(message(&with_causes(error))),
        }
    }

    /// The error of a read that has not found the schedule.
    async fn missing(&self, site: &dyn Site, queue: &Queue) -> anyhow::Error {
        if let Err(error) = site.expect_queue(queue, None).await {
            return error;
        }
        match site.transact(async |tr| gone(tr, queue, &self.name).await).await {
            Ok(refusal) => self.refused("read", &refusal, UPGRADE).into(),
            Err(error) => error,
        }
    }

    /// Makes a change that makes no new schedule. Returns whether it changed anything.
    async fn change(
        &self,
        site: &dyn Site,
        (verb, change, fixes): (&str, Change, Fixes),
        done: &str,
    ) -> anyhow::Result<ChangedSchedule> {
        let queue = &site.any_queue(&self.queue)?;
        site.expect_queue(queue, None).await?;
        let changed = match self.write(site, queue, change).await? {
            Effect::Put(_) | Effect::Done => true,
            Effect::Same => false,
            Effect::Refused(refusal) => return Err(self.refused(verb, &refusal, fixes).into()),
        };
        let (queue, schedule, done) = (self.queue.clone(), self.name.clone(), done.to_owned());
        Ok(ChangedSchedule { queue, schedule, done, changed })
    }

    /// Makes a change with its record.
    async fn write(&self, site: &dyn Site, queue: &Queue, change: Change) -> anyhow::Result<Effect> {
        let change = ScheduleChange::new(change, now());
        let record = change.audited(site.record().about(queue.name()));
        site.change(record, async |tr, audit| {
            if change.adds() {
                queue.check_used(tr).await?;
            }
            change.write(tr, queue, &audit.store, &audit.record).await
        })
        .await
    }
}

impl Operation for ListSchedules {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/schedules")
        .with_notes("Without their payloads ([SCHEDULES.md](SCHEDULES.md))");
    type Answer = Schedules;

    fn go_on(&mut self, so_far: &Schedules) -> bool {
        self.page.go_on(so_far.schedules.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Schedules> {
        let queue = &site.any_queue(&self.queue)?;
        let (after, limit) = (self.page.after.as_deref(), self.page.most());
        let page = site.transact(async |tr| SchedulePage::read(queue, tr, after, limit).await).await?;
        if page.schedules.is_empty() && after.is_none() {
            site.note_if_absent(queue).await?;
        }
        let now = now();
        let shown = |view| ShownSchedule(JsonObject::of(schedule_object(queue.name(), view, now, false)));
        let schedules = page.schedules.iter().map(shown).collect();
        Ok(Schedules { schedules, next: page.next().map(str::to_owned) })
    }
}

impl Operation for ShowSchedule {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/schedules/{name}");
    type Answer = WholeSchedule;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<WholeSchedule> {
        let (queue, name) = (&site.any_queue(&self.schedule.queue)?, &self.schedule.name);
        let found = site.transact(async |tr| match queue.schedule(tr, name).await? {
            Some(view) => Ok(Some((view, queue.schedule_history(tr, name, None, SOME).await?))),
            None => Ok(None),
        });
        let Some((view, records)) = found.await? else {
            return Err(self.schedule.missing(site, queue).await);
        };
        let now = now();
        let mut object = schedule_object(queue.name(), &view, now, true);
        let times: Vec<_> = match (&view.schedule, &view.state) {
            (Some(schedule), Some(state)) => {
                firings(schedule, queue.name(), from(state, now)).take(SOME.get()).map(Firing::json).collect()
            }
            _ => Vec::new(),
        };
        object["times"] = times.into();
        object["history"] = records.iter().map(record_object).collect();
        Ok(WholeSchedule(ShownSchedule(JsonObject::of(object))))
    }
}

impl Operation for ListOccurrences {
    const ROUTE: Route = Route::read("/api/v1/queues/{queue}/schedules/{name}/history");
    type Answer = Occurrences;

    fn go_on(&mut self, so_far: &Occurrences) -> bool {
        self.page.go_on(so_far.records.len(), so_far.next.as_deref())
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Occurrences> {
        let (queue, name) = (&site.any_queue(&self.schedule.queue)?, &self.schedule.name);
        let after = self.page.after.as_deref().map(str::parse::<u64>).transpose();
        let after = after.map_err(|_| Refusal::bad("after is not the number of a record"))?;
        // One more than wanted tells whether there are more.
        let most = self.page.most();
        let found = site.transact(async |tr| {
            let Some(view) = queue.schedule(tr, name).await? else { return Ok(None) };
            Ok(Some((view, queue.schedule_history(tr, name, after, most.saturating_add(1)).await?)))
        });
        let Some((view, mut records)) = found.await? else {
            return Err(self.schedule.missing(site, queue).await);
        };
        let is_more = records.len() > most.get();
        records.truncate(most.get());
        let next = records.last().filter(|_| is_more).map(|record| record.number.to_string());
        let zone = view.schedule.as_ref().and_then(|schedule| schedule.calendar.zone()).map(str::to_owned);
        Ok(Occurrences { records: records.iter().map(record_object).collect(), next, zone })
    }
}

impl Operation for RemoveSchedule {
    const ROUTE: Route = Route::change(
        Action::new(
            "schedule.remove",
            "remove a schedule",
            "`schedule`; `force`: also one of a configuration",
        ),
        Method::Delete,
        "/api/v1/queues/{queue}/schedules/{name}",
    )
    .with_notes("`force=true` removes also one of a configuration");
    type Answer = ChangedSchedule;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedSchedule> {
        let change = Change::Remove { name: self.schedule.name.clone(), force: self.force };
        self.schedule.change(site, ("remove", change, REMOVE_THERE), "removed").await
    }
}

impl Operation for PauseSchedule {
    const ROUTE: Route = Route::change(
        Action::new("schedule.pause", "pause a schedule", "`schedule`"),
        Method::Post,
        "/api/v1/queues/{queue}/schedules/{name}/pause",
    );
    type Answer = ChangedSchedule;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedSchedule> {
        let change = Change::Pause { name: self.schedule.name.clone() };
        self.schedule.change(site, ("pause", change, UPGRADE), "paused").await
    }
}

impl Operation for ResumeSchedule {
    const ROUTE: Route = Route::change(
        Action::new("schedule.resume", "resume a paused schedule", "`schedule`"),
        Method::Post,
        "/api/v1/queues/{queue}/schedules/{name}/resume",
    )
    .with_notes("With `restart` it begins now, also if it is not paused");
    type Answer = ChangedSchedule;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<ChangedSchedule> {
        let change = Change::Resume { name: self.schedule.name.clone(), restart: self.restart };
        let done = if self.restart { "restarted" } else { "resumed" };
        self.schedule.change(site, ("resume", change, UPGRADE), done).await
    }
}

impl Operation for FireSchedule {
    const ROUTE: Route = Route::change(
        Action::new("schedule.fire", "push an item of a schedule by hand", "`schedule`"),
        Method::Post,
        "/api/v1/queues/{queue}/schedules/{name}/fire",
    )
    .with_notes("409 `overlaps` if its last item has not ended, and its items may not overlap");
    type Answer = FiredSchedule;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<FiredSchedule> {
        let (queue, name) = (&site.used_queue(&self.target).await?, &self.name);
        let which = ScheduleTarget { queue: self.target.queue.clone(), name: name.clone() };
        let firable = site.transact(async |tr| check_firable(tr, queue, name).await).await?;
        let last = firable.map_err(|refusal| which.refused("fire", &refusal, UPGRADE))?;
        site.store(site.record().about(queue.name()).with("schedule", name.as_str())).await?;
        let ((db, policy), config) = (site.database(), site.config());
        let settings = str::from_utf8(queue.name()).ok().and_then(|name| config.queues.get(name));
        let ttl = settings.and_then(|settings| settings.ttl);
        let item = match site.once(FIRED, queue.fire_schedule(db, &policy, name, now(), ttl)).await? {
            ByHand::Fired { id } => id.as_ref().map(ItemId::to_string),
            ByHand::Overlaps => {
                let last = last.map(|id| format!(" {id}")).unwrap_or_default();
                let message = format!(
                    "cannot fire schedule \"{}\" of queue \"{}\": its last item{last} has not ended, and its items may not overlap",
                    visible(name),
                    which.queue
                );
                let fix = "wait until it has ended, or let them overlap (overlap: allow)";
                return Err(Refusal::conflict("overlaps", message, fix).into());
            }
            ByHand::Gone => return Err(which.missing(site, queue).await),
        };
        Ok(FiredSchedule { queue: which.queue, schedule: which.name, item })
    }
}

impl PutSchedule {
    pub(crate) async fn run(&self, site: &dyn Site) -> anyhow::Result<StoredSchedule> {
        let queue = &site.queue(&self.target)?;
        let schedule = self.definition.checked(self.name.as_str(), None, queue.kind());
        let schedule = schedule.map_err(|error| Refusal::bad(error.to_string()))?;
        site.expect_queue(queue, Some(self.create)).await?;
        let which = ScheduleTarget { queue: self.target.queue.clone(), name: self.name.clone() };
        let effect = match which.write(site, queue, Change::Put(Box::new(schedule.clone()))).await? {
            Effect::Put(PutEffect::Created) => "created",
            Effect::Put(PutEffect::Replaced { .. }) => "replaced",
            Effect::Put(PutEffect::Unchanged) | Effect::Done | Effect::Same => "unchanged",
            Effect::Refused(refusal) => {
                return Err(which.refused("replace", &refusal, CHANGE_THERE).into());
            }
        };
        let next = firings(&schedule, queue.name(), now()).next().map(Firing::json);
        let (description, zone) =
            (schedule.calendar.description(), schedule.calendar.zone().map(str::to_owned));
        let effect = effect.to_owned();
        Ok(StoredSchedule { queue: which.queue, schedule: which.name, effect, description, zone, next })
    }
}
