//! The history of transactions, as text, and the judge: did they do what they would have done one after the other?

use std::collections::BTreeMap;
use std::fmt;

/// One step of a transaction. Its text is what the log holds; keys and values in it have no spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a key.
    Get(String),
    /// Reads the first rows between two keys, or the last ones.
    Range { begin: String, end: String, limit: usize, reverse: bool },
    /// Sets a key.
    Set(String, String),
    /// Appends to a key's value, without reading it.
    Append(String, String),
    /// Adds to a number of eight bytes.
    Add(String, u64),
    /// Clears what is between two keys.
    Clear(String, String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Get(key) => write!(f, "get {key}"),
            Step::Range { begin, end, limit, reverse } => write!(f, "range {begin} {end} {limit} {reverse}"),
            Step::Set(key, value) => write!(f, "set {key} {value}"),
            Step::Append(key, value) => write!(f, "append {key} {value}"),
            Step::Add(key, number) => write!(f, "add {key} {number}"),
            Step::Clear(begin, end) => write!(f, "clear {begin} {end}"),
        }
    }
}

impl Step {
    fn parse(text: &str) -> Step {
        let words: Vec<&str> = text.split(' ').collect();
        let own = |word: &&str| (*word).to_owned();
        match &words[..] {
            ["get", key] => Step::Get(own(key)),
            ["range", begin, end, limit, reverse] => Step::Range {
                begin: own(begin),
                end: own(end),
                limit: limit.parse().unwrap(),
                reverse: reverse.parse().unwrap(),
            },
            ["set", key, value] => Step::Set(own(key), own(value)),
            ["append", key, value] => Step::Append(own(key), own(value)),
            ["add", key, number] => Step::Add(own(key), number.parse().unwrap()),
            ["clear", begin, end] => Step::Clear(own(begin), own(end)),
            _ => panic!("{text:?} is not a step"),
        }
    }
}

/// A step and what it read, as [`key_found`] and [`rows_found`] write it; a write reads nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub step: Step,
    pub found: String,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} => {}", self.step, self.found)
    }
}

impl Done {
    pub fn parse(line: &str) -> Done {
        let (step, found) = line.split_once(" => ").unwrap();
        Done { step: Step::parse(step), found: found.to_owned() }
    }
}

/// The text of a key's value.
pub fn key_found(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| format!("={}", value.escape_ascii()))
}

/// The text of rows.
pub fn rows_found<'r>(rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) -> String {
    let row = |(key, value): (&[u8], &[u8])| format!("{}={}", key.escape_ascii(), value.escape_ascii());
    rows.into_iter().map(row).collect::<Vec<_>>().join(";")
}

/// The database that the log describes.
#[derive(Default)]
pub struct Model(BTreeMap<String, Vec<u8>>);

impl Model {
    /// Does a step, and returns what it reads.
    pub fn step(&mut self, step: &Step) -> String {
        match step {
            Step::Get(key) => return key_found(self.0.get(key).map(Vec::as_slice)),
            Step::Range { begin, end, limit, reverse } => {
                let mut rows: Vec<_> = self.0.range(begin.clone()..end.clone()).collect();
                if *reverse {
                    rows.reverse();
                }
                return rows_found(rows.iter().take(*limit).map(|(key, value)| (key.as_bytes(), &value[..])));
            }
            Step::Set(key, value) => drop(self.0.insert(key.clone(), value.clone().into_bytes())),
            Step::Append(key, value) => {
                self.0.entry(key.clone()).or_default().extend_from_slice(value.as_bytes());
            }
            Step::Add(key, number) => {
                let old = self.0.get(key).map_or(0, |old| u64::from_le_bytes(old[..].try_into().unwrap()));
                self.0.insert(key.clone(), old.wrapping_add(*number).to_le_bytes().to_vec());
            }
            Step::Clear(begin, end) => self.0.retain(|key, _| !(begin..end).contains(&key)),
        }
        String::new()
    }

    /// What is wrong with a step that has been done here, if anything.
    fn fault(&mut self, done: &Done) -> Option<String> {
        let expected = self.step(&done.step);
        (expected != done.found).then(|| format!("{done}\n    but there was {expected}"))
    }
}

/// A transaction of the log.
#[derive(Clone)]
pub struct Logged {
    /// The version of its commit, and its place among the commits of this version.
    pub stamp: (i64, u16),
    pub id: String,
    pub steps: Vec<Done>,
}

impl Logged {
    /// What a transaction logs about itself.
    pub fn text(id: &str, steps: &[Done]) -> String {
        steps.iter().fold(id.to_owned(), |text, done| format!("{text}\n{done}"))
    }

    pub fn parse(stamp: &[u8], text: &str) -> Logged {
        let (version, place) = stamp.split_at(8);
        let stamp =
            (i64::from_be_bytes(version.try_into().unwrap()), u16::from_be_bytes(place.try_into().unwrap()));
        let mut lines = text.lines();
        Logged { stamp, id: lines.next().unwrap().to_owned(), steps: lines.map(Done::parse).collect() }
    }
}

/// What the processes know about their transactions.
#[derive(Clone, Default)]
pub struct History {
    /// The transactions that the database logged, in the order of their stamps.
    pub log: Vec<Logged>,
    /// Those whose commits were acknowledged, with their versions.
    pub acknowledged: Vec<(String, i64)>,
    /// Transactions that failed with an error that means that they are not committed, with its code.
    pub refused: Vec<(String, i32)>,
    /// Reads without writes, at a version.
    pub reads: Vec<(i64, Done)>,
}

impl History {
    /// Everything that contradicts the order of the stamps.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.replay();
        let versions: BTreeMap<_, _> = self.log.iter().map(|logged| (&logged.id, logged.stamp.0)).collect();
        if versions.len() < self.log.len() {
            faults.push("a transaction is logged twice".to_owned());
        }
        let lost = self.acknowledged.iter().filter(|(id, version)| versions.get(id) != Some(version));
        faults.extend(lost.map(|(id, version)| {
            format!("{id}: acknowledged at version {version}, and logged at {:?}", versions.get(id))
        }));
        let kept = self.refused.iter().filter(|(id, _)| versions.contains_key(id));
        faults.extend(kept.map(|(id, code)| format!("{id}: failed with {code}, and is logged")));
        faults
    }

    /// Runs the log on a model, and the reads between the commits around their versions.
    fn replay(&self) -> Vec<String> {
        let (mut model, mut faults) = (Model::default(), Vec::new());
        let mut reads: Vec<_> = self.reads.iter().collect();
        reads.sort_by_key(|(version, _)| *version);
        let mut reads = reads.into_iter().peekable();
        let mut last = None;
        for logged in &self.log {
            while let Some((version, done)) = reads.next_if(|(version, _)| *version < logged.stamp.0) {
                faults.extend(model.fault(done).map(|fault| format!("a read at version {version}: {fault}")));
            }
            if last.replace(logged.stamp).is_some_and(|last| last >= logged.stamp) {
                faults.push(format!("{}: the stamp {:?} is not in order", logged.id, logged.stamp));
            }
            let wrong = logged.steps.iter().filter_map(|done| model.fault(done));
            faults.extend(wrong.map(|fault| format!("{} at {:?}: {fault}", logged.id, logged.stamp)));
        }
        for (version, done) in reads {
            faults.extend(model.fault(done).map(|fault| format!("a read at version {version}: {fault}")));
        }
        faults
    }
}

#[test]
fn a_wrong_read_is_found() {
    let done = |lines: &[&str]| lines.iter().map(|line| Done::parse(line)).collect();
    let logged = |version, id: &str, lines: &[&str]| Logged {
        stamp: (version, 0),
        id: id.to_owned(),
        steps: done(lines),
    };
    let history = History {
        log: vec![
            logged(
                10,
                "a",
                &["get m/00 => nothing", "set m/00 x => ", "append m/00 y => ", "add m/09 258 => "],
            ),
            logged(
                20,
                "b",
                &["range m/00 m/12 9 true => m/09=\\x02\\x01\\x00\\x00\\x00\\x00\\x00\\x00;m/00=xy"],
            ),
            logged(30, "c", &["get m/00 => =xy", "clear m/00 m/01 => ", "get m/00 => nothing"]),
        ],
        acknowledged: vec![("a".to_owned(), 10), ("c".to_owned(), 30)],
        refused: vec![("d".to_owned(), 1020)],
        reads: [
            (5, "get m/00 => nothing"),
            (10, "get m/00 => =xy"),
            (29, "get m/00 => =xy"),
            (30, "get m/00 => nothing"),
        ]
        .map(|(version, line)| (version, Done::parse(line)))
        .to_vec(),
    };
    assert_eq!(history.faults(), [""; 0]);

    type Damage = (&'static str, fn(&mut History));
    let damages: [Damage; 8] = [
        ("a read", |history| history.log[2].steps[0].found = "=x".to_owned()),
        ("a read after own writes", |history| history.log[2].steps[2].found = "=xy".to_owned()),
        ("a range without its last row", |history| history.log[1].steps[0].found.truncate(40)),
        ("a lost write", |history| drop(history.log[0].steps.remove(2))),
        ("a read at an older version", |history| history.reads[2].0 = 30),
        ("an acknowledged commit that is not logged", |history| {
            history.acknowledged.push(("e".to_owned(), 31));
        }),
        ("a refused commit that is logged", |history| history.refused.push(("b".to_owned(), 1007))),
        ("stamps that are out of order", |history| history.log[1].stamp = (10, 0)),
    ];
    for (what, damage) in damages {
        let mut damaged = history.clone();
        damage(&mut damaged);
        assert!(!damaged.faults().is_empty(), "the judge does not find {what}");
    }
}
