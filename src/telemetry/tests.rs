//! Tests of the log.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::{
    fmt::MakeWriter,
    layer::{Layer, SubscriberExt},
};

use super::{
    level, span,
    structured::{Gathered, Json},
};
use crate::testing::Sample;

/// A log in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn lines(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Memory {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Logs what `work` does, at this level; `work` gets the handle that changes it.
fn logged(level: &str, work: impl FnOnce(&level::Levels)) -> Vec<serde_json::Value> {
    let (filter, levels) = level::filter(level).unwrap();
    let memory = Memory::default();
    let lines = Gathered(Json(memory.clone())).with_filter(filter);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(vec![lines.boxed()]), || {
        work(&levels);
    });
    memory.lines()
}

#[test]
fn log_level_can_be_changed_at_run_time() {
    let lines = logged("warn", |levels| {
        tracing::info!("not said");
        level::change(levels, level::parse("info").unwrap());
        tracing::info!("said");
        level::change(levels, level::parse("error").unwrap());
        tracing::warn!("not said either");
    });
    let said: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(said, ["said"]);
}

#[test]
fn the_span_of_an_item_has_its_fields_and_its_outcome() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let item = Sample::new("secret").attempt(3).trace_parent(PARENT).build();
    let lines = logged("info", |_| {
        let span = span::of("emails", "exec", std::slice::from_ref(&item));
        span.in_scope(|| tracing::info!("before"));
        span::outcome(|| span.clone(), "retry");
        span.in_scope(|| tracing::info!("after"));
    });
    let mut wanted = serde_json::json!({
        "timestamp": lines[0]["timestamp"], "level": "INFO", "message": "before", "target": module_path!(),
        "span": "item", "queue": "emails", "handler": "exec", "item": item.id.to_string(), "attempt": 3,
        "trace_parent": PARENT,
    });
    assert_eq!(lines[0], wanted);
    assert!(lines[0]["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{}", lines[0]);
    wanted["outcome"] = "retry".into();
    wanted["message"] = "after".into();
    wanted["timestamp"] = lines[1]["timestamp"].clone();
    assert_eq!(lines[1], wanted);
}

#[test]
fn items_are_named_at_every_level() {
    let item = Sample::new("").build();
    for level in ["warn", "error", "off,kvqueue::telemetry::tests=error"] {
        let lines = logged(level, |_| {
            let span = span::of("q", "exec", std::slice::from_ref(&item));
            span::outcome(|| span.clone(), "dead");
            span.in_scope(|| tracing::error!("failed"));
        });
        let told = ["span", "queue", "handler", "outcome"].map(|name| lines[0][name].as_str().unwrap());
        assert_eq!(told, ["item", "q", "exec", "dead"], "{level}");
    }
}

#[test]
fn a_malformed_trace_parent_is_not_logged() {
    let item = Sample::new("").trace_parent("00-\n\u{1b}[31m").build();
    let lines = logged("info", |_| {
        span::of("q", "log", std::slice::from_ref(&item)).in_scope(|| tracing::info!("hello"));
    });
    assert_eq!(lines[0].get("trace_parent"), None);
}

#[test]
fn a_call_for_several_items_has_one_span() {
    let items = [1, 2].map(|place| Sample::new("").place(place).build());
    let lines = logged("info", |_| {
        let span = span::of("q", "whole", &items);
        // There is no such field, and no harm done.
        span::outcome(|| span.clone(), "done");
        span.in_scope(|| tracing::info!("hello"));
    });
    let wanted = serde_json::json!({
        "timestamp": lines[0]["timestamp"], "level": "INFO", "message": "hello", "target": module_path!(),
        "span": "items", "queue": "q", "handler": "whole", "items": 2,
    });
    assert_eq!(lines[0], wanted);
}

#[test]
fn values_keep_their_type_and_the_event_s_own_fields_win() {
    let lines = logged("info", |_| {
        let outer = tracing::info_span!("outer", queue = "of the outer", own = 1, k = 3);
        let inner = outer.in_scope(|| tracing::info_span!("inner", queue = "of the inner"));
        inner.in_scope(|| {
            let long = std::time::Duration::from_millis(30_000);
            tracing::info!(
                own = true,
                long_ms = long.as_millis(),
                below = -5,
                part = 0.5,
                huge = u128::MAX,
                path = ?"a\n\"b\"",
                error = %"it\tfailed",
                "quoted \"text\""
            );
        });
    });
    let wanted = serde_json::json!({
        "timestamp": lines[0]["timestamp"], "level": "INFO", "message": "quoted \"text\"", "target": module_path!(),
        "span": "inner", "queue": "of the inner", "k": 3, "own": true, "long_ms": 30_000, "below": -5, "part": 0.5,
        "huge": u128::MAX.to_string(), "path": "\"a\\n\\\"b\\\"\"", "error": "it\tfailed",
    });
    assert_eq!(lines[0], wanted);
}

#[test]
fn device_and_inode_name_the_stream_of_the_journal() {
    assert_eq!(super::device_and_inode("8:1234"), Some((8, 1_234)));
    for wrong in ["", "8", "8:", "a:b", "8:1:2", "-8:1"] {
        assert_eq!(super::device_and_inode(wrong), None, "{wrong}");
    }
}

#[test]
fn a_long_list_is_cut_and_counted() {
    assert_eq!(super::listed(&[""; 0]), "");
    assert_eq!(super::listed(&["a", "b.c"]), "a, b.c");
    let names: Vec<_> = (0..10_000).map(|number| format!("queues.number-{number}")).collect();
    let text = super::listed(&names);
    assert!(text.len() <= super::LONGEST_LIST + 32, "{}", text.len());
    let shown = text.matches("queues.").count();
    assert!(shown > 100 && text.ends_with(&format!(" and {} more", 10_000 - shown)), "{text}");
}
