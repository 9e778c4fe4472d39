use kvqueue_queue::{End, Packing};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(json: &serde_json::Value) -> ScheduleDefinition {
    serde_json::from_str(&json.to_string()).unwrap()
}

fn refused(json: &serde_json::Value) -> String {
    let read = serde_json::from_str::<ScheduleDefinition>(&json.to_string());
    match read {
        Ok(definition) => definition.checked("s", None, Kind::Fifo).unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_definition_becomes_a_schedule_with_all_its_fields() {
    let all = json!({
        "cron": "0 7 * * 1-5", "zone": "Europe/Berlin", "payload_json": {"b": 2, "a": [1, null]},
        "attributes": {"customer": "ann"}, "key": "acme/7", "missed": "skip", "missed_window": "1h 30m", "missed_max": 7,
        "overlap": "queue", "jitter": "30s",
    });
    let schedule = read(&all).checked("daily", Some("file".to_owned()), Kind::Keyed).unwrap();
    assert_eq!((&*schedule.name, schedule.owner.as_deref()), ("daily", Some("file")));
    assert_eq!(schedule.calendar, Calendar::cron("0 7 * * 1-5", "Europe/Berlin").unwrap());
    assert_eq!(schedule.item.payload, r#"{"a":[1,null],"b":2}"#);
    assert_eq!(schedule.item.content_type.as_deref(), Some("application/json"));
    assert_eq!(schedule.item.attributes["customer"], "ann");
    assert_eq!(schedule.item.key.as_deref(), Some(&b"acme/7"[..]));
    let window = Some(Duration::from_mins(90));
    assert_eq!(schedule.missed, Missed { policy: MissedPolicy::Skip, window, most: 7 });
    assert_eq!((schedule.overlap, schedule.jitter), (Overlap::Queue, Duration::from_secs(30)));
    assert_eq!(serde_json::to_value(ScheduleDefinition::from(&schedule)).unwrap(), all);
}

#[test]
fn fields_that_are_left_out_have_the_defaults_of_the_layer() {
    let schedule = read(&json!({"every": "5m"})).schedule("s", None).unwrap();
    let period = Calendar::every(Duration::from_mins(5)).unwrap();
    assert_eq!(schedule, Schedule::new("s", period, NewItem::new("")));
    let shown = serde_json::to_value(ScheduleDefinition::from(&schedule)).unwrap();
    assert_eq!(shown, json!({"every": "5m", "missed": "once", "overlap": "allow"}));
    let cron = read(&json!({"cron": "@daily", "payload": "x", "priority": -3}));
    let schedule = cron.checked("s", None, Kind::Priority(End::Min, Packing::Raw)).unwrap();
    assert_eq!((schedule.calendar.zone(), schedule.item.priority), (Some("UTC"), -3));
    assert_eq!((&*schedule.item.payload, schedule.item.content_type), (&b"x"[..], None));
}

#[test]
fn a_wrong_definition_is_refused_naming_the_field_and_the_fix() {
    insta::assert_snapshot!(refused(&json!({})), @r#"cron: the schedule has no times; give cron, as in "0 7 * * 1-5", or every, as in "5m""#);
    insta::assert_snapshot!(refused(&json!({"cron": "0 7 * * *", "every": "5m"})), @"every: the schedule has cron, too; leave one of the two out");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "zone": "UTC"})), @"zone: it belongs to a cron expression, and the schedule has a period (every); leave it out");
    insta::assert_snapshot!(refused(&json!({"cron": "0 25 * * *"})), @r#"cron: cannot read "25" in the field hour of the cron expression: 25 is out of range; write 0 to 23"#);
    insta::assert_snapshot!(refused(&json!({"cron": "0 7 * * *", "zone": "Europe/Berlim"})), @r#"zone: unknown time zone "Europe/Berlim"; did you mean Europe/Berlin?"#);
    insta::assert_snapshot!(refused(&json!({"every": "10ms"})), @"every: a schedule cannot have the period 10ms; write 1s to 3650 days, in whole milliseconds");
    insta::assert_snapshot!(refused(&json!({"every": 5})), @r#"invalid type: integer `5`, expected a duration such as "30s" at line 1 column 10"#);
    insta::assert_snapshot!(refused(&json!({"every": "5m", "payload": "a", "payload_json": 1})), @"payload_json: the schedule has more than one payload; give one of payload, payload_base64 and payload_json");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "payload_base64": "?"})), @"payload_base64: it is not base 64 with padding (Invalid symbol 63, offset 0.); encode it again");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "payload": "x".repeat(65_537)})), @"payload: payload of a schedule has 65537 bytes, 0 to 65536 are possible; change it");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "key": "k"})), @r#"key: cannot push an item with a key to a queue of kind fifo: it has no keys; leave the key out, or set kind = "keyed" for the queue"#);
    insta::assert_snapshot!(refused(&json!({"every": "5m", "key": "k", "key_base64": "aw=="})), @"key_base64: the schedule has key, too; leave one of the two out");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "priority": 1})), @"priority: priority 1 is for priority queues, this queue has none; leave it at 0");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "priority": 1.5})), @"invalid type: floating point `1.5`, expected a whole number at line 1 column 28");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "attributes": {"schedule": "x"}})), @"attributes: the item of a schedule has the attribute `schedule`, which the schedule sets; give it another name");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "content_type": "x".repeat(1_025)})), @"content_type: content type has 1025 bytes, at most 1024 are possible; shorten it");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "missed": "most"})), @"unknown variant `most`, expected one of `skip`, `once`, `all` at line 1 column 29");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "missed": "all", "overlap": "skip"})), @"overlap: all missed occurrences of a schedule are to fire, and its items may not overlap; let the newest one fire (once), or let them overlap (allow)");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "missed_max": 0})), @"missed_max: the maximum of missed occurrences is 0, 1 to 1000 are possible");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "missed_window": null})), @r#"invalid type: null, expected a duration such as "30s" at line 1 column 34"#);
    insta::assert_snapshot!(refused(&json!({"every": "5m", "jitter": "25h"})), @"jitter: jitter of a schedule is 90000s, whole milliseconds up to 86400s are possible; change it");
    insta::assert_snapshot!(refused(&json!({"every": "5m", "owner": "x"})), @"unknown field `owner`, expected one of `cron`, `every`, `zone`, `payload`, `payload_base64`, `payload_json`, `attributes`, `content_type`, `key`, `key_base64`, `priority`, `missed`, `missed_window`, `missed_max`, `overlap`, `jitter` at line 1 column 21");
    let too_long = read(&json!({"every": "5m"})).checked("", None, Kind::Fifo).unwrap_err();
    insta::assert_snapshot!(too_long, @"name: name of a schedule has 0 bytes, 1 to 255 are possible; change it");
}

proptest! {
    #[test]
    fn a_schedule_is_the_same_after_it_was_shown(
        payload: Vec<u8>,
        text: String,
        is_json: bool,
        key in proptest::option::of(any::<Vec<u8>>()),
        window in proptest::option::of(0..1_000_000_000_u64),
        period in 1_000..1_000_000_000_u64,
    ) {
        let calendar = Calendar::every(Duration::from_millis(period)).unwrap();
        let payload = if is_json { json!(text).to_string().into_bytes() } else { payload };
        let mut item = NewItem::new(payload).with_attribute("a", text);
        item.key = key;
        item.content_type = is_json.then(|| JSON.to_owned());
        let mut schedule = Schedule::new("s", calendar, item);
        schedule.missed.window = window.map(Duration::from_millis);
        let shown = serde_json::to_string(&ScheduleDefinition::from(&schedule)).unwrap();
        let again: ScheduleDefinition = serde_json::from_str(&shown).unwrap();
        prop_assert_eq!(again.schedule("s", None).unwrap(), schedule);
    }
}
