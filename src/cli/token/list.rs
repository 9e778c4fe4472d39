//! `kvqueue token list`

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::Millis;

use crate::{
    access::{AccessToken, TokenStore},
    cli::{client::Client, globals::Globals, output},
    consumer::clock,
    exit::Exit,
    json,
};

/// Print the tokens, without their secrets
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let store = &TokenStore::new(client.prefix());
        let (mut tokens, used) = client.transact(|tr| async move {
            let read = async { Ok((store.list(&tr).await?, store.last_uses(&tr).await?)) };
            let read = read.await;
            (tr, read)
        })?;
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        let tokens = tokens.into_iter().map(|token| {
            let last_used = used.get(&token.id).copied();
            (token, last_used)
        });
        if globals.json {
            for (token, last_used) in tokens {
                output::line(true, b"", &json::access_token(&token, last_used))?;
            }
            return Ok(Exit::Done);
        }
        let table = table(tokens);
        if table.row_count() > 0 {
            output::line(false, table.to_string().as_bytes(), &serde_json::Value::Null)?;
        }
        Ok(Exit::Done)
    }
}

fn table(tokens: impl Iterator<Item = (AccessToken, Option<Millis>)>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table.set_header(["name", "scopes", "queues", "made", "expires", "last used"]);
    let now = clock::now();
    for (token, last_used) in tokens {
        let listed = |texts: Vec<String>| texts.join(", ");
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), output::time);
        table.add_row([
            token.name.clone(),
            listed(token.scopes.iter().map(ToString::to_string).collect()),
            listed(token.queues.iter().map(ToString::to_string).collect()),
            output::time(token.created_at),
            if token.is_expired(now) { format!("{expires} (expired)") } else { expires },
            last_used.map_or_else(|| "never".to_owned(), output::time),
        ]);
    }
    table
}
