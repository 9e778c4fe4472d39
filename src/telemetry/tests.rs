//! What a log gets to hear.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::{
    fmt::MakeWriter,
    layer::{Layer, SubscriberExt},
};

use super::{json, level, span};
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

/// Logs what `work` does, at this level; it gets what changes that.
fn logged(level: &str, work: impl FnOnce(&level::Levels)) -> Vec<serde_json::Value> {
    let (filter, levels) = level::filter(level).unwrap();
    let memory = Memory::default();
    let lines = json(memory.clone()).with_filter(filter);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(vec![lines.boxed()]), || {
        work(&levels);
    });
    memory.lines()
}

#[test]
fn a_level_changes_while_the_log_goes_on() {
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
fn the_span_of_an_item_says_what_it_is_and_what_becomes_of_it() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let item = Sample::new("secret").attempt(3).trace_parent(PARENT).build();
    let lines = logged("info", |_| {
        let span = span::of("emails", "exec", std::slice::from_ref(&item));
        span.in_scope(|| tracing::info!("before"));
        span::outcome(|| span.clone(), "retry");
        span.in_scope(|| tracing::info!("after"));
    });
    let mut wanted = serde_json::json!({
        "name": "item", "queue": "emails", "handler": "exec", "item": item.id.to_string(), "attempt": 3,
        "trace_parent": PARENT,
    });
    assert_eq!(lines[0]["spans"][0], wanted);
    wanted["outcome"] = "retry".into();
    assert_eq!(lines[1]["spans"][0], wanted);
}

#[test]
fn what_is_no_trace_parent_is_not_logged() {
    let item = Sample::new("").trace_parent("00-\n\u{1b}[31m").build();
    let lines = logged("info", |_| {
        span::of("q", "log", std::slice::from_ref(&item)).in_scope(|| tracing::info!("hello"));
    });
    assert_eq!(lines[0]["spans"][0].get("trace_parent"), None);
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
    let wanted = serde_json::json!({ "name": "items", "queue": "q", "handler": "whole", "items": 2 });
    assert_eq!(lines[0]["spans"][0], wanted);
}
