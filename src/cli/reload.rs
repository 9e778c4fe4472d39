//! `kvqueue reload`

use serde_json::Value;

use super::{
    daemon::{At, Daemon},
    globals::Globals,
    output,
};
use crate::exit::Exit;

/// Have the running daemon take up its configuration anew
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Have the running daemon take up its configuration anew, as the signal HUP does, and wait for what comes of it.\n\n\
    A configuration that is wrong, or that needs a restart, changes nothing; the daemon says why, and the exit code is 78. \
    Items that are being handled are finished under the settings they were taken with."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let answer = Daemon::find(globals, &self.at)?.tell("POST", "/api/v1/reload", None)?;
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
    match names("finishing") {
        none if none.is_empty() => changed,
        finishing => format!("{changed}\nitems are still finished under earlier settings: {finishing}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_came_of_it_is_told() {
        let told = |changed: &[&str], finishing: &[&str]| {
            text(&json!({ "changed": changed, "finishing": finishing }))
        };
        assert_eq!(told(&[], &[]), "reloaded; nothing has changed");
        assert_eq!(told(&["grace", "queues.a"], &[]), "reloaded; changed: grace, queues.a");
        assert!(
            told(&["queues.a"], &["a"]).ends_with("\nitems are still finished under earlier settings: a")
        );
    }
}
