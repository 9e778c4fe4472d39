//! Background tasks, such as sweepers and pause followers. A panic in one of them is logged; the daemon goes on, and the
//! task starts again.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use tokio::{task::JoinHandle, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::backoff;

/// A task that has run this long has recovered from its last panic.
const RECOVERED: Duration = Duration::from_secs(60);

/// Sees a task to its end, and starts it again each time that it panics, after a pause that grows. Dropped, it ends the task.
pub(crate) async fn restarted<T>(task: &'static str, start: impl Fn() -> JoinHandle<T>) -> T {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        // The panic hook has logged its panic. If this task is aborted, it drops and aborts that one, too.
        if let Ok(ended) = AbortOnDropHandle::new(start()).await {
            return ended;
        }
        failures = if began.elapsed() < RECOVERED { failures + 1 } else { 1 };
        let pause = backoff::pause(failures);
        tracing::error!(
            event = "task_failed",
            task,
            failures,
            pause_ms = pause.as_millis(),
            "a background task panicked; restarting it"
        );
        sleep(pause).await;
    }
}

/// Waits for a task. An error means that it panicked.
pub(crate) async fn watched<T: 'static>(task: impl Future<Output = T> + 'static) -> Result<T, ()> {
    AbortOnDropHandle::new(tokio::task::spawn_local(task)).await.map_err(drop)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use tokio::task::spawn_local;

    use super::*;

    #[test]
    fn a_task_restarts_after_a_panic_and_not_after_its_end() {
        crate::actors::run(async {
            let starts = Rc::new(Cell::new(0));
            let ended = restarted("test", || {
                let starts = starts.clone();
                spawn_local(async move {
                    starts.set(starts.get() + 1);
                    assert!(starts.get() > 2, "panic on purpose");
                    starts.get()
                })
            });
            assert_eq!((ended.await, starts.get()), (3, 3));
            assert_eq!(watched::<()>(async { panic!("panic on purpose") }).await, Err(()));
            assert_eq!(watched(async { 7 }).await, Ok(7));
        })
        .unwrap();
    }
}
