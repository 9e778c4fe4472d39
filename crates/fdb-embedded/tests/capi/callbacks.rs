//! Callbacks: once each, after the result, on the network thread or at once; from many threads.

use std::ffi::c_void;
use std::sync::mpsc;
use std::thread::{self, ThreadId};

use foundationdb_sys as sys;
use foundationdb_sys::{FDBFuture, fdb_error_t};

use crate::common::{Future, database};

/// `transaction_too_old`.
const TOO_OLD: fdb_error_t = 1007;

/// What a callback saw: its thread, and the future's error.
type Seen = (ThreadId, fdb_error_t);

unsafe extern "C" fn tell(future: *mut FDBFuture, parameter: *mut c_void) {
    // SAFETY: the parameter is the sender that `listen` leaked, given to this call alone; the future is live.
    let (seen, sender) = unsafe {
        let error = sys::fdb_future_get_error(future);
        ((thread::current().id(), error), Box::from_raw(parameter.cast::<mpsc::Sender<Seen>>()))
    };
    sender.send(seen).unwrap();
}

fn listen(future: &Future, sender: &mpsc::Sender<Seen>) {
    let parameter = Box::into_raw(Box::new(sender.clone()));
    // SAFETY: a live handle; the callback takes the parameter over.
    assert_eq!(unsafe { sys::fdb_future_set_callback(future.0, Some(tell), parameter.cast()) }, 0);
}

#[test]
fn several_callbacks_each_run_once_on_the_network_thread() {
    let database = database();
    let transaction = database.transaction();
    let watch = transaction.watch(b"capi/several");
    assert_eq!(transaction.commit().wait(), 0);
    let (sender, seen) = mpsc::channel();
    for _ in 0..5 {
        listen(&watch, &sender);
    }
    drop(sender);
    assert!(seen.try_recv().is_err(), "nothing has happened yet");
    let write = database.transaction();
    write.set(b"capi/several", format!("{:?}", std::time::Instant::now()).as_bytes());
    assert_eq!(write.commit().wait(), 0);
    // The channel ends when every callback has run and let go of its sender.
    let all: Vec<Seen> = seen.iter().collect();
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|(thread, error)| *thread == all[0].0 && *error == 0));
    assert_ne!(all[0].0, thread::current().id());
}

#[test]
fn callback_on_a_ready_future_runs_on_the_calling_thread() {
    let database = database();
    let read = database.read(b"capi/here");
    assert_eq!(read.wait(), 0);
    let (sender, seen) = mpsc::channel();
    listen(&read, &sender);
    assert_eq!(seen.try_recv(), Ok((thread::current().id(), 0)));
}

#[test]
fn a_destroyed_future_still_calls_back_once() {
    const WATCHES: usize = 20;
    let database = database();
    let (sender, seen) = mpsc::channel();
    for _ in 0..WATCHES {
        let transaction = database.transaction();
        let watch = transaction.watch(b"capi/destroyed");
        assert_eq!(transaction.commit().wait(), 0);
        listen(&watch, &sender);
        listen(&watch, &sender);
        drop(watch);
    }
    drop(sender);
    // The channel ends when every callback has run and let go of its sender. A callback may look at its future, though
    // that has been destroyed.
    let all: Vec<Seen> = seen.iter().collect();
    assert_eq!(all.len(), 2 * WATCHES);
    assert!(all.iter().all(|(_, error)| *error == 1101), "{all:?}");
}

unsafe extern "C" fn end_it(future: *mut FDBFuture, parameter: *mut c_void) {
    // SAFETY: the parameter is the sender that the test leaked, given to this call alone; nobody uses the future any more.
    unsafe {
        let sender = Box::from_raw(parameter.cast::<mpsc::Sender<fdb_error_t>>());
        let before = sys::fdb_future_get_error(future);
        sys::fdb_future_cancel(future);
        assert_eq!(sys::fdb_future_get_error(future), before, "it was ready");
        sys::fdb_future_destroy(future);
        sender.send(before).unwrap();
    }
}

#[test]
fn a_callback_may_cancel_and_destroy_its_own_future() {
    let database = database();
    let (sender, seen) = mpsc::channel();
    let hand_over = |future: Future| {
        let parameter = Box::into_raw(Box::new(sender.clone()));
        let handle = future.0;
        std::mem::forget(future);
        // SAFETY: a live handle; the callback takes both over.
        assert_eq!(unsafe { sys::fdb_future_set_callback(handle, Some(end_it), parameter.cast()) }, 0);
        handle
    };
    let watch = || {
        let transaction = database.transaction();
        let watch = transaction.watch(b"capi/own");
        assert_eq!(transaction.commit().wait(), 0);
        watch
    };
    for round in 0..100 {
        let read = database.read(b"capi/own");
        assert_eq!(read.wait(), 0);
        hand_over(read);
        assert_eq!(seen.try_recv(), Ok(0), "at once, on this thread");

        let cancelled = hand_over(watch());
        // SAFETY: the callback that destroys it runs after this call has begun.
        unsafe { sys::fdb_future_cancel(cancelled) };
        assert_eq!(seen.recv(), Ok(1101));

        hand_over(watch());
        let write = database.transaction();
        write.set(b"capi/own", format!("{round} {:?}", std::time::Instant::now()).as_bytes());
        assert_eq!(write.commit().wait(), 0);
        assert_eq!(seen.recv(), Ok(0));
    }
}

unsafe extern "C" fn block_here(_future: *mut FDBFuture, parameter: *mut c_void) {
    // SAFETY: the pair that the test leaked.
    let (pending, sender) = *unsafe { Box::from_raw(parameter.cast::<(usize, mpsc::Sender<fdb_error_t>)>()) };
    // SAFETY: the test keeps the future until it has heard from us.
    let error = unsafe { sys::fdb_future_block_until_ready(pending as *mut FDBFuture) };
    sender.send(error).unwrap();
}

#[test]
fn the_network_thread_is_not_blocked() {
    let database = database();
    let transaction = database.transaction();
    let watch = transaction.watch(b"capi/blocked");
    assert_eq!(transaction.commit().wait(), 0);
    let other = database.transaction();
    let trigger = other.watch(b"capi/trigger");
    assert_eq!(other.commit().wait(), 0);
    let (sender, seen) = mpsc::channel();
    let parameter = Box::into_raw(Box::new((watch.0 as usize, sender)));
    // SAFETY: a live handle; the callback takes the parameter over.
    unsafe { sys::fdb_future_set_callback(trigger.0, Some(block_here), parameter.cast()) };
    trigger.cancel();
    assert_eq!(seen.recv(), Ok(2026));
}

#[test]
fn callbacks_from_many_threads_are_neither_lost_nor_doubled() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 100;
    let database = database();
    let handle = database.handle as usize;
    let (sender, seen) = mpsc::channel();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut transaction = std::ptr::null_mut();
                    // SAFETY: the database outlives the scope.
                    let error = unsafe {
                        sys::fdb_database_create_transaction(handle as *mut _, &raw mut transaction)
                    };
                    assert_eq!(error, 0);
                    let transaction = crate::common::Transaction(transaction);
                    let key = format!("capi/threads/{thread}/{round}");
                    let (own, heard) = mpsc::channel();
                    let read = transaction.get(key.as_bytes());
                    listen(&read, &own);
                    read.wait();
                    transaction.set(key.as_bytes(), b"v");
                    let commit = transaction.commit();
                    listen(&commit, &own);
                    listen(&commit, &own);
                    commit.wait();
                    if round % 3 == 0 {
                        commit.cancel();
                    }
                    drop(own);
                    // The callbacks look at their futures, so those live until all have run.
                    heard.iter().for_each(|seen| sender.send(seen).unwrap());
                }
            });
        }
    });
    drop(sender);
    let all: Vec<Seen> = seen.iter().collect();
    assert_eq!(all.len(), THREADS * ROUNDS * 3);
    // A disk may stand still for longer than a transaction lasts. Its callbacks are called all the same.
    let is_expected = |error: fdb_error_t| [0, TOO_OLD].contains(&error);
    assert!(all.iter().all(|(_, error)| is_expected(*error)), "{all:?}");
}
