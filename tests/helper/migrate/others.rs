//! Programs for the tests of `tests/it/migrate/others.rs`.

use std::io::stdin;

use foundationdb::options::MutationType;

use kvqueue_queue::{LeaseError, Pause, RetryPolicy, from_millis, retry};

use super::items::{self, Here, queue};

use crate::support::argument;

/// Pushes the item it is given, or until it is killed, as a program does that knows nothing of frozen queues.
pub(crate) fn pushes() {
    let here = Here::open();
    here.runtime.block_on(async {
        if let Some(item) = argument(0) {
            return push_by_hand(&here, item.as_bytes()).await;
        }
        loop {
            push_by_hand(&here, b"more").await;
        }
    });
}

/// The push of the Erlang program.
async fn push_by_hand(here: &Here, item: &[u8]) {
    let queue = queue("q").range().0;
    let queue = queue.strip_suffix(b"\0").unwrap();
    let stamped = [queue, b"\x01val\0\x33"].concat();
    let position = u32::try_from(stamped.len()).unwrap().to_le_bytes();
    let item_key = [&stamped[..], &[0xff; 10], &[0; 2], &position].concat();
    let tr = here.db.create_trx().unwrap();
    tr.atomic_op(&item_key, item, MutationType::SetVersionstampedKey);
    tr.atomic_op(&[queue, b"\x01npush\0"].concat(), &1_u64.to_le_bytes(), MutationType::Add);
    tr.commit().await.unwrap();
}

/// Takes an item, says so, waits until its standard input ends, when the queue has moved, and tries to finish the item.
pub(crate) fn holds() {
    let here = Here::open();
    here.runtime.block_on(async {
        let mut session = items::session(&queue("q"));
        let mut lease = items::lease(&here.db, &mut session, 1).await;
        eprintln!("holds an item");
        stdin().read_line(&mut String::new()).unwrap();
        let done = [(0, kvqueue_queue::ItemOutcome::Done)];
        let settled = lease.acknowledge(&here.db, &RetryPolicy::default(), &done).await;
        assert!(matches!(settled, Err(LeaseError::Lost)), "{settled:?}");
        eprintln!("moved and lost");
    });
}

/// Says how its queues are paused; pauses one first, where it is asked to.
pub(crate) fn pauses() {
    let here = Here::open();
    let policy = RetryPolicy::default();
    for name in ["q", "paused"] {
        let queue = queue(name);
        let pauses = name == "paused" && argument(0).is_some();
        let paused = retry::run(&here.db, &policy, |tr| {
            if pauses {
                queue.pause(
                    &tr,
                    &Pause { at: from_millis(1_000), frozen: false, reason: "by hand".to_owned() },
                );
            }
            let queue = queue.clone();
            async move {
                let paused = queue.paused(&tr).await;
                (tr, paused)
            }
        });
        let paused = here.runtime.block_on(paused).unwrap().value;
        // Of one that it has just made itself a transaction knows as well.
        match paused {
            Some(Pause { frozen, reason, .. }) => println!("\npause {name} {reason}, frozen {frozen}"),
            None => println!("\npause {name} none"),
        }
    }
}
