//! `kvqueue page`

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    UsageError,
    api_client::{ApiClient, AskError, At},
    globals::Globals,
    output, status,
};
use crate::base::exit::Exit;

/// Print a link that opens the daemon's page in a browser
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print a link that opens the daemon's page in a browser, and signs the browser in with what this command may do.\n\n\
    The link works once, and for five minutes. The browser stays signed in for a week, or until the page's \"Sign out\"."
)]
pub(super) struct Args {
    #[command(flatten)]
    at: At,
}

/// How long to wait for a daemon that has been started a moment ago: `kvqueue run & kvqueue page`.
const STARTING: Duration = Duration::from_secs(3);

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let until = Instant::now() + globals.timeout().unwrap_or(STARTING);
        let is_absent = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(AskError::Nobody { .. }));
        let mut asked = self.ask(globals);
        while asked.as_ref().is_err_and(is_absent) && Instant::now() < until {
            thread::sleep(status::LOOK_AGAIN);
            asked = self.ask(globals);
        }
        let (url, answer) = asked?;
        let link = format!("{url}{}", answer["path"].as_str().unwrap_or("/"));
        let shown = json!({ "url": link, "expires_in_s": answer["expires_in_s"] });
        output::line(globals.json, link.as_bytes(), &shown)?;
        Ok(Exit::Done)
    }

    /// The daemon's URL, and its answer with the path of a link.
    fn ask(&self, globals: &Globals) -> anyhow::Result<(String, Value)> {
        let daemon = ApiClient::find(globals, &self.at)?;
        let Some(url) = daemon.url() else {
            let problem = "a browser cannot open a Unix socket; bring it to a port of your machine with";
            return Err(UsageError(format!(
                "{problem} ssh -L 7420:PATH HOST, and open http://127.0.0.1:7420/"
            ))
            .into());
        };
        if !self.at.is_given() {
            // The daemon at the configured address may be another database's.
            daemon.figures()?;
        }
        Ok((url, daemon.send("POST", "/sign-in/link", None)?))
    }
}
