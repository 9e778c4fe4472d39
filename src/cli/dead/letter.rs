//! A dead letter as it is printed.

use kvqueue_queue::DeadLetter;

pub(super) use crate::json::letter as object;
use crate::{cli::output::time, json::failures};

/// All that is known, as lines, and the payload behind an empty one.
pub(super) fn text(letter: &DeadLetter) -> Vec<u8> {
    let meta = &letter.meta;
    let mut lines = vec![
        ("id", letter.id.to_string()),
        ("died", time(letter.died_at)),
        ("reason", letter.reason.clone()),
        ("attempts", meta.attempts.to_string()),
    ];
    if meta.crashes > 0 {
        lines.push(("crashes", meta.crashes.to_string()));
    }
    for (failure, before_retry) in failures(meta) {
        let before = if before_retry { ", before it was retried," } else { "" };
        let text = format!("attempt {}{before} at {}: {}", failure.attempt, time(failure.at), failure.reason);
        lines.push(("failure", text));
    }
    lines.extend(meta.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(meta.enqueued_at.map(|at| ("pushed", time(at))));
    lines.extend(meta.content_type.clone().map(|text| ("content type", text)));
    lines.extend(meta.trace_parent.clone().map(|text| ("trace parent", text)));
    lines.extend(meta.unique.as_ref().map(|key| ("unique key", key.escape_ascii().to_string())));
    let payload = letter.payload.as_deref().unwrap_or_default();
    lines.push((
        "payload",
        match letter.unreadable {
            None => format!("{} bytes", payload.len()),
            Some(_) => "cannot be read".to_owned(),
        },
    ));
    let mut text: Vec<u8> =
        lines.iter().flat_map(|(name, value)| format!("{name:13}{value}\n").into_bytes()).collect();
    text.push(b'\n');
    text.extend_from_slice(payload);
    text
}
