//! `kvqueue token revoke`

use std::cell::Cell;

use anyhow::bail;
use serde_json::json;

use crate::{
    access::TokenStore,
    cli::{client::Client, globals::Globals, output},
    exit::Exit,
};

/// Revoke a token: daemons refuse it within two seconds
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Its name, as `kvqueue token list` prints it
    name: String,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let (store, name) = (&TokenStore::new(client.prefix()), self.name.as_str());
        let (audit, record) = client.record()?;
        let (audit, record) = (&audit, &record.with("name", name));
        let is_found = &Cell::new(false);
        let revoked = client.transact(|tr| async move {
            let revoked = store.revoke(&tr, name, (audit, record), is_found).await;
            (tr, revoked)
        })?;
        if !revoked {
            bail!("there is no token {name:?}; `kvqueue token list` prints their names");
        }
        let text = format!("revoked {name}");
        output::line(globals.json, text.as_bytes(), &json!({ "name": name, "revoked": true }))?;
        Ok(Exit::Done)
    }
}
