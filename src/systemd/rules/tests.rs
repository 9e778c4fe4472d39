use super::*;

const PATIENCE: Duration = Duration::from_secs(45);

const LEASE: Duration = Duration::from_secs(60);

const LONG: Duration = Duration::from_secs(86_400);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One that has been at it for a day, in a queue of two whose takes have just ended.
fn signs(stage: ConsumerState) -> Signs {
    Signs {
        answers: true,
        stage,
        lasted: LONG,
        open_for: Some(Duration::MAX),
        turns: 0,
        last_turn: Duration::ZERO,
        consumers: 2,
        called: Some(LONG),
        handled: None,
        held: Some(seconds(20)),
        lease: LEASE,
        poll_interval: seconds(300),
        timeout: None,
    }
}

fn is_stuck(signs: &Signs) -> bool {
    stuck(signs, PATIENCE).is_some()
}

#[test]
fn one_that_does_not_answer_is_stuck_whatever_it_does() {
    for stage in ConsumerState::ALL {
        let silent = Signs { answers: false, lasted: Duration::ZERO, ..signs(stage) };
        assert_eq!(stuck(&silent, PATIENCE), Some(SILENT));
    }
}

#[test]
fn whoever_has_just_begun_is_not() {
    for stage in ConsumerState::ALL {
        let last_turn = LONG;
        assert!(
            !is_stuck(&Signs { lasted: Duration::ZERO, called: None, last_turn, ..signs(stage) }),
            "{stage:?}"
        );
    }
}

#[test]
fn a_take_that_does_not_end_is_stuck() {
    let waits = |lasted, last_turn| is_stuck(&Signs { lasted, last_turn, ..signs(ConsumerState::Taking) });
    assert!(!waits(seconds(45), LONG));
    assert!(waits(seconds(46), seconds(46)));
    assert!(!waits(seconds(46), seconds(45)), "others come first, and get there");
}

#[test]
fn one_that_is_passed_over_is_stuck_and_one_in_a_long_line_is_not() {
    let taking = |consumers, turns| Signs { consumers, turns, ..signs(ConsumerState::Taking) };
    // The database is away: each of a hundred takes for one consumer alone fails after ten seconds.
    assert!(!is_stuck(&taking(100, 99)));
    assert!(!is_stuck(&taking(2, 6)));
    assert!(is_stuck(&taking(2, 7)));
}

#[test]
fn a_paused_queue_holds_nobody_responsible() {
    let last_turn = LONG;
    for stage in [ConsumerState::Taking, ConsumerState::Idle, ConsumerState::Paused] {
        assert!(!is_stuck(&Signs { open_for: None, last_turn, ..signs(stage) }), "{stage:?}");
    }
    let open_for = Some(seconds(1));
    assert!(
        !is_stuck(&Signs { open_for, last_turn, ..signs(ConsumerState::Taking) }),
        "it has just been opened"
    );
    let open_for = Some(seconds(46));
    assert!(is_stuck(&Signs { open_for, last_turn, ..signs(ConsumerState::Taking) }));
}

#[test]
fn an_idle_queue_is_looked_into_now_and_then() {
    let idle = |lasted, last_turn| is_stuck(&Signs { lasted, last_turn, ..signs(ConsumerState::Idle) });
    assert!(!idle(LONG, seconds(345)));
    assert!(!idle(seconds(345), LONG));
    assert!(idle(LONG, seconds(346)));
    let endless = Signs { poll_interval: Duration::MAX, last_turn: LONG, ..signs(ConsumerState::Idle) };
    assert!(!is_stuck(&endless));
}

#[test]
fn a_handler_may_take_its_time() {
    assert!(!is_stuck(&signs(ConsumerState::Handling)));
    assert!(
        !is_stuck(&Signs { held: None, ..signs(ConsumerState::Handling) }),
        "the lease is lost, or there is none"
    );
}

#[test]
fn a_lease_is_extended_or_given_up() {
    let held = |age| is_stuck(&Signs { held: Some(seconds(age)), ..signs(ConsumerState::Handling) });
    assert!(!held(105));
    assert!(held(106));
}

#[test]
fn a_call_ends_some_time_after_its_limit() {
    let timeout = Some(seconds(10));
    let called =
        |age| is_stuck(&Signs { called: Some(seconds(age)), timeout, ..signs(ConsumerState::Handling) });
    assert!(!called(10 + 1 + 105));
    assert!(called(10 + 1 + 106));
    assert!(!is_stuck(&Signs { called: None, timeout, ..signs(ConsumerState::Handling) }));
    assert!(!is_stuck(&Signs { timeout: Some(Duration::MAX), ..signs(ConsumerState::Handling) }));
}

#[test]
fn what_is_handled_is_settled_within_a_lease() {
    let handled =
        |age| is_stuck(&Signs { handled: Some(seconds(age)), held: None, ..signs(ConsumerState::Handling) });
    assert!(!handled(105));
    assert!(handled(106));
}

#[test]
fn pauses_and_ends_have_their_time() {
    let lasted = |stage, age| is_stuck(&Signs { lasted: seconds(age), ..signs(stage) });
    assert!(!lasted(ConsumerState::Backoff, 55));
    assert!(lasted(ConsumerState::Backoff, 56));
    assert!(!lasted(ConsumerState::Closing, 150));
    assert!(lasted(ConsumerState::Closing, 151));
}

#[test]
fn it_says_who_and_where_and_why() {
    let lasted = seconds(47);
    let why = "no take of its queue ends";
    let stuck = Stuck { consumer: 3, queue: "mail".into(), stage: ConsumerState::Taking, lasted, why };
    insta::assert_snapshot!(stuck, @r#"consumer 3 of "mail" is stuck in taking for 47 s: no take of its queue ends"#);
}
