use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use crate::{Condvar, Mutex, RwLock, mpsc, note, now, pass, simulate, thread};

/// Three threads that each note a few lines.
fn three(seed: u64) -> Vec<String> {
    let run = simulate(seed, || {
        let threads: Vec<_> = (0..3)
            .map(|n| {
                thread::spawn(move || {
                    for line in 0..4 {
                        note(|| format!("{n} notes {line}"));
                        pass();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    });
    run.history
}

#[test]
fn a_seed_is_the_same_run_line_by_line_and_another_seed_another_one() {
    assert_eq!(three(7), three(7));
    let different: BTreeSet<_> = (0..20).map(three).collect();
    assert!(different.len() > 15, "{}", different.len());
}

#[test]
fn a_lock_is_one_threads_at_a_time() {
    for seed in 0..50 {
        let value = Arc::new(Mutex::new((0_u32, false)));
        let threads = Arc::clone(&value);
        simulate(seed, move || {
            for _ in 0..3 {
                let value = Arc::clone(&threads);
                thread::spawn(move || {
                    let mut value = value.lock();
                    assert!(!value.1, "two threads have it");
                    value.1 = true;
                    pass();
                    (value.0, value.1) = (value.0 + 1, false);
                });
            }
        });
        assert_eq!(*value.lock(), (3, false));
    }
}

#[test]
fn readers_share_a_lock_and_writers_do_not() {
    let mut shared = false;
    for seed in 0..50 {
        let lock = Arc::new((RwLock::new(0_u32), Mutex::new((0_u32, 0_u32))));
        let threads = Arc::clone(&lock);
        simulate(seed, move || {
            for n in 0..4 {
                let lock = Arc::clone(&threads);
                thread::spawn(move || {
                    if n == 0 {
                        let mut value = lock.0.write();
                        assert_eq!(lock.1.lock().0, 0);
                        pass();
                        *value += 1;
                    } else {
                        let _value = lock.0.read();
                        let mut readers = lock.1.lock();
                        *readers = (readers.0 + 1, readers.1.max(readers.0 + 1));
                        drop(readers);
                        pass();
                        lock.1.lock().0 -= 1;
                    }
                });
            }
        });
        shared |= lock.1.lock().1 > 1;
        assert_eq!(*lock.0.read(), 1);
    }
    assert!(shared, "no two readers met");
}

#[test]
fn a_signal_between_the_look_and_the_wait_is_not_lost() {
    for seed in 0..100 {
        simulate(seed, || {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let other = Arc::clone(&shared);
            let waiting = thread::spawn(move || {
                let mut is_there = other.0.lock();
                while !*is_there {
                    other.1.wait(&mut is_there);
                }
            });
            *shared.0.lock() = true;
            shared.1.notify_one();
            waiting.join().unwrap();
        });
    }
}

#[test]
fn a_lost_signal_is_found() {
    // The signal comes without the lock, between the look and the wait.
    let is_found = |seed: u64| {
        catch_unwind(|| {
            simulate(seed, || {
                let shared = Arc::new((Mutex::new(()), Condvar::new(), Mutex::new(false)));
                let other = Arc::clone(&shared);
                thread::spawn(move || {
                    let seen = *other.2.lock();
                    if !seen {
                        other.1.wait(&mut other.0.lock());
                    }
                });
                *shared.2.lock() = true;
                shared.1.notify_one();
            });
        })
        .is_err()
    };
    assert!((0..40).any(is_found));
}

#[test]
fn threads_that_wait_for_each_other_are_named() {
    let panic = (0..40).find_map(|seed| {
        catch_unwind(|| {
            simulate(seed, || {
                let locks = Arc::new((Mutex::new(()), Mutex::new(())));
                let other = Arc::clone(&locks);
                thread::spawn(move || {
                    let _second = other.1.lock();
                    drop(other.0.lock());
                });
                let _first = locks.0.lock();
                drop(locks.1.lock());
            });
        })
        .err()
    });
    let text = *panic.unwrap().downcast::<String>().unwrap();
    assert!(text.contains("all threads wait for each other (main: Waiting(Lock("), "{text}");
}

#[test]
fn when_all_wait_the_time_jumps() {
    let began = std::time::Instant::now();
    let run = simulate(1, || {
        let began = now();
        let slept = thread::spawn(|| thread::sleep(Duration::from_secs(3_600)));
        let (lock, signal) = (Mutex::new(()), Condvar::new());
        assert!(signal.wait_for(&mut lock.lock(), Duration::from_secs(60)).timed_out());
        let short = now() - began;
        slept.join().unwrap();
        (short, now() - began)
    });
    assert!((60..61).contains(&run.value.0.as_secs()), "{:?}", run.value);
    assert!((3_600..3_601).contains(&run.value.1.as_secs()), "{:?}", run.value);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_thread_that_waits_in_a_loop_for_a_time_gets_there() {
    simulate(1, || {
        let until = now() + Duration::from_millis(1);
        while now() < until {
            thread::yield_now();
        }
    });
}

#[test]
fn messages_come_in_order_and_the_end_after_the_last() {
    for seed in 0..50 {
        let run = simulate(seed, || {
            let (sender, receiver) = mpsc::sync_channel(2);
            let sending = thread::spawn(move || (0..9).for_each(|n| sender.send(n).unwrap()));
            let got: Vec<_> = receiver.into_iter().collect();
            sending.join().unwrap();
            got
        });
        assert_eq!(run.value, (0..9).collect::<Vec<_>>());
    }
}

#[test]
fn a_panic_of_any_thread_ends_the_run_and_names_the_seed() {
    let of_work = catch_unwind(|| simulate(1, || panic!("of the work")));
    assert!(of_work.is_err() && !crate::is_simulated());
    let of_thread = catch_unwind(|| simulate(7, || drop(thread::spawn(|| panic!("of a thread")).join())));
    let text = *of_thread.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("seed 7") && text.contains("of a thread"), "{text}");
}

#[test]
fn a_lock_that_a_thread_outside_holds_changes_nothing_in_the_run() {
    let run = |delay: u64| {
        let lock = Arc::new(Mutex::new(()));
        let (other, (sender, receiver)) = (Arc::clone(&lock), std::sync::mpsc::channel());
        let outside = std::thread::spawn(move || {
            let held = other.lock();
            sender.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(delay));
            drop(held);
        });
        receiver.recv().unwrap();
        let history = simulate(3, || {
            let other = Arc::clone(&lock);
            let second = thread::spawn(move || note(|| format!("{:?}", *other.lock())));
            note(|| format!("{:?}", *lock.lock()));
            second.join().unwrap();
        });
        outside.join().unwrap();
        history.history
    };
    assert_eq!(run(0), run(30));
}

#[test]
fn outside_of_a_simulation_all_is_as_usual() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        *other.0.lock() = 1;
        other.1.notify_all();
    });
    let mut value = shared.0.lock();
    while *value == 0 {
        shared.1.wait_for(&mut value, Duration::from_secs(10));
    }
    drop(value);
    thread.join().unwrap();
}
