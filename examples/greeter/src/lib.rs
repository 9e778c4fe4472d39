//! A handler that greets people at their doors, and keeps count.
//!
//! An item is a name. Who needs several knocks to open is tried again; what is no name is a dead letter; and how often someone was
//! greeted is written in the transaction that finishes the item, so that it is right whatever happens.

mod invite;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kvqueue::{
    Context, Handler, Item, Outcome, Settings, SettingsError,
    foundationdb::{FdbError, Transaction, tuple},
};

pub use invite::{Invitation, Invite};

/// Greets the person that an item names. Its fields are what the configuration says in `[queues.NAME.handler-config]`.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Greet {
    greeting: String,
    /// How long to wait between two knocks.
    #[serde(default = "Greet::default_pause", with = "kvqueue::config::duration")]
    pause: Duration,
}

impl Greet {
    /// Makes one from a queue's settings. An error ends the daemon before it has begun, so it should name the key and the fix.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        let greet: Self = settings.parse()?;
        if greet.greeting.is_empty() {
            return Err(SettingsError("greeting = \"\": say something, as in \"Good morning\"".to_owned()));
        }
        Ok(greet)
    }

    fn default_pause() -> Duration {
        Duration::from_secs(10)
    }
}

#[kvqueue::async_trait]
impl Handler for Greet {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let (name, knocks) = match read(item) {
            Ok(read) => read,
            // It will be as wrong the next time.
            Err(problem) => return Outcome::dead(problem),
        };
        if item.attempt < knocks {
            let reason = format!("{name} does not open at knock {}", item.attempt);
            return Outcome::RetryAfter(self.pause, reason);
        }
        let Some(transaction) = context.transaction() else {
            // Nothing is wrong with the item.
            context.stop_daemon("greetings are counted, which needs delivery = \"exactly-once\"");
            return Outcome::Release;
        };
        match count(transaction, name).await {
            Ok(times) => {
                // Not part of the transaction: should that have to be run again, it is said again.
                println!("{}, {name}! ({times})", self.greeting);
                Outcome::Done
            }
            Err(error) => Outcome::retry(error),
        }
    }
}

/// The name, and how many knocks it takes.
fn read(item: &Item) -> Result<(&str, u32), String> {
    let name =
        std::str::from_utf8(&item.payload).map_err(|error| format!("the name is not UTF-8: {error}"))?;
    if name.is_empty() {
        return Err("nobody is named".to_owned());
    }
    let knocks = item.attribute("knocks").unwrap_or("1");
    let knocks = knocks.parse().map_err(|error| format!("attribute knocks = {knocks:?}: {error}"))?;
    Ok((name, knocks))
}

/// Adds one to how often someone was greeted, and returns that. It happens when the transaction commits.
async fn count(transaction: &Transaction, name: &str) -> Result<u64, FdbError> {
    let key = key(name);
    let before = transaction.get(&key, false).await?;
    let times = before.as_deref().map_or(0, number) + 1;
    transaction.set(&key, &times.to_be_bytes());
    Ok(times)
}

/// Where it is stored how often someone was greeted.
pub fn key(name: &str) -> Vec<u8> {
    tuple::pack(&("greeted", name))
}

/// What is stored there.
pub fn number(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_be_bytes)
}
