//! `kvqueue limits`: the rules of a keyed queue, and its held keys.

mod held;

use std::{
    ffi::{OsStr, OsString},
    num::NonZeroU32,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use anyhow::bail;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{Kind, Limits, Pattern, Queue, Rate};
use serde_json::{Map, Value, json};

use self::held::{Held, Unblock};
use super::{
    UsageError,
    client::{Client, Create},
    completions,
    globals::Globals,
    output,
};
use crate::{
    audit::Action,
    config::{KindName, rate},
    exit::Exit,
    json::{insert_rule, rule, set},
    limit_change::{LimitChange, LimitEffect},
    on_dead::OnDead,
    text::visible,
};

/// Print the rules of a keyed queue, or change one; list held keys, or let one go on
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print the rules of a keyed queue, or change one; list held keys, or let one go on.\n\n\
    A rule is for the keys that match its pattern, in which * stands for any text. A pattern without a slash is for keys without a slash, and for all keys \
    before whose first slash it matches, together: 'tenant-7' limits the key tenant-7 and the keys tenant-7/... together. A pattern with a slash, such as \
    '*/*', is for keys with one. Of several rules that match, the one with the most characters other than * sets each limit.\n\n\
    Rules are kept in the database, and take effect at once in all daemons and workers. `kvqueue pop` takes items without regard to them."
)]
pub(super) struct Args {
    /// The queue
    #[arg(add = completions::queue())]
    queue: OsString,
    #[command(subcommand)]
    change: Option<Change>,
}

#[derive(Debug, clap::Subcommand)]
enum Change {
    /// Print the rules, as without a command
    #[command(visible_alias = "list")]
    Show,
    Set(Set),
    Remove(Remove),
    Held(Held),
    Unblock(Unblock),
}

/// Set the rule of a pattern; it replaces the rule that the pattern has, and what that has lost is printed
#[derive(Debug, clap::Args)]
struct Set {
    #[command(flatten)]
    scope: Scope,
    /// The most items that run at the same time, in all daemons and workers together; 0 stops them
    #[arg(long, value_name = "N")]
    running: Option<u32>,
    /// How many items start in a time, in all daemons and workers together, as in 100/1m or 5/s; each attempt at an item counts
    #[arg(long, value_name = "ITEMS/TIME", value_parser = rate::parse)]
    rate: Option<Rate>,
    /// With --rate: how many items start at once after a time without any [default: those of a tenth of a second, 1 at least]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<NonZeroU32>,
    /// The share of each key next to other keys: one of weight 3 gets three items while one of weight 1 gets one
    #[arg(long, value_name = "N")]
    weight: Option<NonZeroU32>,
    /// Items of a key run one at a time, in the order of their pushes; one that is retried holds back the next ones
    #[arg(long)]
    ordered: bool,
    /// For keys that are ordered by this rule or another: what a dead letter does to its key [default: continue]
    #[arg(long, value_name = "WHAT", value_enum)]
    on_dead: Option<OnDead>,
    #[command(flatten)]
    create: Create,
}

/// Remove the rule of a pattern
#[derive(Debug, clap::Args)]
struct Remove {
    #[command(flatten)]
    scope: Scope,
}

/// The keys that a rule is for.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Scope {
    /// The keys that the rule is for, as in 'tenant-*'; quote it, because a shell replaces *
    #[arg(value_name = "PATTERN")]
    pattern: Option<OsString>,
    /// The whole queue
    #[arg(long = "queue")]
    whole_queue: bool,
}

impl Scope {
    fn pattern(&self) -> Result<Pattern, UsageError> {
        match &self.pattern {
            Some(text) => {
                Pattern::keys(text.clone().into_vec()).map_err(|error| UsageError(error.to_string()))
            }
            None => Ok(Pattern::QUEUE),
        }
    }
}

impl Set {
    fn limits(&self) -> Result<Limits, &'static str> {
        let mut limits = Limits::default();
        limits.running = self.running;
        limits.rate = rate::with_burst(self.rate, self.burst)?;
        limits.weight = self.weight;
        limits.ordered = self.ordered.then_some(true);
        limits.blocks_on_dead = self.on_dead.map(OnDead::blocks);
        Ok(limits)
    }
}

impl Args {
    pub(super) fn audited(&self) -> Option<Action> {
        match self.change.as_ref()? {
            Change::Set(_) | Change::Remove(_) => Some(Action::QueueLimits),
            Change::Unblock(_) => Some(Action::QueueUnblock),
            Change::Show | Change::Held(_) => None,
        }
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match &self.change {
            None | Some(Change::Show) => self.list(globals),
            Some(Change::Set(set)) => {
                let wrong = |why| UsageError(format!("{why}; see kvqueue limits set --help"));
                let pattern = set.scope.pattern()?;
                let limits = set.limits().map_err(wrong)?;
                let change = LimitChange::set(pattern.clone(), limits).map_err(wrong)?;
                let text = format!("set {}: {}", named(&pattern), words(limits).join(", "));
                let mut object = Map::new();
                insert_rule(&mut object, &pattern, limits);
                self.change(globals, Some(&set.create), &pattern, &change, &text, object)
            }
            Some(Change::Remove(remove)) => {
                let pattern = remove.scope.pattern()?;
                let text = format!("removed the rule of {}", named(&pattern));
                let mut object = Map::new();
                insert_rule(&mut object, &pattern, Limits::default());
                object.insert("removed".to_owned(), json!(true));
                let change = LimitChange::remove(pattern.clone());
                self.change(globals, None, &pattern, &change, &text, object)
            }
            Some(Change::Held(held)) => held.run(&self.queue, globals),
            Some(Change::Unblock(unblock)) => unblock.run(&self.queue, globals),
        }
    }

    fn list(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = open(&client, &self.queue)?;
        client.note_if_absent(&queue)?;
        client.check_kind(&queue)?;
        let rules = client.transact(|tr| async {
            let rules = queue.rules(&tr).await;
            (tr, rules)
        })?;
        if globals.json {
            rules
                .iter()
                .try_for_each(|(pattern, limits)| output::line(true, b"", &rule(pattern, *limits)))?;
        } else if !rules.is_empty() {
            output::line(false, table(&rules).to_string().as_bytes(), &Value::Null)?;
        }
        Ok(Exit::Done)
    }

    fn change(
        &self,
        globals: &Globals,
        create: Option<&Create>,
        pattern: &Pattern,
        change: &LimitChange,
        text: &str,
        rule: Map<String, Value>,
    ) -> anyhow::Result<Exit> {
        let client = match create {
            Some(create) => Client::open_to_change(globals, &self.queue, create)?,
            None => Client::open(globals)?,
        };
        let queue = &open(&client, &self.queue)?;
        match create {
            Some(create) => client.expect_queue(queue, create)?,
            None => client.expect_there(queue)?,
        }
        client.check_kind(queue)?;
        client.check_not_frozen(queue)?;
        let (audit, record) = client.record()?;
        let (audit, record) = (&audit, &change.audited(record.about(queue.name())));
        let effect = client.transact(|tr| async move {
            let effect = change.write(&tr, queue, audit, record).await;
            (tr, effect)
        })?;
        let dropped = match effect {
            LimitEffect::Done(before) => change.dropped(before),
            LimitEffect::NoRule => {
                bail!("queue \"{}\" has no rule of {}", queue.name().escape_ascii(), named(pattern))
            }
            LimitEffect::Full(refused) => return Err(refused.into()),
        };
        let mut object = Map::new();
        output::insert_bytes(&mut object, "queue", queue.name());
        object.extend(rule);
        let mut text = text.to_owned();
        if !dropped.is_empty() {
            text += &format!("; no longer: {}", words(dropped).join(", "));
            object.insert("dropped".to_owned(), Value::Object(set(dropped)));
        }
        output::line(globals.json, text.as_bytes(), &Value::Object(object))?;
        // It looks as if it were for all items.
        if create.is_some() && pattern.as_bytes() == b"*" && !globals.quiet {
            output::note(format_args!(
                "items that are pushed without --key are not limited by this; --queue in place of the pattern limits the whole queue"
            ));
        }
        Ok(Exit::Done)
    }
}

/// The queue of a name. Only a keyed queue has rules.
fn open(client: &Client, name: &OsStr) -> anyhow::Result<Queue> {
    client.expect_settings(name)?;
    let config = name.to_str().and_then(|name| client.config().queues.get(name));
    if let Some(config) = config.filter(|config| config.kind != KindName::Keyed) {
        return Err(UsageError(format!(
            "queue \"{}\" is of kind {} in the configuration, and only keyed queues have limits; set kind = \"keyed\", or use another queue",
            name.display(),
            config.layout()
        ))
        .into());
    }
    Ok(Queue::of_kind(client.prefix(), name.as_bytes(), Kind::Keyed)
        .map_err(|error| UsageError(error.to_string()))?)
}

/// The scope of a rule, for people.
fn named(pattern: &Pattern) -> String {
    match pattern.is_queue() {
        true => "the whole queue".to_owned(),
        false => key_text(pattern.as_bytes()),
    }
}

/// A key or a pattern, for people.
fn key_text(key: &[u8]) -> String {
    visible(&String::from_utf8_lossy(key))
}

fn words(limits: Limits) -> Vec<String> {
    let running = limits.running.map(|running| format!("{running} running"));
    let rate = limits.rate.map(|rate| format!("rate {}", rate_text(&rate)));
    let weight = limits.weight.map(|weight| format!("weight {weight}"));
    running
        .into_iter()
        .chain(rate)
        .chain(weight)
        .chain(limits.is_ordered().then(|| "ordered".to_owned()))
        .chain(OnDead::of(&limits).map(|on_dead| format!("on dead {}", on_dead.as_str())))
        .collect()
}

fn rate_text(rate: &Rate) -> String {
    let burst = rate.burst().map(|burst| format!(" (burst {burst})")).unwrap_or_default();
    rate::format(rate) + &burst
}

fn table(rules: &[(Pattern, Limits)]) -> Table {
    let mut table = empty_table();
    table.set_header(["keys", "running", "rate", "weight", "ordered", "on dead"]);
    for (pattern, limits) in rules {
        let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let ordered = limits.ordered.map_or("", |ordered| if ordered { "yes" } else { "no" });
        let weight = text(limits.weight.map(NonZeroU32::get));
        let rate = limits.rate.as_ref().map(rate_text).unwrap_or_default();
        let on_dead = OnDead::of(limits).map_or("", OnDead::as_str);
        table.add_row([
            named(pattern),
            text(limits.running),
            rate,
            weight,
            ordered.to_owned(),
            on_dead.to_owned(),
        ]);
    }
    table
}

fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table
}
