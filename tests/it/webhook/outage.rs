//! A target that fails for a while costs no item, and few calls.

use std::{
    collections::BTreeSet,
    env, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Deed, Webhooks};
use crate::support::{Served, wait_until};

/// `ITEMS,SECONDS` runs the test at another scale: that many items, and that long in each of the three kinds of failure.
const SCALE: &str = "KVQUEUE_TEST_OUTAGE";

/// The queue, as the daemon shows it.
fn shown(served: &Served) -> Value {
    served.at.get("/api/v1/status").is(200)["queues"][0].clone()
}

fn tries(served: &Served) -> u64 {
    shown(served)["unavailable"]["tries"].as_u64().unwrap_or(0)
}

fn reason(served: &Served) -> String {
    shown(served)["unavailable"]["reason"].as_str().unwrap_or_default().to_owned()
}

/// Waits until the queue has been tried this often, or for as long as the scale says.
fn last(served: &Served, until: u64, seconds: Option<u64>) {
    match seconds {
        None => wait_until("it has been tried a few times", || tries(served) >= until),
        Some(seconds) => thread::sleep(Duration::from_secs(seconds)),
    }
}

#[test]
fn a_target_that_fails_for_a_while_costs_no_item() {
    let scale = env::var(SCALE).ok();
    let scale = scale.as_deref().and_then(|text| text.split_once(','));
    let items: usize = scale.map_or(2_000, |(items, _)| items.parse().unwrap());
    let seconds: Option<u64> = scale.map(|(_, seconds)| seconds.parse().unwrap());
    // With three attempts at once, what an outage costs is seen soon.
    let queue = "consumers = [{ k = 10, count = 8 }]\nretry = { max-attempts = 3, base = '100ms' }";
    let mut hooks =
        Webhooks::new(queue, "timeout = '300ms'\nconnect-timeout = '200ms'", |_| Deed::Answer(200));
    hooks.push((0..items).map(|number| number.to_string()));
    let served = hooks.serve();
    wait_until("some are delivered", || hooks.target.calls() >= 100);

    let began = Instant::now();
    hooks.target.refuse();
    last(&served, 4, seconds);
    assert!(reason(&served).contains("Connection refused"), "{}", reason(&served));
    let metrics = String::from_utf8(served.at.get("/metrics").body).unwrap();
    assert!(metrics.contains("kvqueue_handler_unavailable{queue=\"q\"} 1\n"), "{metrics}");
    let before = hooks.target.calls();
    hooks.target.does(|_| Deed::Answer(503));
    wait_until("answers are an outage, too", || reason(&served).contains("503"));
    last(&served, 6, seconds);
    hooks.target.does(|_| Deed::Hang);
    wait_until("so is a target that hangs", || reason(&served).contains("no answer in "));
    last(&served, 7, seconds);
    let (failed, lasted) = (hooks.target.calls() - before, began.elapsed());
    assert_eq!(hooks.count("dead"), 0);

    hooks.target.does(|_| Deed::Answer(200));
    let recovered = Instant::now();
    wait_until("99 of 100 items are delivered", || hooks.count("done") >= items as u64 * 99 / 100);
    let most = recovered.elapsed();
    wait_until("all items are delivered", || hooks.count("done") == items as u64);
    let took = recovered.elapsed();
    assert!(shown(&served)["unavailable"].is_null());
    assert_eq!((hooks.count("dead"), hooks.count("waiting"), hooks.count("ready")), (0, 0, 0));
    let delivered = hooks.target.delivered();
    assert_eq!(delivered.len(), items);
    // An answer may be cut off by the end of the connections, and the item is posted again.
    let twice = delivered.values().filter(|times| **times > 1).count();
    assert!(twice <= 8 && delivered.values().all(|times| *times <= 2), "{twice} items came twice");
    let requests = hooks.target.requests();
    let spent: BTreeSet<_> = requests.iter().filter(|it| it.attempt() > 1).map(|it| it.text()).collect();
    let spent = spent.len();
    let extra = hooks.target.calls() - items;
    println!(
        "{items} items, {lasted:.0?} of failures: {extra} extra calls, {failed} of them while the target answered 503 or \
         hung, {spent} items with an attempt spent, {twice} items delivered twice, {most:.0?} from the \
         recovery to 99 % of the items, {took:.0?} to the last one"
    );
    // Each consumer may have a call under way when the outage begins. Then there is one at a time, and it spends nothing.
    assert!(spent <= 20, "{spent} items have an attempt spent");
    assert!(seconds.is_some() || extra <= 60, "{extra} extra calls");
}

#[test]
fn items_behind_several_that_fail_are_tried_in_an_outage() {
    // The first two that fail are an outage. The others fail in its trials, and go out of the way.
    let queue =
        "consumers = [{ k = 1, count = 1 }]\nretry = { max-attempts = 2, base = '1h', jitter = false }";
    let hooks = Webhooks::new(queue, "outage-after = 2", |request| {
        Deed::Answer(if request.text().starts_with("bad") { 500 } else { 200 })
    });
    hooks.push(["bad 1", "bad 2", "bad 3", "bad 4", "good"]);
    let mut served = hooks.serve();
    wait_until("the good one is delivered", || hooks.count("done") == 1);
    served.daemon.wait_for_event("handler_available");
    assert_eq!(hooks.count("dead"), 0);
    assert!(
        hooks.target.requests().iter().all(|request| request.attempt() == 1),
        "no trial spends an attempt"
    );
}

#[test]
fn items_behind_hundreds_that_fail_are_delivered_in_seconds() {
    // 400 is an answer about the item, 500 could be an outage. Either way the target works, for other items.
    for status in [400, 500] {
        let hooks = Webhooks::new("consumers = 8", "", move |request| {
            Deed::Answer(if request.text().starts_with("bad") { status } else { 200 })
        });
        let bad = (0..300).map(|number| format!("bad {number}"));
        hooks.push(bad.chain((0..20).map(|number| format!("good {number}"))));
        let served = hooks.serve();
        wait_until("the good ones are delivered", || hooks.target.delivered().len() == 20);
        // In an outage that goes on there would be one call in ten seconds.
        assert!(hooks.target.calls() > 60, "{} calls", hooks.target.calls());
        drop(served);
    }
}
