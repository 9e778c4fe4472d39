//! A handler of items that are JSON: invitations to a party.

use kvqueue::{Context, Item, JsonHandler, Outcome};

/// Invites guests. It has no settings.
#[derive(Clone, Copy, Debug)]
pub struct Invite;

/// The payload of an item, such as `{"guest": "ann", "hour": 20}`. Any other payload becomes a dead letter.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    guest: String,
    hour: u8,
}

#[kvqueue::async_trait]
impl JsonHandler for Invite {
    type Payload = Invitation;

    async fn handle(&self, Invitation { guest, hour }: Invitation, _: &Item, _: &Context) -> Outcome {
        if hour > 23 {
            return Outcome::dead(format!("a day has no hour {hour}"));
        }
        println!("Dear {guest}, come at {hour} o'clock!");
        Outcome::Done
    }
}
