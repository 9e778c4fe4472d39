//! Records of handled items: a line each, in a file for each process.

use std::{fmt, path::Path};

use super::payload::{Name, parse};

/// The outcome of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Done,
    Fail,
    Bury,
    Release,
    /// The process killed itself.
    Crash,
}

/// What a callback has as attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) outcome: String,
    pub(super) members: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
    pub(super) expired: u64,
    pub(super) taken: u64,
}

impl Counts {
    /// By the attributes; `None` if it is no callback.
    pub(super) fn of<'a>(attribute: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let number = |name: &str| attribute(name)?.parse().ok();
        Some(Self {
            outcome: attribute("batch-outcome")?.to_owned(),
            members: number("batch-members")?,
            done: number("batch-done")?,
            dead: number("batch-dead")?,
            cancelled: number("batch-cancelled")?,
            expired: number("batch-expired")?,
            taken: number("batch-taken")?,
        })
    }
}

/// A line of a helper's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// An item was handled.
    Handled {
        name: Name,
        attempt: u32,
        /// How many failures were known of it.
        failures: usize,
        act: Act,
        /// When that was, in ms since 1970.
        at: u64,
        /// The item's id.
        id: String,
    },
    /// The callback of a batch was handled.
    Called { name: Name, counts: Counts },
    /// Something was handled that nobody has pushed so.
    Nonsense(String),
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, attempt, failures, act, at, id) = match self {
            Self::Handled { name, attempt, failures, act, at, id } => (name, attempt, failures, act, at, id),
            Self::Called { name, counts } => {
                let Counts { outcome, members, done, dead, cancelled, expired, taken } = counts;
                return write!(
                    f,
                    "called {name} {outcome} {members} {done} {dead} {cancelled} {expired} {taken}"
                );
            }
            Self::Nonsense(text) => return write!(f, "nonsense {text:?}"),
        };
        let act = match act {
            Act::Done => "done",
            Act::Fail => "fail",
            Act::Bury => "bury",
            Act::Release => "release",
            Act::Crash => "crash",
        };
        write!(f, "{name} {attempt} {failures} {act} {at} {id}")
    }
}

/// Reads a line; `None` if it is none.
fn read(line: &str) -> Option<Record> {
    if let Some(text) = line.strip_prefix("nonsense ") {
        return Some(Record::Nonsense(text.to_owned()));
    }
    if let Some(words) = line.strip_prefix("called ") {
        let [name, outcome, numbers @ ..] = &words.split(' ').collect::<Vec<_>>()[..] else { return None };
        let numbers: Vec<u64> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
        let [members, done, dead, cancelled, expired, taken] = numbers.try_into().ok()?;
        let counts =
            Counts { outcome: (*outcome).to_owned(), members, done, dead, cancelled, expired, taken };
        return Some(Record::Called { name: parse(name)?, counts });
    }
    let [name, attempt, failures, act, at, id] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let act = match act {
        "done" => Act::Done,
        "fail" => Act::Fail,
        "bury" => Act::Bury,
        "release" => Act::Release,
        "crash" => Act::Crash,
        _ => return None,
    };
    Some(Record::Handled {
        name: parse(name)?,
        attempt: attempt.parse().ok()?,
        failures: failures.parse().ok()?,
        act,
        at: at.parse().ok()?,
        id: id.to_owned(),
    })
}

/// The items that the helpers have handled.
pub(super) fn recorded(directory: &Path) -> Vec<Record> {
    let lines = texts(directory);
    let lines = lines.iter().flat_map(|text| text.lines());
    lines.map(|line| read(line).unwrap_or_else(|| Record::Nonsense(line.to_owned()))).collect()
}

/// The output of the program. A line that was cut off when its process was killed counts if it tells which item it was.
pub(super) fn printed(directory: &Path) -> Vec<Result<Name, String>> {
    let texts = texts(directory);
    let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
    lines
        .filter_map(|line| match line.strip_suffix('\n') {
            Some(line) => Some(line.parse().map_err(|_| line.chars().take(100).collect())),
            None => line.split_once(' ').and_then(|(name, _)| parse(name)).map(Ok),
        })
        .collect()
}

fn texts(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap();
    let bytes = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

#[test]
fn records_are_read_as_they_are_written() {
    let name = Name { queue: 1, producer: 20, place: 300 };
    for act in [Act::Done, Act::Fail, Act::Bury, Act::Release, Act::Crash] {
        let record = Record::Handled { name, attempt: 4, failures: 5, act, at: 6, id: "x7".to_owned() };
        assert_eq!(read(&record.to_string()), Some(record));
    }
    let counts = Counts::of(|name| Some(if name == "batch-outcome" { "complete" } else { "7" })).unwrap();
    let record = Record::Called { name, counts };
    assert_eq!(read(&record.to_string()), Some(record));
    assert_eq!(read("1.20.300 4 5 done"), None);
}
