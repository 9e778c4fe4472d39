//! The handler, tried out without a daemon.

use kvqueue::{
    Json,
    testing::{Kit, Sample, TestDatabase},
};

use super::*;

fn greet() -> Greet {
    Greet::from_config(&"greeting = 'Hello'\npause = '2s'".parse().unwrap()).unwrap()
}

async fn greeted(database: &TestDatabase, name: &str) -> u64 {
    database.get(&key(name)).await.unwrap().as_deref().map_or(0, number)
}

#[test]
fn wrong_settings_are_refused() {
    let problem = |text: &str| Greet::from_config(&text.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(problem("pause = '1s'"), "missing field `greeting`");
    assert_eq!(problem("greeting = ''"), "greeting = \"\": say something, as in \"Good morning\"");
    assert!(problem("greeting = 'x'\npause = 5").starts_with("pause: invalid type: integer `5`"));
}

#[tokio::test]
async fn an_item_without_a_valid_name_becomes_a_dead_letter() {
    let kit = Kit::new(greet());
    assert_eq!(kit.handle("").await, Outcome::dead("nobody is named"));
    assert!(matches!(kit.handle(b"\xff").await, Outcome::Dead(_)));
    assert!(matches!(kit.handle(Sample::new("ann").attribute("knocks", "many")).await, Outcome::Dead(_)));
}

#[tokio::test]
async fn an_unopened_door_is_retried_later() {
    let database = TestDatabase::new().unwrap();
    let kit = Kit::new(greet()).exactly_once(&database);
    let bob = |attempt| kit.handle(Sample::new("bob").attribute("knocks", "3").attempt(attempt));
    let later =
        |knock| Outcome::RetryAfter(Duration::from_secs(2), format!("bob does not open at knock {knock}"));
    assert_eq!(bob(1).await, later(1));
    assert_eq!(bob(2).await, later(2));
    assert_eq!(greeted(&database, "bob").await, 0);
    assert_eq!(bob(3).await, Outcome::Done);
    assert_eq!(greeted(&database, "bob").await, 1);
}

#[tokio::test]
async fn a_greeting_counts_once_however_often_the_handler_runs_for_it() {
    let database = TestDatabase::new().unwrap();
    let kit = Kit::new(greet()).exactly_once(&database);
    assert_eq!(kit.handle_all(["ann", "eve", "ann"]).await, vec![Outcome::Done; 3]);
    assert_eq!(kit.conflicts(2).handle("ann").await, Outcome::Done);
    assert_eq!((greeted(&database, "ann").await, greeted(&database, "eve").await), (3, 1));
}

#[tokio::test]
async fn an_invitation_that_does_not_parse_is_a_dead_letter() {
    let kit = Kit::new(Json(Invite));
    assert_eq!(kit.handle(r#"{"guest": "ann", "hour": 20}"#).await, Outcome::Done);
    let Outcome::Dead(reason) = kit.handle(r#"{"guest": "ann"}"#).await else { panic!("not dead") };
    assert!(reason.contains("missing field `hour`"), "{reason}");
    assert_eq!(kit.handle(r#"{"guest": "ann", "hour": 25}"#).await, Outcome::dead("a day has no hour 25"));
}

#[tokio::test]
async fn without_a_transaction_the_daemon_stops_and_no_item_fails() {
    let kit = Kit::new(greet());
    assert_eq!(kit.handle("ann").await, Outcome::Release);
    assert!(kit.stop_requested().unwrap().contains("exactly-once"));
}
