//! Tests that write the documents of the settings: `INSTA_UPDATE=always cargo test --lib config::settings`.

use std::collections::BTreeSet;

use super::{
    super::{QueueConfig, row::Reload},
    Setting, all,
};
use crate::{
    config::Config,
    docs::generated::{table_in, whole_file},
};

/// The name of the queue that is shown.
const QUEUE: &str = "emails";

/// All defaults as TOML, with those of a queue.
fn defaults() -> toml::Table {
    let config = Config::default().with_queue(QUEUE, QueueConfig::new("log"));
    toml::Table::try_from(config.spelled_out()).unwrap()
}

impl Setting {
    /// Its key in the configuration of the example.
    fn path(&self) -> String {
        self.key.replace('*', QUEUE)
    }

    /// The value of its field by default.
    fn default_value(&self) -> Option<toml::Value> {
        let mut value = toml::Value::Table(defaults());
        for part in self.path().split('.') {
            value = value.get(part)?.clone();
        }
        Some(value)
    }

    /// The default as the reference has it.
    fn default_in_words(&self) -> String {
        let of_field = || format!("`{}`", self.default_value().unwrap());
        self.default.map_or_else(of_field, str::to_owned)
    }

    /// What it means, with its range.
    fn meaning(&self) -> String {
        let range = self.range.to_string();
        if range.is_empty() { self.about.to_owned() } else { format!("{}. {range}", self.about) }
    }

    /// A row of the reference.
    fn row(&self) -> String {
        let key = self.key.strip_prefix(super::OF_A_QUEUE).unwrap_or(self.key);
        let reload = match self.reload {
            Reload::AtOnce => "at once",
            Reload::NewConsumers | Reload::NewHandler => "with new consumers",
            Reload::AtStart => "refused",
        };
        let key = if key == "schedules" { "schedules.SCHEDULE" } else { key };
        format!("| `{key}` | {} | {} | {reload} |", self.default_in_words(), self.meaning())
    }
}

/// A comment of TOML that says the Markdown `text`, in lines of at most 120 bytes.
fn comment(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(end_of_name) = rest.find("](") {
        let name_at = rest[..end_of_name].rfind('[').expect("a link has a name");
        let (before, name) = (&rest[..name_at], &rest[name_at + 1..end_of_name]);
        let (target, after) = rest[end_of_name + 2..].split_once(')').expect("a link has a target");
        plain += before;
        let page = target.split('#').next().unwrap_or_default();
        plain += &if before.ends_with('(') { format!("docs/{page}") } else { name.to_owned() };
        rest = after;
    }
    plain += rest;
    let plain = plain.replace('`', "");
    let mut lines = vec!["#".to_owned()];
    // A value keeps its letters.
    let first = if text.starts_with('`') { plain[..1].to_owned() } else { plain[..1].to_uppercase() };
    for word in (first + &plain[1..] + ".").split(' ') {
        if lines.last().unwrap().len() + 1 + word.len() > 120 {
            lines.push("#".to_owned());
        }
        *lines.last_mut().unwrap() += &format!(" {word}");
    }
    lines.join("\n") + "\n"
}

#[test]
fn each_key_has_one_row_and_each_row_a_key() {
    let mut known = BTreeSet::new();
    for setting in all() {
        assert!(known.insert(setting.key), "{} has two rows", setting.key);
        let has_default = setting.default_value().is_some();
        let is_left_open = setting.default.is_some();
        assert!(has_default || is_left_open, "{} is no key, or has no default", setting.key);
    }
    for setting in all().filter(|setting| setting.example.is_some_and(|example| !example.is_empty())) {
        let line = format!("{} = {}", setting.path(), setting.example.unwrap());
        let one: Result<Config, _> = toml::from_str(&format!("queues.{QUEUE}.handler = 'log'\n{line}"));
        let one = if setting.key.ends_with(".handler") { toml::from_str(&line) } else { one };
        let one = toml::Table::try_from(one.unwrap_or_else(|error| panic!("{line}: {error}"))).unwrap();
        assert!(keys(&one, "").contains(&setting.path()), "{} has no field", setting.key);
    }
    for table in ["", "log.", "http.", "queues.emails.", "queues.emails.retry."] {
        let fields = fields(table);
        assert!(fields.len() > 1, "{table}");
        for field in fields.iter().filter(|field| !["log", "http", "queues", "retry"].contains(&&***field)) {
            let key = format!("{table}{field}");
            assert!(super::setting(&key.split('.').collect::<Vec<_>>()).is_some(), "{key} has no row");
        }
    }
}

/// The fields of a table, also those without a default: an unknown one is refused with the names of all.
fn fields(table: &str) -> Vec<String> {
    let refused = toml::from_str::<Config>(&format!("{table}nonsense = 1")).unwrap_err();
    let (_, expected) = refused.message().split_once("expected").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The dotted keys of a table.
fn keys(table: &toml::Table, path: &str) -> Vec<String> {
    let below = |(key, value): (&String, &toml::Value)| match value {
        toml::Value::Table(inner) => keys(inner, &format!("{path}{key}.")),
        _ => vec![format!("{path}{key}")],
    };
    table.iter().flat_map(below).collect()
}

#[test]
fn the_reference_has_every_setting() {
    let (of_queues, own): (Vec<_>, Vec<_>) =
        all().partition(|setting| setting.key.starts_with(super::OF_A_QUEUE));
    let rows = |settings: Vec<&Setting>| settings.into_iter().map(Setting::row).collect::<Vec<_>>();
    table_in("docs/CONFIG.md", "| key | default | meaning | by a reload |", &rows(own));
    table_in(
        "docs/CONFIG.md",
        "| key in `queues.NAME` | default | meaning | by a reload |",
        &rows(of_queues),
    );
}

#[test]
fn the_reference_names_the_keys_that_commands_about_a_queue_need() {
    let needed = super::needed_by_commands_about_a_queue().map(|key| format!("`{key}`")).collect::<Vec<_>>();
    let (last, others) = needed.split_last().unwrap();
    let sentence = format!("A command about a queue needs {} and {last} of that queue", others.join(", "));
    assert!(include_str!("../../../docs/CONFIG.md").contains(&sentence), "docs/CONFIG.md: {sentence}");
}

#[test]
fn the_commented_file_has_every_setting() {
    let known = include_str!("../../../config/kvqueue.toml");
    let (head, _) = known.split_once("\n\n").unwrap();
    let (_, tail) = known.split_once("# Schedules push items by themselves").unwrap();
    let mut made = head.to_owned() + "\n";
    let mut table = String::new();
    for setting in all() {
        let path = setting.path();
        let (above, name) = path.rsplit_once('.').unwrap_or(("", &path));
        let of_queue = setting.key.starts_with(super::OF_A_QUEUE);
        let value =
            setting.example.map_or_else(|| setting.default_value().unwrap().to_string(), str::to_owned);
        if value.is_empty() {
            continue;
        }
        let is_example = setting.example.is_some() && !setting.key.ends_with(".handler");
        // Under systemd the database has another default.
        let mark = match of_queue {
            _ if is_example || setting.key == "database" => "# ",
            true => "#| ",
            false => "",
        };
        if of_queue && !table.starts_with("queues") {
            made += "\n# One table per queue to process. There is none by default; take away every \"#| \" below to make this one.\n";
        }
        if above != table {
            made += &format!("\n{}[{above}]\n", if of_queue { "#| " } else { "" });
            above.clone_into(&mut table);
        }
        made += &format!("\n{}{mark}{name} = {value}\n", comment(&setting.meaning()));
    }
    whole_file("config/kvqueue.toml", &format!("{made}\n# Schedules push items by themselves{tail}"));
}
