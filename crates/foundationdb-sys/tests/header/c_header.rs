//! As much of C as FoundationDB's header needs: comments, `#if` on the API version, prototypes, enumerations.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Declared, parameter_count};

/// Reads `fdb_c.h` and the generated options header next to it.
pub(crate) fn read(header: &Path) -> Declared {
    let mut text = active_lines(&without_comments(&load(header)));
    text.push_str(&active_lines(&without_comments(&load(&header.with_file_name("fdb_c_options.g.h")))));
    Declared { functions: prototypes(&text), constants: enumerators(&text) }
}

fn load(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((code, comment)) = rest.split_once("/*") {
        out.push_str(code);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

/// The lines that the preprocessor would keep at API version 730, without its directives.
fn active_lines(text: &str) -> String {
    let mut out = String::new();
    // One entry per open `#if`: whether this branch is kept, and whether an earlier one was.
    let mut open: Vec<(bool, bool)> = Vec::new();
    let joined = text.replace("\\\n", " ");
    for line in joined.lines() {
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            if open.iter().all(|(kept, _)| *kept) {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        };
        let (word, condition) = directive.trim().split_once(' ').unwrap_or((directive.trim(), ""));
        match word {
            "if" => open.push((holds(condition), holds(condition))),
            // The header asks only for C++ and compiler names this way, and for its own guard.
            "ifdef" => open.push((false, false)),
            "ifndef" => open.push((true, true)),
            "elif" | "else" => {
                let (kept, before) = open.last_mut().expect("an #else stands inside an #if");
                *kept = !*before && (word == "else" || holds(condition));
                *before |= *kept;
            }
            "endif" => {
                open.pop();
            }
            _ => {}
        }
    }
    out
}

/// Whether a condition on `FDB_API_VERSION` holds at 730. Only the first comparison counts: what the header
/// joins to it by `&&` or `||` asks for names that are never defined here.
fn holds(condition: &str) -> bool {
    let words: Vec<&str> = condition.split_whitespace().collect();
    let version = i64::from(foundationdb_sys::FDB_API_VERSION);
    match words.as_slice() {
        ["FDB_API_VERSION", ">=", bound, ..] => version >= number(bound),
        ["FDB_API_VERSION", "<", bound, ..] => version < number(bound),
        _ => false,
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// Every `fdb_name(` that is not a call in a macro: directives are gone by now.
fn prototypes(text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (open, _) in text.match_indices('(') {
        let name = text[..open].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        if name.starts_with("fdb_") {
            let parameters = &text[open..];
            let count = if parameters.starts_with("(void)") { 0 } else { parameter_count(parameters) };
            found.insert(name.to_owned(), count);
        }
    }
    found
}

/// Every constant of a `typedef enum`, as bindgen names it: `<type>_<constant>`.
fn enumerators(text: &str) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for part in text.split("typedef enum").skip(1) {
        let body = part.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let (body, after) = body.expect("an enumeration has a body in braces");
        let name = after.split(';').next().unwrap_or("").trim();
        for (constant, value) in body.split(',').filter_map(|entry| entry.split_once('=')) {
            found.insert(format!("{name}_{}", constant.trim()), number(value.trim()));
        }
    }
    found
}
