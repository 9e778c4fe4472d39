//! `kvqueue token new`

use std::time::Duration;

use anyhow::bail;

use crate::{
    access::{Created, MAX_TOKENS, NewToken, QueuePattern, Scope, TokenStore},
    cli::{UsageError, client::Client, globals::Globals, output},
    config::duration,
    consumer::clock,
    exit::Exit,
    json,
};

/// Make a token and print it; it is shown this once
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Make a token and print it; it is shown this once.\n\n\
    Programs send it to a daemon of this database as `Authorization: Bearer TOKEN`. The database has a hash of it, not the token itself. \
    A daemon that listens on an IP address needs tokens, unless http.require-token is false. One on a Unix socket needs them if \
    http.require-token is true or http.token-file is set.",
    after_help = "Examples:\n  \
    kvqueue token new web-shop --scope push --queue 'orders-*'\n  \
    kvqueue token new dashboard --scope read --expires 90d"
)]
pub(in crate::cli) struct Args {
    /// The token's name: letters, digits, hyphens, underscores and full stops
    name: String,
    /// What it allows: push, work, read or admin, which is everything; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// A queue that it is for; `*` stands for any characters; may be repeated [default: all queues]
    #[arg(long = "queue", value_name = "PATTERN")]
    queues: Vec<QueuePattern>,
    /// When it ends, as in 90d or 12h [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    expires: Option<Duration>,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let now = clock::now();
        let queues = if self.queues.is_empty() { vec![QueuePattern::all()] } else { self.queues.clone() };
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let new = NewToken {
            name: self.name.clone(),
            scopes: self.scopes.iter().copied().collect(),
            queues,
            expires_at: self.expires.map(after),
        };
        let (text, token) = new.issue(now).map_err(UsageError)?;
        let client = Client::open_or_create(globals, None)?;
        let (audit, made) = client.record()?;
        let (audit, made) = (&audit, &token.audited(made));
        let (store, record) = (&TokenStore::new(client.prefix()), &token);
        let created = client.transact(|tr| async move {
            let created = store.create(&tr, record, audit, made).await;
            (tr, created)
        })?;
        match created {
            Created::Done => {}
            Created::NameTaken => {
                bail!(
                    "there is a token {name} already; use another name, or revoke it: kvqueue token revoke {name}",
                    name = self.name
                )
            }
            Created::TooMany => {
                bail!("there are {MAX_TOKENS} tokens, and no more are possible; revoke unused ones")
            }
        }
        let mut object = json::access_token(&token, None);
        object["token"] = text.as_str().into();
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}
