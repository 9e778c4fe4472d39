//! The access tokens of the HTTP API.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Method, Needs, Operation, Refusal, Route, Site, Text, Visit};
use crate::{
    access::{self, AccessToken, Created, MAX_TOKENS, QueuePattern, Scope, TokenStore},
    audit::Action,
    base::{clock, json::time, times::after},
    config::duration,
};

/// The operations of this file.
pub(super) fn each(visit: &mut impl Visit) {
    visit.operation::<ListTokens>();
    visit.operation::<NewToken>();
    visit.operation::<RevokeToken>();
}

/// Make a token; it is shown this once
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
#[command(
    long_about = "Make a token; it is shown this once.\n\n\
    Programs send it to a daemon of this database as `Authorization: Bearer TOKEN`. The database has a hash of it, not the token itself. \
    A daemon that listens on an IP address needs tokens, unless http.require-token is false. One on a Unix socket needs them if \
    http.require-token is true or http.token-file is set.",
    after_help = "Examples:\n  \
    kvqueue token new web-shop --scope push --queue 'orders-*'\n  \
    kvqueue token new dashboard --scope read --expires 90d"
)]
pub(crate) struct NewToken {
    /// The token's name: letters, digits, hyphens, underscores and full stops
    name: String,
    /// What it allows: push, work, read or admin, which is everything; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// A queue that it is for; `*` stands for any characters; may be repeated [default: all queues]
    #[arg(long = "queue", value_name = "PATTERN")]
    queues: Option<Vec<QueuePattern>>,
    /// When it ends, as in 90d or 12h [default: never]
    #[serde(default, with = "duration::optional")]
    #[schemars(with = "Option<String>")]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    expires: Option<Duration>,
}

/// List the tokens, without their secrets
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct ListTokens {}

/// Revoke a token: daemons refuse it within two seconds
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Args)]
pub(crate) struct RevokeToken {
    /// Its name, as `kvqueue token list` prints it
    name: String,
}

/// A token.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Token {
    name: String,
    scopes: BTreeSet<Scope>,
    queues: Vec<QueuePattern>,
    created_at: String,
    expires_at: Option<String>,
    expired: bool,
    last_used: Option<String>,
    /// The token itself, when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Token {
    fn of(token: &AccessToken, last_used: Option<SystemTime>) -> Self {
        Self {
            name: token.name.clone(),
            scopes: token.scopes.clone(),
            queues: token.queues.clone(),
            created_at: time(token.created_at),
            expires_at: token.expires_at.map(time),
            expired: token.is_expired(clock::now()),
            last_used: last_used.map(time),
            token: None,
        }
    }

    fn cells(&self) -> Vec<String> {
        fn listed<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
            values.into_iter().map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
        }
        let never = || "never".to_owned();
        let expires = self.expires_at.clone().unwrap_or_else(never);
        vec![
            self.name.clone(),
            listed(&self.scopes),
            listed(&self.queues),
            self.created_at.clone(),
            if self.expired { format!("{expires} (expired)") } else { expires },
            self.last_used.clone().unwrap_or_else(never),
        ]
    }
}

impl Answer for Token {
    fn text(&self) -> Text {
        Text::Line(self.token.clone().unwrap_or_default())
    }
}

impl NewToken {
    /// The token, and its record.
    fn issue(&self) -> Result<(String, AccessToken), Refusal> {
        let now = clock::now();
        let new = access::NewToken {
            name: self.name.clone(),
            scopes: self.scopes.iter().copied().collect(),
            queues: self.queues.clone().unwrap_or_else(|| vec![QueuePattern::all()]),
            expires_at: self.expires.map(|life| after(now, life)),
        };
        new.issue(now).map_err(Refusal::bad)
    }
}

impl Operation for NewToken {
    const ROUTE: Route = Route::change(
        Action::new("token.new", "make an access token", "`name`, `scopes`, `queues`"),
        Method::Post,
        "/api/v1/tokens",
    )
    .with_notes("`queues` are patterns, `expires` is a duration such as `90d`");
    type Answer = Token;

    fn needs(&self) -> Needs<'_> {
        Needs::Nothing
    }

    fn check(&self) -> Result<(), Refusal> {
        self.issue().map(drop)
    }

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Token> {
        let (text, token) = &self.issue()?;
        let store = &TokenStore::new(site.config().prefix.as_bytes());
        let create = site.change(token.audited(site.record()), async |tr, audit| {
            store.create(tr, token, &audit.store, &audit.record).await
        });
        match create.await? {
            Created::Done => Ok(Token { token: Some(text.clone()), ..Token::of(token, None) }),
            Created::NameTaken => {
                let message = format!("there is a token {} already", token.name);
                let fix = format!("use another name, or revoke it: kvqueue token revoke {}", token.name);
                Err(Refusal::conflict("name_taken", message, fix).into())
            }
            Created::TooMany => {
                let message = format!("there are {MAX_TOKENS} tokens, and no more are possible");
                Err(Refusal::conflict("too_many_tokens", message, "revoke expired and unused ones").into())
            }
        }
    }
}

/// All tokens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
}

impl Answer for Tokens {
    const LIST: Option<&'static str> = Some("tokens");

    fn text(&self) -> Text {
        let rows = self.tokens.iter().map(Token::cells).collect();
        Text::Table(vec!["name", "scopes", "queues", "made", "expires", "last used"], rows)
    }
}

impl Operation for ListTokens {
    const ROUTE: Route = Route::read("/api/v1/tokens").of_operators();
    type Answer = Tokens;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Tokens> {
        let store = &TokenStore::new(site.config().prefix.as_bytes());
        let read = site.transact(async |tr| Ok((store.list(tr).await?, store.last_uses(tr).await?)));
        let (mut tokens, used) = read.await?;
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        let shown = |token: &AccessToken| Token::of(token, used.get(&token.id).copied());
        Ok(Tokens { tokens: tokens.iter().map(shown).collect() })
    }
}

/// A token that is no more.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Revoked {
    name: String,
    revoked: bool,
}

impl Answer for Revoked {
    fn text(&self) -> Text {
        Text::Line(format!("revoked {}", self.name))
    }
}

impl Operation for RevokeToken {
    const ROUTE: Route = Route::change(
        Action::new("token.revoke", "revoke an access token", "`name`"),
        Method::Delete,
        "/api/v1/tokens/{name}",
    );
    type Answer = Revoked;

    async fn run(&self, site: &dyn Site) -> anyhow::Result<Revoked> {
        let (name, is_found) = (&self.name, Cell::new(false));
        let store = &TokenStore::new(site.config().prefix.as_bytes());
        let revoke = site.change(site.record().with("name", name.as_str()), async |tr, audit| {
            store.revoke(tr, name, (&audit.store, &audit.record), &is_found).await
        });
        match revoke.await? {
            true => Ok(Revoked { name: name.clone(), revoked: true }),
            false => {
                let message = format!("there is no token {name:?}");
                Err(Refusal::not_found(message, "`kvqueue token list` prints their names").into())
            }
        }
    }
}
