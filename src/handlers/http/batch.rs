//! The outcomes in the answer to a batch.

use std::collections::{HashMap, hash_map::Entry};

use kvqueue_queue::Item;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Ending};
use crate::handlers::{Outcome, OutcomeLine};

/// The outcome of each item by a successful answer. `Err` with the reason if the answer cannot be
/// parsed.
///
/// An answer without `outcomes` means that all items are done.
pub(super) fn outcomes(items: &[Item], answer: &Answer) -> Result<Vec<Outcome>, String> {
    let all_done = || Ok(vec![Outcome::Done; items.len()]);
    if !answer.is_json {
        return all_done();
    }
    match &answer.ending {
        Ending::Whole => {}
        Ending::TooLong => return Err("the answer has more bytes than max-response".to_owned()),
        Ending::Broken(why) => return Err(format!("the answer was cut off: {why}")),
    }
    if answer.body.trim_ascii().is_empty() {
        return all_done();
    }
    let body: Value =
        serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let Some(listed) = body.get("outcomes") else { return all_done() };
    let listed = listed.as_array().ok_or("the answer's \"outcomes\" is not a list")?;
    let mut by_id = HashMap::new();
    for (id, outcome) in listed.iter().filter_map(one) {
        match by_id.entry(id) {
            Entry::Vacant(entry) => _ = entry.insert(outcome),
            // As in an acknowledgement, where that is an error: nobody can tell which of them counts.
            Entry::Occupied(mut entry) => {
                _ = entry.insert(Outcome::retry("the target's answer has two outcomes for it"));
            }
        }
    }
    let missing = || Outcome::retry("the target's answer has no outcome for it");
    Ok(items.iter().map(|item| by_id.remove(&item.id.to_string()).unwrap_or_else(missing)).collect())
}

/// None if it names no item.
fn one(listed: &Value) -> Option<(String, Outcome)> {
    let id = listed.get("id")?.as_str()?.to_owned();
    let line = OutcomeLine::deserialize(listed).map_err(|error| error.to_string());
    let outcome = line.and_then(OutcomeLine::outcome).unwrap_or_else(|problem| {
        Outcome::retry(format_args!("the target's outcome for it cannot be read: {problem}"))
    });
    Some((id, outcome))
}
