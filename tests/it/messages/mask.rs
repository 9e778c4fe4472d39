//! What a run says, without values that differ from run to run.

use crate::support::{Database, Ran};

/// The shortest run of hexadecimal digits that is an id.
const ID: usize = 16;

/// What a run says, as a person sees it: its output, its messages, and how it ended.
pub(crate) fn printed(ran: &Ran, db: &Database, is_measured: bool) -> String {
    let mask = |text: &str| {
        let text = names(text, db);
        if is_measured { numbers(&text) } else { text }
    };
    let mut text: String = mask(&ran.stdout).lines().map(|line| format!("{line}\n")).collect();
    text.extend(mask(&ran.stderr).lines().map(|line| format!("! {line}\n")));
    match ran.code {
        Some(0) => {}
        code => text.push_str(&format!("exit code {}\n", code.unwrap())),
    }
    text
}

/// Paths, ids, times of day, and who runs the test.
pub(crate) fn names(text: &str, db: &Database) -> String {
    let text = text.replace(db.directory.path().to_str().unwrap(), "DIR");
    let text = match text.split_once("this user, ") {
        Some((before, after)) => {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).unwrap_or(0);
            format!("{before}this user, USER{}", names(&after[end..], db))
        }
        None => text,
    };
    let text = masked_between(&text, "local user ", ")", "USER (uid N");
    let text = masked_between(&text, r#""who":{"#, "}", "WHO");
    let text = masked_between(&text, r#""waited_ms":"#, "}", "N");
    // An hour, less the time since the push.
    let text = masked_between(&text, "it is ready in 59m ", ",", "Ns");
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-:.+".contains(c));
    words.map(name).collect()
}

/// A text with other words wherever it has something between `begin` and `end`.
fn masked_between(text: &str, begin: &str, end: &str, mask: &str) -> String {
    let mut parts = text.split(begin);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(end).unwrap_or_default();
        masked += &format!("{begin}{mask}{end}{rest}");
    }
    masked
}

/// A word, and the character that ends it.
fn name(word: &str) -> String {
    let core = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let rest = &word[core.len()..];
    // Behind hyphens a lease has its number, and its signature.
    let (id, number) = core.split_at(core.find('-').unwrap_or(core.len()));
    // The id of an item with a key begins with an x.
    let digits = id.strip_prefix('x').unwrap_or(id);
    let is_id = |digits: &str| digits.len() >= ID && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id(digits) {
        let signed = number.rsplit_once('-').filter(|(_, signature)| is_id(signature));
        let number = signed.map_or_else(
            || number.to_owned(),
            |(number, signature)| format!("{number}-{}", "i".repeat(signature.len())),
        );
        format!("{}{number}{rest}", "i".repeat(id.len()))
    } else if let Some((home, unique)) = core.rsplit_once('-').filter(|(_, unique)| is_id(unique)) {
        // The id of a batch begins with the name of a queue.
        format!("{home}-{}{rest}", "i".repeat(unique.len()))
    } else if is_time(core) {
        format!("TIME{rest}")
    } else {
        word.to_owned()
    }
}

/// As in `2023-11-14T22:13:20.500Z`.
fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with("0000-00-00T00:00:00") && shape.ends_with('Z')
}

/// Each number an `N`, each time one of seconds, each size one of GiB, and what is aligned by their widths no wider than needed.
fn numbers(text: &str) -> String {
    let mut masked = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if masked.ends_with('N') => {}
            '0'..='9' => masked.push('N'),
            ' ' | '─' | '═' | '╌' if masked.ends_with(c) => {}
            other => masked.push(other),
        }
    }
    for unit in ["KiB", "MiB", "TiB"] {
        masked = masked.replace(&format!("N {unit}"), "N GiB");
    }
    // JSON writes a short time as 9.1e-5.
    let masked =
        masked.replace("Ne-N", "N").replace("N us", "N s").replace("N ms", "N s").replace("Nms", "Ns");
    // A time from now has whole days every 24 hours.
    masked.replace("in N d N h", "in N d")
}

#[test]
fn only_varying_parts_of_messages_are_masked() {
    let db = Database::embedded();
    let text = format!("{} has 0000530f5e8f5e8f00000000, since 2026-01-01T00:00:00.000Z.", db.url);
    assert_eq!(names(&text, &db), "embedded:DIR/data has iiiiiiiiiiiiiiiiiiiiiiii, since TIME.");
    assert_eq!(names("by local user ann (uid 7).", &db), "by local user USER (uid N).");
    assert_eq!(names("deadbeef, 2 of 3", &db), "deadbeef, 2 of 3");
    assert_eq!(names("01a20fe84a6d800e-17 01a20fe8-17", &db), "iiiiiiiiiiiiiiii-17 01a20fe8-17");
    assert_eq!(numbers("12.5 ms   of 3"), "N s of N");
    assert_eq!(numbers("1.5 TiB of 3 KiB"), "N GiB of N GiB");
    assert_eq!(numbers("9.1e-5,0.2"), "N,N");
    assert_eq!(numbers("in 3 d 20 h, in 3 d"), "in N d, in N d");
}
