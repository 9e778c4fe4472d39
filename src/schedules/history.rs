//! What became of a schedule's occurrences, for programs and for people.

use kvqueue_queue::{
    ItemId,
    schedule::{MissReason, OccurrenceRecord, Outcome, SkipReason},
};
use serde_json::{Value, json};

use crate::base::json::time;

/// A record as JSON.
pub(crate) fn object(record: &OccurrenceRecord) -> Value {
    let (outcome, reason) = codes(&record.outcome);
    let mut object = json!({
        "number": record.number,
        "at": time(record.at),
        "from": time(record.from),
        "to": time(record.to),
        "count": record.count,
        "exact": record.is_exact,
        "outcome": outcome,
    });
    if let Some(reason) = reason {
        object["reason"] = reason.into();
    }
    if let Outcome::Fired { occurrence, .. } | Outcome::FiredByHand { occurrence, .. } = &record.outcome {
        object["occurrence"] = (*occurrence).into();
        object["item"] = json!(record.outcome.id().map(ItemId::to_string));
    }
    object
}

/// The outcome and its reason, for programs.
fn codes(outcome: &Outcome) -> (&'static str, Option<&'static str>) {
    match outcome {
        Outcome::Fired { .. } => ("fired", None),
        Outcome::FiredByHand { .. } => ("fired_by_hand", None),
        Outcome::Skipped(SkipReason::Overlap) => ("skipped", Some("overlap")),
        Outcome::Skipped(SkipReason::Paused) => ("skipped", Some("paused")),
        Outcome::Skipped(SkipReason::Redefined) => ("skipped", Some("redefined")),
        Outcome::Skipped(SkipReason::Restarted) => ("skipped", Some("restarted")),
        Outcome::Missed(MissReason::Policy) => ("missed", Some("policy")),
        Outcome::Missed(MissReason::Window) => ("missed", Some("window")),
        Outcome::Missed(MissReason::Maximum) => ("missed", Some("maximum")),
        Outcome::Unknown(_) => ("unknown", None),
    }
}

/// The outcome and its reason in words.
pub(crate) fn words(outcome: &str, reason: Option<&str>) -> String {
    let text = match (outcome, reason) {
        ("fired_by_hand", _) => "fired by hand",
        ("skipped", Some("overlap")) => "skipped: the last item had not ended",
        ("skipped", Some("paused")) => "skipped: the schedule was paused",
        ("skipped", Some("redefined")) => "skipped: the calendar was changed",
        ("skipped", Some("restarted")) => "skipped: the schedule was restarted",
        ("missed", Some("policy")) => "missed: the policy is not to fire it later",
        ("missed", Some("window")) => "missed: older than the window",
        ("missed", Some("maximum")) => "missed: more than the maximum",
        ("unknown", _) => "recorded by a later version of kvqueue",
        (outcome, _) => outcome,
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::from_millis;

    use super::*;

    fn record(outcome: Outcome) -> OccurrenceRecord {
        let [at, from, to] = [9, 0, 60_000].map(from_millis);
        OccurrenceRecord { number: 3, at, from, to, count: 2, is_exact: true, outcome }
    }

    #[test]
    fn records_name_the_reason_or_the_item() {
        let missed = object(&record(Outcome::Missed(MissReason::Window)));
        assert_eq!((&missed["outcome"], &missed["reason"]), (&json!("missed"), &json!("window")));
        assert_eq!(
            (&missed["count"], &missed["item"], &missed["to"]),
            (&json!(2), &Value::Null, &json!("1970-01-01T00:01:00.000Z"))
        );
        let id: ItemId = "x01".parse().unwrap();
        let fired = object(&record(Outcome::Fired { id: Some(id), occurrence: 7 }));
        assert_eq!((&fired["item"], &fired["occurrence"]), (&json!("x01"), &json!(7)));
        assert_eq!(fired["reason"], Value::Null);
        assert_eq!(words("unknown", None), "recorded by a later version of kvqueue");
    }
}
