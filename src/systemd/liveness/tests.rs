use super::*;

const PATIENCE: Duration = Duration::from_secs(45);

const LEASE: Duration = Duration::from_secs(60);

const LONG: Duration = Duration::from_secs(86_400);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A consumer in this state for a day, one of two of a queue whose last fetch has just ended.
fn observed(state: ConsumerState) -> Observation {
    Observation {
        answers: true,
        state,
        lasted: LONG,
        open_for: Some(Duration::MAX),
        fetches: 0,
        last_fetch: Duration::ZERO,
        consumers: 2,
        called: Some(LONG),
        handled: None,
        held: Some(seconds(20)),
        lease: LEASE,
        poll_interval: seconds(300),
        timeout: None,
    }
}

fn is_stuck(observed: &Observation) -> bool {
    stuck(observed, PATIENCE).is_some()
}

#[test]
fn a_consumer_that_does_not_answer_is_stuck_in_every_state() {
    for state in ConsumerState::ALL {
        let silent = Observation { answers: false, lasted: Duration::ZERO, ..observed(state) };
        assert_eq!(stuck(&silent, PATIENCE), Some(SILENT));
    }
}

#[test]
fn a_consumer_whose_state_has_just_begun_is_not_stuck() {
    for state in ConsumerState::ALL {
        let last_fetch = LONG;
        assert!(
            !is_stuck(&Observation { lasted: Duration::ZERO, called: None, last_fetch, ..observed(state) }),
            "{state:?}"
        );
    }
}

#[test]
fn a_fetch_that_does_not_end_is_stuck() {
    let waits = |lasted, last_fetch| {
        is_stuck(&Observation { lasted, last_fetch, ..observed(ConsumerState::Fetching) })
    };
    assert!(!waits(seconds(45), LONG));
    assert!(waits(seconds(46), seconds(46)));
    assert!(!waits(seconds(46), seconds(45)), "others come first, and get there");
}

#[test]
fn a_consumer_skipped_by_fetches_is_stuck_and_one_among_many_is_not() {
    let taking = |consumers, fetches| Observation { consumers, fetches, ..observed(ConsumerState::Fetching) };
    // The database is away: each of a hundred takes for one consumer alone fails after ten seconds.
    assert!(!is_stuck(&taking(100, 99)));
    assert!(!is_stuck(&taking(2, 6)));
    assert!(is_stuck(&taking(2, 7)));
}

#[test]
fn a_consumer_of_a_paused_queue_is_not_stuck() {
    let last_fetch = LONG;
    for state in [ConsumerState::Fetching, ConsumerState::Idle, ConsumerState::Paused] {
        assert!(!is_stuck(&Observation { open_for: None, last_fetch, ..observed(state) }), "{state:?}");
    }
    let open_for = Some(seconds(1));
    assert!(
        !is_stuck(&Observation { open_for, last_fetch, ..observed(ConsumerState::Fetching) }),
        "it has just been opened"
    );
    let open_for = Some(seconds(46));
    assert!(is_stuck(&Observation { open_for, last_fetch, ..observed(ConsumerState::Fetching) }));
}

#[test]
fn an_idle_consumer_without_polls_is_stuck() {
    let idle =
        |lasted, last_fetch| is_stuck(&Observation { lasted, last_fetch, ..observed(ConsumerState::Idle) });
    assert!(!idle(LONG, seconds(345)));
    assert!(!idle(seconds(345), LONG));
    assert!(idle(LONG, seconds(346)));
    let endless =
        Observation { poll_interval: Duration::MAX, last_fetch: LONG, ..observed(ConsumerState::Idle) };
    assert!(!is_stuck(&endless));
}

#[test]
fn a_slow_handler_is_not_stuck() {
    assert!(!is_stuck(&observed(ConsumerState::Handling)));
    assert!(
        !is_stuck(&Observation { held: None, ..observed(ConsumerState::Handling) }),
        "the lease is lost, or there is none"
    );
}

#[test]
fn a_lease_held_too_long_without_extension_is_stuck() {
    let held = |age| is_stuck(&Observation { held: Some(seconds(age)), ..observed(ConsumerState::Handling) });
    assert!(!held(105));
    assert!(held(106));
}

#[test]
fn a_call_far_over_its_timeout_is_stuck() {
    let timeout = Some(seconds(10));
    let called = |age| {
        is_stuck(&Observation { called: Some(seconds(age)), timeout, ..observed(ConsumerState::Handling) })
    };
    assert!(!called(10 + 1 + 105));
    assert!(called(10 + 1 + 106));
    assert!(!is_stuck(&Observation { called: None, timeout, ..observed(ConsumerState::Handling) }));
    assert!(!is_stuck(&Observation { timeout: Some(Duration::MAX), ..observed(ConsumerState::Handling) }));
}

#[test]
fn handled_items_are_acknowledged_within_a_lease() {
    let handled = |age| {
        is_stuck(&Observation {
            handled: Some(seconds(age)),
            held: None,
            ..observed(ConsumerState::Handling)
        })
    };
    assert!(!handled(105));
    assert!(handled(106));
}

#[test]
fn backoff_and_closing_beyond_their_limits_are_stuck() {
    let lasted = |state, age| is_stuck(&Observation { lasted: seconds(age), ..observed(state) });
    assert!(!lasted(ConsumerState::Backoff, 55));
    assert!(lasted(ConsumerState::Backoff, 56));
    assert!(!lasted(ConsumerState::Closing, 150));
    assert!(lasted(ConsumerState::Closing, 151));
}

#[test]
fn a_stuck_consumer_is_described() {
    let lasted = seconds(47);
    let why = "no fetch of its queue ends";
    let stuck = Stuck { consumer: 3, queue: "mail".into(), state: ConsumerState::Fetching, lasted, why };
    insta::assert_snapshot!(stuck, @r#"consumer 3 of "mail" is stuck in fetching for 47 s: no fetch of its queue ends"#);
}
