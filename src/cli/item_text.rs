//! One item as text: a line for each field, an empty line, and the payload.

use std::{borrow::Cow, io::IsTerminal};

use kvqueue_queue::{ItemId, Meta, Millis};

use super::output::time;
use crate::{json::failures, text::visible_lines};

/// A field's name and its value.
type Line = (&'static str, String);

/// The fields, an empty line and the payload; `None`: it cannot be read.
pub(super) fn text(mut lines: Vec<Line>, payload: Option<&[u8]>) -> Vec<u8> {
    let about_payload =
        payload.map_or("cannot be read".to_owned(), |payload| format!("{} bytes", payload.len()));
    lines.push(("payload", about_payload));
    let mut text = fields(&lines).into_bytes();
    text.push(b'\n');
    text.extend_from_slice(&for_reader(payload.unwrap_or_default()));
    text
}

/// The width of the names of fields.
const NAMES: usize = 13;

/// A line for each field, and more for a value of several lines. Others wrote the values: what would move the cursor is shown as its code.
pub(super) fn fields(lines: &[Line]) -> String {
    let indent = " ".repeat(NAMES);
    lines
        .iter()
        .map(|(name, value)| format!("{name:NAMES$}{}\n", visible_lines(value.trim_end(), &indent)))
        .collect()
}

/// Bytes of others for standard output: as they are, but on a terminal without what would control it.
pub(super) fn for_reader(bytes: &[u8]) -> Cow<'_, [u8]> {
    match std::io::stdout().is_terminal() {
        true => visible_lines(&String::from_utf8_lossy(bytes), "").into_bytes().into(),
        false => bytes.into(),
    }
}

/// The fields of what was pushed with an item, and of its attempts. Without its side record only the key and the time are known.
pub(super) fn about(id: &ItemId, meta: Option<&Meta>, pushed: Option<Millis>) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(meta) = meta {
        lines.extend((meta.crashes > 0).then(|| ("crashes", meta.crashes.to_string())));
        lines.extend(failures(meta).map(|(failure, before_retry)| {
            let before = if before_retry { ", before it was retried," } else { "" };
            let at = time(failure.at);
            let attempt = match failure.attempt {
                0 => "no attempt".to_owned(),
                number => format!("attempt {number}"),
            };
            ("failure", format!("{attempt}{before} at {at}: {}", failure.reason))
        }));
    }
    lines.extend(id.key().map(|key| ("key", key.escape_ascii().to_string())));
    lines.extend(pushed.map(|at| ("pushed", time(at))));
    let Some(meta) = meta else { return lines };
    lines.extend(meta.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(meta.content_type.clone().map(|text| ("content type", text)));
    lines.extend(meta.trace_parent.clone().map(|text| ("trace parent", text)));
    lines.extend(meta.expires.map(|at| ("expires", time(at))));
    lines.extend(meta.unique.as_ref().map(|key| ("unique key", key.escape_ascii().to_string())));
    lines.extend(meta.unique_until.map(|at| ("unique until", time(at))));
    lines.extend(meta.batches.iter().map(|batch| ("batch", batch.to_string())));
    lines
}
