//! Every log event has a stable code and a constant sentence. docs/EVENTS.md lists the codes, and these tests keep the
//! two equal.
//!
//! The code is the first field of an event: `tracing::info!(event = "ready", queues, "ready")`. It is
//! `snake_case` and says what happened, or what state something is in. Scripts, alerts and tests depend on
//! codes; the sentences may change. What varies is a field, so that tools can group events by their sentence.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The levels at which each code is logged, by code.
type Codes = BTreeMap<String, Vec<String>>;

/// The source files of the program, except files that only have tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The log macros of a text: their level and what is behind the parenthesis.
fn macros(text: &str) -> Vec<(&str, &str)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let of_level = |level: &'static str| {
        let call = format!("tracing::{level}!(");
        text.match_indices(&call).map(|(at, call)| (level, text[at + call.len()..].trim_start())).collect()
    };
    let found: [Vec<_>; 5] = ["error", "warn", "info", "debug", "trace"].map(of_level);
    found.concat()
}

/// The code of the event that a macro logs, if its first field is one.
fn code(body: &str) -> Option<&str> {
    let body = match body.strip_prefix("target: ") {
        Some(rest) => rest.split_once(',')?.1.trim_start(),
        None => body,
    };
    let code = body.strip_prefix("event = \"")?.split('"').next()?;
    let is_plain = |char: char| char.is_ascii_lowercase() || char == '_';
    (!code.is_empty() && code.chars().all(is_plain)).then_some(code)
}

/// The texts among a macro's own arguments. `body` goes on after the macro's end.
fn texts(body: &str) -> Vec<&str> {
    let (mut found, mut depth, mut began) = (Vec::new(), 1, None);
    let mut chars = body.char_indices();
    while let (1.., Some((at, char))) = (depth, chars.next()) {
        match (began, char) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(from), '"') => {
                found.extend((depth == 1).then(|| &body[from..at]));
                began = None;
            }
            (Some(_), _) => {}
            (None, '"') => began = Some(at + 1),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, _) => {}
        }
    }
    found
}

/// Whether the sentence of an event, the last text in its macro, is the same each time.
fn is_constant(body: &str) -> bool {
    texts(body).last().is_some_and(|sentence| !sentence.contains('{'))
}

fn add(codes: &mut Codes, code: &str, level: &str) {
    let levels = codes.entry(code.to_owned()).or_default();
    levels.push(level.to_owned());
    levels.sort();
    levels.dedup();
}

/// The codes in the source.
fn logged() -> Codes {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let (mut codes, mut wrong) = (Codes::new(), Vec::new());
    for file in files.iter().filter(|file| !file.ends_with("telemetry/events.rs")) {
        let text = fs::read_to_string(file).unwrap();
        for (level, body) in macros(&text) {
            match code(body).filter(|_| is_constant(body)) {
                Some(code) => add(&mut codes, code, level),
                None => wrong.push(format!("{}: {}", file.display(), body.lines().next().unwrap())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "log events without a code as their first field, or with a sentence that varies: {wrong:#?}"
    );
    codes
}

/// The codes in docs/EVENTS.md and the page below it: rows of its tables, with the code in the first column and levels in the second.
fn documented() -> Codes {
    let mut codes = Codes::new();
    let pages = [include_str!("../../docs/EVENTS.md"), include_str!("../../docs/events/queues.md")];
    for line in pages.into_iter().flat_map(str::lines) {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let code = columns.get(1).and_then(|it| it.strip_prefix('`')?.strip_suffix('`'));
        // Code, level, meaning, what to do.
        if let (Some(code), 6) = (code, columns.len()) {
            assert!(!codes.contains_key(code), "{code} is there twice");
            columns[2].split(", ").for_each(|level| add(&mut codes, code, level));
        }
    }
    codes
}

#[test]
fn every_log_event_has_a_code_that_the_documentation_lists() {
    let (logged, documented) = (logged(), documented());
    assert!(logged.len() > 50, "{logged:?}");
    assert_eq!(logged, documented, "the source logs what is left, docs/EVENTS.md lists what is right");
}

#[test]
fn a_sentence_that_varies_is_found() {
    assert!(is_constant(
        r#"event = "a", reason = format!("{x}"), "not {so}".len(), "it \"failed\""); x("{y}")"#
    ));
    assert!(!is_constant(r#"event = "a", "it failed: {error}");"#));
    assert!(!is_constant("event = CODE, error);"));
}

#[test]
fn a_macro_without_a_plain_code_is_found() {
    let text = "tracing::info!(event = \"ready\", \"ready\");\n\
                tracing::warn!(target: \"a\", event = \"lease_lost\", \"b\");\n\
                tracing::debug!(queue, \"no code\");\n\
                tracing::error!(event = \"log-dropped\", \"no plain code\");";
    let found: Vec<_> = macros(text).into_iter().map(|(level, body)| (level, code(body))).collect();
    let wanted = [("error", None), ("warn", Some("lease_lost")), ("info", Some("ready")), ("debug", None)];
    assert_eq!(found, wanted);
}
