//! One run: the threads that belong to it, whose turn it is, and what time it is.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;

/// The clock on the wall at the beginning of each run: 2030-01-01 00:00 UTC.
const EPOCH: Duration = Duration::from_secs(1_893_456_000);

/// How far the time goes on at a point where the baton may be passed, in microseconds at most. A thread that waits in a loop for a time gets there.
const STEP_MICROS: u64 = 4;

/// Of this number of points one makes its thread rest, for this many microseconds at most.
const REST_ONE_IN: u64 = 48;
const LONGEST_REST: u64 = 1_000;

/// After so many points the run counts as one that does not end.
const MOST_POINTS: u64 = 50_000_000;

/// So many lines of the history are printed when a run fails.
const LAST_LINES: usize = 60;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A lock, by its address.
    Lock(usize),
    /// A condition variable, by its address.
    Signal(usize),
    /// The end of this thread.
    End(usize),
    /// Nothing but the time.
    Time,
}

#[derive(Debug)]
enum State {
    /// It runs, or may.
    Ready,
    /// It waits, and goes on at this time at the latest.
    Waiting(Wait, Option<Duration>),
    Ended,
}

#[derive(Debug)]
struct Member {
    name: String,
    state: State,
    /// Its last wait ended with the time.
    timed_out: bool,
    /// Signals that it has the baton.
    turn: Arc<Condvar>,
}

#[derive(Debug)]
struct Table {
    seed: u64,
    rng: Rng,
    members: Vec<Member>,
    /// Who has the baton.
    running: usize,
    /// Of four points, the number at which the thread that has the baton keeps it if it can.
    stay: u8,
    /// The locks that threads of the run hold, by address, and how often. A lock that is taken and not in here belongs to a thread outside
    /// of the run, which goes on by itself.
    held: BTreeMap<usize, usize>,
    /// Since the beginning of the run.
    time: Duration,
    points: u64,
    history: Vec<String>,
    /// Why the run cannot go on. Its first thread then panics, and the others stand still.
    failure: Option<String>,
}

/// A run, for all threads that belong to it.
pub(crate) struct Shared {
    table: Mutex<Table>,
    began: Instant,
    enter: Enter,
}

type Enter = Arc<dyn Fn() -> Box<dyn Any> + Send + Sync>;

/// A thread's place in its run.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) run: Arc<Shared>,
    pub(crate) me: usize,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The place of this thread; `None` if it belongs to no simulation.
pub(crate) fn place() -> Option<Place> {
    // A thread that ends has no place any more.
    PLACE.try_with(|place| place.borrow().clone()).ok().flatten()
}

/// What a run was.
#[derive(Debug)]
pub struct Run<T> {
    /// What the work returned.
    pub value: T,
    /// What was [noted](note), in order, each line with its time and thread.
    pub history: Vec<String>,
    /// How much time passed in the run.
    pub time: Duration,
}

/// A simulation that is about to begin.
pub struct Simulation {
    seed: u64,
    enter: Enter,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Simulation {
    /// A simulation of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        Simulation { seed, enter: Arc::new(|| Box::new(())) }
    }

    /// Calls `enter` on each thread of the run before it begins, and keeps what it returns until the thread ends.
    #[must_use]
    pub fn on_each_thread(self, enter: impl Fn() -> Box<dyn Any> + Send + Sync + 'static) -> Simulation {
        Simulation { enter: Arc::new(enter), ..self }
    }

    /// Runs `work`, and all threads that come of it, until the last one has ended.
    ///
    /// # Panics
    ///
    /// If `work` panics, or if all threads wait for each other; with the seed and the end of the history.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> Run<T> {
        assert!(place().is_none(), "a simulation in a simulation");
        let mut rng = Rng::with_seed(self.seed);
        let table = Table {
            seed: self.seed,
            stay: rng.u8(0..4),
            held: BTreeMap::new(),
            rng,
            members: vec![Member::new("main")],
            running: 0,
            time: Duration::ZERO,
            points: 0,
            history: Vec::new(),
            failure: None,
        };
        let run = Arc::new(Shared { table: Mutex::new(table), began: Instant::now(), enter: self.enter });
        let place = Place { run: Arc::clone(&run), me: 0 };
        PLACE.set(Some(place.clone()));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let entered = (run.enter)();
            let value = work();
            drop(entered);
            place.await_all();
            value
        }));
        PLACE.set(None);
        let mut table = run.lock();
        match outcome {
            Ok(value) => Run { value, history: std::mem::take(&mut table.history), time: table.time },
            Err(panic) => {
                eprintln!("{}", table.last_lines());
                drop(table);
                resume_unwind(panic)
            }
        }
    }
}

/// Runs `work` as the simulation of a seed: [`Simulation::run`].
pub fn simulate<T>(seed: u64, work: impl FnOnce() -> T) -> Run<T> {
    Simulation::new(seed).run(work)
}

/// Whether this thread belongs to a simulation.
#[must_use]
pub fn is_simulated() -> bool {
    place().is_some()
}

/// Adds a line to the history. Outside of a simulation it does nothing.
pub fn note(line: impl FnOnce() -> String) {
    if let Some(place) = place() {
        let line = line();
        let mut table = place.run.lock();
        let line = format!("{:>10} {}: {line}", table.time.as_micros(), table.members[place.me].name);
        table.history.push(line);
    }
}

/// Draws a number below `below` by the seed, for a thread that belongs to a simulation. Outside: 0.
#[must_use]
pub fn draw(below: u64) -> u64 {
    place().map_or(0, |place| place.run.lock().rng.u64(0..below.max(1)))
}

/// A random number, by the seed for a thread that belongs to a simulation. Outside, no other process draws it.
#[must_use]
pub fn random() -> u64 {
    place().map_or_else(|| RandomState::new().build_hasher().finish(), |place| place.run.lock().rng.u64(..))
}

/// A point at which another thread may go on.
pub fn pass() {
    if let Some(place) = place() {
        place.pass();
    }
}

/// The monotonic clock.
#[must_use]
pub fn now() -> Instant {
    place().map_or_else(Instant::now, |place| place.run.began + place.run.lock().time)
}

/// The clock on the wall.
#[must_use]
pub fn system_now() -> SystemTime {
    let time = place().map(|place| place.run.lock().time);
    time.map_or_else(SystemTime::now, |time| SystemTime::UNIX_EPOCH + EPOCH + time)
}

impl Member {
    fn new(name: &str) -> Member {
        Member { name: name.to_owned(), state: State::Ready, timed_out: false, turn: Arc::default() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A new thread of the run, which is ready. Its own thread calls [`Place::begin`].
    pub(crate) fn add(&self, name: &str) -> Place {
        let mut table = self.run.lock();
        let me = table.members.len();
        table.members.push(Member::new(&format!("{name} {me}")));
        Place { run: Arc::clone(&self.run), me }
    }

    /// Runs a new thread from its first turn to its end.
    pub(crate) fn begin<T>(self, work: impl FnOnce() -> T) -> std::thread::Result<T> {
        PLACE.set(Some(self.clone()));
        self.await_turn(self.run.lock());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let entered = (self.run.enter)();
            let value = work();
            drop(entered);
            value
        }));
        if let Err(panic) = &outcome {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            PLACE.set(None);
            let mut table = self.run.lock();
            let name = table.members[self.me].name.clone();
            table.fail(&format!("{name} panicked: {text}"));
        }
        PLACE.set(None);
        let mut table = self.run.lock();
        table.members[self.me].state = State::Ended;
        table.wake(|wait| wait == Wait::End(self.me));
        table.choose();
        outcome
    }

    /// Lets another thread go on, perhaps. Rarely this thread rests for a while, as one that the system does not run: others then do much between
    /// two of its steps.
    pub(crate) fn pass(&self) {
        let mut table = self.run.lock();
        if table.rng.u64(0..REST_ONE_IN) == 0 {
            let until = table.time + Duration::from_micros(table.rng.u64(0..=LONGEST_REST));
            let me = &mut table.members[self.me];
            (me.state, me.timed_out) = (State::Waiting(Wait::Time, Some(until)), false);
        }
        table.choose();
        self.await_turn(table);
    }

    /// Waits; `true` if the time ended it. `until`: since the beginning of the run.
    pub(crate) fn wait(&self, wait: Wait, until: Option<Duration>) -> bool {
        let mut table = self.run.lock();
        let me = &mut table.members[self.me];
        (me.state, me.timed_out) = (State::Waiting(wait, until), false);
        table.choose();
        self.await_turn(table);
        self.run.lock().members[self.me].timed_out
    }

    /// The time in the run after a pause.
    pub(crate) fn after(&self, pause: Duration) -> Duration {
        self.run.lock().time.saturating_add(pause)
    }

    /// The time in the run of a moment.
    pub(crate) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.run.began)
    }

    /// Ends the wait of all who wait for this.
    pub(crate) fn wake_all(&self, of: Wait) {
        self.run.lock().wake(|wait| wait == of);
    }

    /// Ends the wait of one thread that waits for this, if there is one.
    pub(crate) fn wake_one(&self, of: Wait) {
        let mut table = self.run.lock();
        let is_one = |member: &Member| matches!(member.state, State::Waiting(wait, _) if wait == of);
        let waiting: Vec<_> = (0..table.members.len()).filter(|at| is_one(&table.members[*at])).collect();
        if !waiting.is_empty() {
            let chosen = waiting[table.rng.usize(0..waiting.len())];
            table.members[chosen].state = State::Ready;
        }
    }

    /// Notes that a thread of the run has taken a lock.
    pub(crate) fn hold(&self, lock: usize) {
        *self.run.lock().held.entry(lock).or_default() += 1;
    }

    /// Notes that a lock was released, and ends the waits for it.
    pub(crate) fn release(&self, lock: usize) {
        let mut table = self.run.lock();
        if let Some(times) = table.held.get_mut(&lock) {
            *times -= 1;
            if *times == 0 {
                table.held.remove(&lock);
            }
        }
        table.wake(|wait| wait == Wait::Lock(lock));
    }

    /// Whether a thread of the run holds the lock.
    pub(crate) fn is_held(&self, lock: usize) -> bool {
        self.run.lock().held.contains_key(&lock)
    }

    pub(crate) fn has_ended(&self, thread: usize) -> bool {
        matches!(self.run.lock().members[thread].state, State::Ended)
    }

    /// Until all other threads have ended.
    fn await_all(&self) {
        let mut other = 1;
        while other < self.run.lock().members.len() {
            if !self.has_ended(other) {
                self.wait(Wait::End(other), None);
            }
            other += 1;
        }
    }

    /// Until this thread has the baton.
    fn await_turn(&self, mut table: MutexGuard<'_, Table>) {
        let turn = Arc::clone(&table.members[self.me].turn);
        loop {
            if let Some(failure) = &table.failure
                && self.me == 0
            {
                let failure = failure.clone();
                if std::thread::panicking() {
                    // What is dropped now would wait for threads that stand still. The harness of tests would keep what `eprintln` prints.
                    let _ = writeln!(std::io::stderr(), "{}\n{failure}", table.last_lines());
                    std::process::exit(101);
                }
                drop(table);
                panic!("{failure}");
            }
            if table.running == self.me && table.failure.is_none() {
                return;
            }
            table = turn.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Table {
    /// Makes those ready whose wait this ends.
    fn wake(&mut self, ends: impl Fn(Wait) -> bool) {
        for member in &mut self.members {
            if matches!(member.state, State::Waiting(wait, _) if ends(wait)) {
                member.state = State::Ready;
            }
        }
    }

    /// Gives the baton to a thread that is ready. If none is, the time jumps to the first at which one goes on.
    fn choose(&mut self) {
        self.time += Duration::from_micros(self.rng.u64(0..=STEP_MICROS));
        self.points += 1;
        if self.points > MOST_POINTS {
            return self.fail("the run does not come to an end");
        }
        loop {
            self.end_waits();
            let ready = |member: &Member| matches!(member.state, State::Ready);
            if ready(&self.members[self.running]) && self.rng.u8(0..4) < self.stay {
                return;
            }
            let ready: Vec<_> = (0..self.members.len()).filter(|at| ready(&self.members[*at])).collect();
            if !ready.is_empty() {
                self.running = ready[self.rng.usize(0..ready.len())];
                self.members[self.running].turn.notify_one();
                return;
            }
            let next = self.members.iter().filter_map(|member| match member.state {
                State::Waiting(_, until) => until,
                State::Ready | State::Ended => None,
            });
            match next.min() {
                Some(next) => self.time = next,
                None if self.members.iter().all(|member| matches!(member.state, State::Ended)) => return,
                None => return self.fail("all threads wait for each other"),
            }
        }
    }

    /// Ends waits whose time has come.
    fn end_waits(&mut self) {
        for member in &mut self.members {
            if matches!(member.state, State::Waiting(_, Some(until)) if until <= self.time) {
                (member.state, member.timed_out) = (State::Ready, true);
            }
        }
    }

    fn last_lines(&self) -> String {
        let last = self.history.len().saturating_sub(LAST_LINES);
        let lines = self.history[last..].iter().map(|line| format!("\n  {line}")).collect::<String>();
        format!("the simulation of seed {} failed; the end of its history:{lines}", self.seed)
    }

    /// The first failure counts.
    fn fail(&mut self, why: &str) {
        if self.failure.is_some() {
            return;
        }
        let members = self.members.iter().map(|member| format!("{}: {:?}", member.name, member.state));
        let members = members.collect::<Vec<_>>().join("; ");
        self.failure = Some(format!("seed {}: {why} ({members})", self.seed));
        self.members[0].turn.notify_one();
    }
}
