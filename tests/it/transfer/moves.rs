//! `kvqueue move`

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{LAYOUTS, any, args, export_of, exported, file, len, peeked, plain};
use crate::support::{Background, Database, Random, helper, kvqueue, run};

fn payloads(db: &Database, args: &[&str]) -> Vec<String> {
    let text = run(db, &[&["peek"], args, &["-k", "99999"]].concat()).ok();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn move_keeps_order_and_all_fields() {
    let mut random = Random::new();
    for layout in LAYOUTS {
        let db = Database::new();
        let lines = any(&mut random, 40, layout);
        run(&db, &args(&[&["import", "from", "--input", &file(&db, "in", &export_of(&lines))], layout])).ok();
        let ready = lines.iter().filter(|line| line.contains("\"state\":\"ready\"")).count() as u64;
        let order = peeked(&db, &args(&[&["from"], layout]));
        let to: Vec<String> = layout.iter().map(|arg| arg.replace("--", "--to-")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        // What is to be compared is exported as "q".
        let moved = run(&db, &args(&[&["move", "from", "q", "--all"], layout, &to])).ok();
        let dead = lines.iter().filter(|line| line.contains("\"state\":\"dead\"")).count() as u64;
        let waiting = lines.len() as u64 - ready - dead;
        let left = format!("; left: {waiting} waiting, {dead} dead");
        assert_eq!(moved, format!("moved {ready} items to q{left}\n"), "{layout:?}");
        assert!(peeked(&db, &args(&[&["q"], layout])) == order, "{layout:?}");
        let mut expected: Vec<String> = lines
            .iter()
            .filter(|line| line.contains("\"state\":\"ready\""))
            .map(|line| serde_json::from_str::<Value>(line).unwrap().to_string())
            .collect();
        expected.sort();
        assert!(exported(&db, layout) == expected, "{layout:?}");
        assert_eq!(len(&db, &args(&[&["from"], layout])), 0);
    }
}

#[test]
fn move_needs_a_count_or_all() {
    let db = Database::new();
    run(&db, &["push", "from", "a", "b", "c", "d"]).ok();
    assert_eq!(run(&db, &["move", "from", "to", "-n", "3"]).ok(), "moved 3 items to to\n");
    assert_eq!(
        (payloads(&db, &["from"]), payloads(&db, &["to"])),
        (vec!["d".into()], ["a", "b", "c"].map(String::from).to_vec())
    );
    let object: Value =
        serde_json::from_str(&run(&db, &["move", "from", "to", "-n", "3", "--json"]).ok()).unwrap();
    assert_eq!(
        object,
        json!({"queue": "from", "to": "to", "done": "moved", "items": 1, "refused": 0, "unreadable": 0, "more": false})
    );
    assert_eq!(run(&db, &["move", "from", "to", "--all"]).ok(), "moved 0 items to to\n");
    for wrong in [&["move", "from", "to"][..], &["move", "from", "to", "--all", "-n", "1"]] {
        run(&db, wrong).failed(2);
    }
    insta::assert_snapshot!(run(&db, &["move", "from", "from", "--all"]).failed(1), @r#"kvqueue: queue "from" is where the items are already; name another to move them to"#);
    insta::assert_snapshot!(run(&db, &["move", "from", "to", "--all", "--to-end", "max"]).failed(2), @"kvqueue: --to-end is for --to-kind priority; add --to-kind, or leave it out");
}

#[test]
fn move_leaves_an_item_whose_unique_key_is_taken_at_the_target() {
    let db = Database::new();
    run(&db, &["push", "from", "a", "--unique", "order 1"]).ok();
    run(&db, &["push", "from", "b"]).ok();
    run(&db, &["push", "to", "there", "--unique", "order 1"]).ok();
    let ran = run(&db, &["move", "from", "to", "--all"]);
    assert_eq!(ran.stdout, "moved 1 item to to; left: 1 ready\n");
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: items not moved: 1, since other items have their unique keys");
    assert_eq!(
        (payloads(&db, &["from"]), payloads(&db, &["to"])),
        (vec!["a".into()], vec!["there".into(), "b".into()])
    );
    // Its key moves with it once there is room.
    run(&db, &["pop", "to"]).ok();
    run(&db, &["move", "from", "to", "--all"]).ok();
    assert_eq!(run(&db, &["push", "from", "again", "--unique", "order 1"]).pushed(), "pushed 1 item");
    assert!(
        run(&db, &["push", "to", "no", "--unique", "order 1"])
            .ok()
            .contains("an item with this key is there")
    );
}

#[test]
fn moved_dead_letters_become_ready_at_the_target() {
    let db = Database::new();
    Background::start(helper(&db, "dead::buries")).end().ok();
    assert_eq!(run(&db, &["move", "q", "to", "--dead", "--all"]).ok(), "moved 3 items to to\n");
    assert_eq!(run(&db, &["dead", "list", "q"]).ok(), "");
    let first: Value = serde_json::from_str(run(&db, &["peek", "to", "--json"]).ok().trim()).unwrap();
    assert_eq!(
        (&first["payload"], &first["attributes"], &first["attempts"]),
        (&json!("first"), &json!({"to": "ann"}), &json!(0))
    );
}

#[test]
fn a_killed_move_leaves_each_item_in_one_queue() {
    let mut random = Random::new();
    for layout in [LAYOUTS[0], LAYOUTS[1], LAYOUTS[4]] {
        let db = Database::new();
        run(
            &db,
            &args(&[&["import", "from", "--input", &file(&db, "in", &export_of(&plain(3_000)))], layout]),
        )
        .ok();
        let to: Vec<String> = layout.iter().map(|arg| arg.replace("--", "--to-")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let mut kills = 0;
        while len(&db, &args(&[&["from"], layout])) > 0 {
            let command = args(&[&["move", "from", "to", "--all", "-v"], layout, &to]);
            let mut moving = Background::start(kvqueue(&db, &command));
            if kills < 4 {
                moving.wait_for("moved 200");
                std::thread::sleep(random.time_below(std::time::Duration::from_millis(60)));
                moving.signal(Signal::KILL);
                kills += 1;
            }
            moving.end();
            let (from, to) =
                (payloads(&db, &args(&[&["from"], layout])), payloads(&db, &args(&[&["to"], layout])));
            assert_eq!(from.len() + to.len(), 3_000);
            let all: BTreeSet<_> = from.iter().chain(&to).collect();
            assert_eq!(all.len(), 3_000);
            assert_eq!(len(&db, &args(&[&["from"], layout])), from.len() as u64);
            assert_eq!(len(&db, &args(&[&["to"], layout])), to.len() as u64);
        }
        assert!(kills > 0);
    }
}
