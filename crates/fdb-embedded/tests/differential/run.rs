//! Runs a program on a database and on the model, step by step.

use std::time::{Duration, Instant};

use fdb_embedded::testing::{Database, Future, KeySelector, Range, Reply, Transaction};

use crate::model::{End, Facts, Model, Seen};
use crate::program::{Bytes, CONFLICTING_KEYS, Call, Program, Step, TRANSACTIONS, Version};

/// How long a future may take that is due.
const PATIENCE: Duration = Duration::from_secs(60);
/// A program that takes longer may find its read versions too old. They are after five seconds; this leaves a margin.
const IN_TIME: Duration = Duration::from_secs(4);
/// How often a program runs before its read versions count as too old.
const TRIES: usize = 10;
/// How long a timeout of a millisecond needs to be over for certain.
const TIME_OUT: Duration = Duration::from_millis(25);

/// A commit that may have happened.
const UNKNOWN: Seen = Seen::Reply(Reply::Error(1021));
const TOO_OLD: i32 = 1007;
const MAX_RETRY_DELAY: u32 = 502;
const TIMEOUT: u32 = 500;
const LIMITS: (&[u8], &[u8]) = (b"", b"\xff");

/// One disagreement.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// The step after which the two differ; none means the end.
    pub step: Option<usize>,
    pub expected: String,
    pub seen: String,
}

impl Disagreement {
    /// Did something fail because its read version was too old?
    fn is_too_old(&self) -> bool {
        self.seen.contains(&format!("{:?}", Reply::Error(TOO_OLD)))
    }
}

/// Prints a program when the test panics while the program runs.
struct PrintOnPanic<'p>(&'p Program);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("while this program of seed {} ran:\n{}", self.0.seed, self.0);
        }
    }
}

/// The transactions of a program, with what they hold.
struct Session<'d> {
    database: &'d Database,
    transactions: Vec<Transaction>,
    held: Vec<Vec<Option<Future>>>,
}

/// Runs a program and returns the first disagreement. A program that the machine delayed until its read
/// versions became too old runs again.
pub fn check(database: &Database, strict: bool, program: &Program) -> Result<(), Disagreement> {
    let _print = PrintOnPanic(program);
    let mut tries = 0;
    loop {
        let start = Instant::now();
        let result = check_once(database, strict, program);
        tries += 1;
        match result {
            Err(found) if found.is_too_old() && start.elapsed() >= IN_TIME && tries < TRIES => {}
            result => return result,
        }
    }
}

fn check_once(database: &Database, strict: bool, program: &Program) -> Result<(), Disagreement> {
    prepare(database, program);
    let mut session = Session::new(database);
    let mut model = Model::new(program, strict);
    for (number, step) in program.steps.iter().enumerate() {
        let (seen, facts) = session.take(step, &model);
        if !strict && seen == UNKNOWN && step.call == Call::Commit {
            // A cluster may always say so; what is in it then nobody knows.
            return Ok(());
        }
        if let Err(expected) = model.step(step, &seen, &facts) {
            return Err(Disagreement { step: Some(number), expected, seen: format!("{seen:?}") });
        }
        if model.stopped {
            return Ok(());
        }
    }
    session.check_end(&model)
}

/// Makes the database hold the program's rows and nothing else.
fn prepare(database: &Database, program: &Program) {
    let transaction = database.transaction().unwrap();
    loop {
        transaction.set_option(301, None).unwrap();
        transaction.clear_range(LIMITS.0, LIMITS.1);
        transaction.clear_range(b"\xff\x02/kvqueue/a", b"\xff\x02/kvqueue/c");
        for (key, value) in &program.rows {
            transaction.set(key, value);
        }
        match transaction.commit().wait() {
            Reply::Error(code) => {
                assert_eq!(transaction.on_error(code).wait(), Reply::Void, "{code} is final");
            }
            _ => return,
        }
    }
}

impl<'d> Session<'d> {
    fn new(database: &'d Database) -> Session<'d> {
        let transaction = || {
            let transaction = database.transaction().unwrap();
            quick(&transaction);
            transaction
        };
        let transactions = (0..TRANSACTIONS).map(|_| transaction()).collect();
        let held = (0..TRANSACTIONS).map(|_| Vec::new()).collect();
        Session { database, transactions, held }
    }

    /// Takes one step, with what the model wants to know next to it.
    fn take(&mut self, step: &Step, model: &Model) -> (Seen, Facts) {
        let mut facts = Facts::default();
        if let Some(whose) = model.wants_read_version(step)
            && let Reply::Int64(version) = self.transactions[whose].get_read_version().wait()
        {
            facts.read_version = Some(version);
        }
        let stamp = model.wants_stamp(step).then(|| self.transactions[step.transaction].get_versionstamp());
        let reads_first = model.reads_first(step);
        let timed_out = model.stamps_that_time_out(step);
        if let Some(index) = model.is_to_end_what_is_over(step)
            && let Some(Some(future)) = self.held[step.transaction].get(index)
        {
            // Its result may still be on its way to this thread.
            drop(future.wait_for(PATIENCE));
        }
        let seen = self.call(step, &facts, reads_first);
        for index in timed_out {
            // They end on another thread. What the program does next could end them first, in another way.
            if let Some(Some(future)) = self.held[step.transaction].get(index) {
                drop(future.wait_for(PATIENCE));
            }
        }
        let transaction = &self.transactions[step.transaction];
        facts.committed = transaction.committed_version().unwrap();
        if seen == Seen::Reply(Reply::Void)
            && let Some(Some(Reply::Key(stamp))) = stamp.map(|stamp| stamp.wait_for(PATIENCE))
        {
            facts.stamp = Some(stamp);
        }
        (seen, facts)
    }

    fn call(&mut self, step: &Step, facts: &Facts, reads_first: bool) -> Seen {
        let t = &self.transactions[step.transaction];
        let held = &mut self.held[step.transaction];
        let status = |result: Result<(), i32>| Seen::Status(result.err().unwrap_or(0));
        let reply = |future: Future| match future.wait_for(PATIENCE) {
            Some(reply) => Seen::Reply(reply),
            None => Seen::Nothing,
        };
        match &step.call {
            Call::Get { key, snapshot } => return reply(t.get(key, *snapshot)),
            Call::GetKey { selector, snapshot } => return reply(t.get_key(selector, *snapshot)),
            Call::GetRange(range) => return reply(t.get_range(range)),
            Call::Set { key, value } => t.set(key, value),
            Call::Clear { key } => t.clear(key),
            Call::ClearRange { begin, end } => t.clear_range(begin, end),
            Call::Atomic { code, key, operand } => t.atomic_op(key, operand, *code),
            Call::AddConflict { kind, begin, end } => return status(t.add_conflict_range(begin, end, *kind)),
            Call::SetOption { code, value } => return status(t.set_option(*code, value.as_deref())),
            Call::GetReadVersion => return reply(t.get_read_version()),
            Call::SetReadVersion(Version::Number(version)) => t.set_read_version(*version),
            Call::SetReadVersion(Version::Of(_)) => match facts.read_version {
                Some(version) => t.set_read_version(version),
                None => return Seen::LeftOut,
            },
            Call::Commit => return reply(t.commit()),
            Call::CommittedVersion => {
                return Seen::Reply(t.committed_version().map_or_else(Reply::Error, Reply::Int64));
            }
            Call::Versionstamp => held.push(Some(t.get_versionstamp())),
            Call::Watch { key } => held.push(Some(settled(t, key, reads_first))),
            Call::EndHeld { index, cancel } => return end_held(held, *index, *cancel),
            Call::OnError(code) => return reply(t.on_error(*code)),
            Call::Reset => {
                t.reset();
                quick(t);
            }
            Call::Cancel => t.cancel(),
            Call::ConflictingKeys => return reply(t.get_range(&conflicting_keys())),
            Call::ApproximateSize => return reply(t.get_approximate_size()),
            Call::TimeOut => {
                t.set_option(TIMEOUT, Some(&1i64.to_le_bytes())).unwrap();
                std::thread::sleep(TIME_OUT);
            }
        }
        Seen::Nothing
    }

    /// Holds the futures and the database against the model.
    fn check_end(&mut self, model: &Model) -> Result<(), Disagreement> {
        let disagree = |expected: String, seen: String| Err(Disagreement { step: None, expected, seen });
        let rows = contents(self.database);
        if rows != model.rows() {
            return disagree(format!("{:?}", model.rows()), format!("{rows:?}"));
        }
        for (number, held) in self.held.iter().enumerate() {
            for (index, (future, expected)) in held.iter().zip(model.ends(number)).enumerate() {
                let (Some(future), Some(expected)) = (future, expected) else { continue };
                let seen = end_of(future, &expected);
                if !fits(&seen, &expected) {
                    let at = format!("t{number} future {index}: ");
                    return disagree(format!("{at}one of {expected:?}"), format!("{at}{seen:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Retries need not wait.
fn quick(transaction: &Transaction) {
    transaction.set_option(MAX_RETRY_DELAY, Some(&0i64.to_le_bytes())).unwrap();
}

/// A watch whose own read is over: what comes after it must not overtake it.
fn settled(transaction: &Transaction, key: &[u8], reads_first: bool) -> Future {
    if reads_first {
        // A guest's first read waits for the version to be confirmed, and a second read could overtake it.
        drop(transaction.get(b"", true).wait());
    }
    let watch = transaction.watch(key);
    if reads_first {
        // It asks the same server after the watch has; a snapshot read leaves no trace.
        drop(transaction.get(key, true).wait());
    }
    watch
}

fn end_held(held: &mut [Option<Future>], index: usize, cancel: bool) -> Seen {
    match held.get_mut(index) {
        Some(Some(future)) if cancel => {
            future.cancel();
            Seen::Nothing
        }
        Some(slot @ Some(_)) => {
            *slot = None;
            Seen::Nothing
        }
        _ => Seen::LeftOut,
    }
}

fn end_of(future: &Future, expected: &[End]) -> End {
    let limit = if expected.contains(&End::Pending) { Duration::from_millis(1) } else { PATIENCE };
    future.wait_for(limit).map_or(End::Pending, End::Reply)
}

/// A versionstamp that nobody needed may be any.
fn fits(seen: &End, expected: &[End]) -> bool {
    let any_key = matches!(seen, End::Reply(Reply::Key(_))) && expected.contains(&End::Reply(Reply::Void));
    any_key || expected.contains(seen)
}

fn conflicting_keys() -> Range {
    let at = |end: &[u8]| KeySelector { key: [CONFLICTING_KEYS, end].concat(), or_equal: false, offset: 1 };
    let (begin, end) = (at(b""), at(b"\xff\xff"));
    Range { begin, end, limit: 0, target_bytes: 0, mode: -2, iteration: 1, snapshot: false, reverse: false }
}

/// All rows that a program can have left.
fn contents(database: &Database) -> Vec<(Bytes, Bytes)> {
    let transaction = database.transaction().unwrap();
    loop {
        transaction.set_option(301, None).unwrap();
        let all = rows(&transaction, LIMITS).and_then(|mut all| {
            all.extend(rows(&transaction, (b"\xff\x02/kvqueue/a", b"\xff\x02/kvqueue/c"))?);
            Ok(all)
        });
        match all {
            Ok(all) => return all,
            Err(code) => assert_eq!(transaction.on_error(code).wait(), Reply::Void, "{code} is final"),
        }
    }
}

fn rows(transaction: &Transaction, (begin, end): (&[u8], &[u8])) -> Result<Vec<(Bytes, Bytes)>, i32> {
    let at = |key: &[u8]| KeySelector { key: key.to_vec(), or_equal: false, offset: 1 };
    let range = Range {
        begin: at(begin),
        end: at(end),
        limit: 100_000,
        target_bytes: 0,
        mode: 0,
        iteration: 0,
        snapshot: true,
        reverse: false,
    };
    match transaction.get_range(&range).wait() {
        Reply::Rows { rows, .. } => Ok(rows),
        Reply::Error(code) => Err(code),
        other => panic!("the contents at the end: {other:?}"),
    }
}
