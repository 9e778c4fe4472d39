//! Tests of how actix treats a panicking actor, on which this directory relies.

use std::sync::{Arc, Mutex};

use actix::{Actor, AsyncContext, Context, Handler, Message, Running, System, WrapFuture};

type Journal = Arc<Mutex<Vec<String>>>;

/// An actor that records its events.
struct Probe {
    journal: Journal,
    panic_at_start: bool,
}

impl Probe {
    fn new(journal: &Journal) -> Self {
        Self { journal: journal.clone(), panic_at_start: false }
    }

    fn note(&self, what: &str) {
        self.journal.lock().unwrap().push(format!("{what}, panicking: {}", std::thread::panicking()));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.note("dropped");
    }
}

impl Actor for Probe {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        assert!(!self.panic_at_start, "panic on purpose");
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        self.note("stopping");
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.note("stopped");
    }
}

#[derive(Clone, Copy, Message)]
#[rtype(result = "()")]
enum Panic {
    InHandler,
    InSpawnedFuture,
}

#[derive(Message)]
#[rtype(result = "u32")]
struct Ask;

impl Handler<Panic> for Probe {
    type Result = ();

    fn handle(&mut self, panic: Panic, context: &mut Context<Self>) {
        match panic {
            Panic::InHandler => panic!("panic on purpose"),
            Panic::InSpawnedFuture => {
                context.spawn(async { panic!("panic on purpose") }.into_actor(self));
            }
        }
    }
}

impl Handler<Ask> for Probe {
    type Result = u32;

    fn handle(&mut self, _: Ask, _: &mut Context<Self>) -> u32 {
        7
    }
}

const LAST_WORDS: [&str; 3] =
    ["stopping, panicking: true", "stopped, panicking: true", "dropped, panicking: true"];

#[test]
fn a_panic_drops_the_actor_closes_its_mailbox_and_spares_the_others() {
    for panic in [Panic::InHandler, Panic::InSpawnedFuture] {
        System::new().block_on(async {
            let journal = Journal::default();
            let probe = Probe::new(&journal).start();
            let other = Probe::new(&Journal::default()).start();
            assert_eq!(probe.send(Ask).await, Ok(7));
            probe.send(panic).await.unwrap_or_default();
            while probe.connected() {
                tokio::task::yield_now().await;
            }
            assert_eq!(*journal.lock().unwrap(), LAST_WORDS);
            assert!(probe.send(Ask).await.is_err(), "a closed mailbox refuses");
            probe.do_send(Ask); // vanishes
            assert_eq!(other.send(Ask).await, Ok(7));
        });
    }
}

#[test]
fn messages_behind_the_one_that_panics_are_lost() {
    System::new().block_on(async {
        let probe = Probe::new(&Journal::default()).start();
        probe.do_send(Panic::InHandler);
        assert!(probe.send(Ask).await.is_err());
    });
}

#[test]
fn a_panic_at_the_start_closes_the_mailbox() {
    System::new().block_on(async {
        let journal = Journal::default();
        let probe = Probe { journal: journal.clone(), panic_at_start: true };
        assert!(probe.start().send(Ask).await.is_err());
        assert_eq!(journal.lock().unwrap().last().map(String::as_str), Some(LAST_WORDS[2]));
    });
}

#[test]
fn a_stop_ends_an_actor_like_a_panic_without_the_panicking_flag() {
    System::new().block_on(async {
        let journal = Journal::default();
        let probe = Probe::new(&journal).start();
        assert_eq!(probe.send(Ask).await, Ok(7));
        drop(probe);
        while journal.lock().unwrap().len() < LAST_WORDS.len() {
            tokio::task::yield_now().await;
        }
        let expected = LAST_WORDS.map(|line| line.replace("true", "false"));
        assert_eq!(*journal.lock().unwrap(), expected);
    });
}

#[test]
fn do_send_ignores_the_bound_of_sixteen() {
    System::new().block_on(async {
        let probe = Probe::new(&Journal::default()).start();
        let accepted = (0..100).filter(|_| probe.try_send(Ask).is_ok()).count();
        assert_eq!(accepted, 16);
        (0..100).for_each(|_| probe.do_send(Ask));
        assert_eq!(probe.send(Ask).await, Ok(7));
    });
}
