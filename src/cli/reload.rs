//! `kvqueue reload`

use serde_json::Value;

use super::{
    api_client::{ApiClient, At},
    globals::Globals,
    output,
    status::fitting,
};
use crate::base::exit::Exit;

/// Longer names are cut.
const NAME: usize = 100;

/// Make the running daemon reload its configuration
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Make the running daemon reload its configuration, as the signal HUP does, and wait for the result.\n\n\
    A configuration that is wrong, or that needs a restart, changes nothing; the daemon says why, and the exit code is 78. \
    Items that are being handled are finished under the settings they were taken with."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let answer = ApiClient::find(globals, &self.at)?.send("POST", "/api/v1/reload", None)?;
        output::line(globals.json, text(&answer).as_bytes(), &answer)?;
        Ok(Exit::Done)
    }
}

fn text(answer: &Value) -> String {
    let names = |key: &str| {
        let names = answer[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    let changed = match names("changed") {
        none if none.is_empty() => "reloaded; nothing has changed".to_owned(),
        changed => format!("reloaded; changed: {changed}"),
    };
    let mut lines = vec![changed];
    match names("finishing") {
        none if none.is_empty() => {}
        finishing => lines.push(format!("items are still finished under earlier settings: {finishing}")),
    }
    for left in answer["left"].as_array().into_iter().flatten() {
        let (queue, items) = (fitting(left["queue"].as_str().unwrap_or_default(), NAME), &left["items"]);
        let items = output::items_of(items.as_u64().unwrap_or_default());
        lines.push(format!(
            "queue {queue} is removed and has {items}, which this daemon does not process any more"
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reload_reports_changes_and_consumers_still_finishing() {
        let printed = |changed: &[&str], finishing: &[&str]| {
            text(&json!({ "changed": changed, "finishing": finishing }))
        };
        assert_eq!(printed(&[], &[]), "reloaded; nothing has changed");
        assert_eq!(
            printed(&["shutdown-timeout", "queues.a"], &[]),
            "reloaded; changed: shutdown-timeout, queues.a"
        );
        let left =
            json!({ "changed": ["queues.a"], "finishing": [], "left": [{ "queue": "a", "items": 2 }] });
        insta::assert_snapshot!(text(&left), @"
        reloaded; changed: queues.a
        queue a is removed and has 2 items, which this daemon does not process any more
        ");
        assert!(
            printed(&["queues.a"], &["a"]).ends_with("\nitems are still finished under earlier settings: a")
        );
    }
}
