//! `kvqueue schedule`, and the same over HTTP.

use serde_json::{Value, json};

use crate::support::{Database, Reply, freeze, helper, run, serve, wait_until};

/// The JSON lines of a command.
fn lines(db: &Database, args: &[&str]) -> Vec<Value> {
    let text = run(db, &[args, &["--json"]].concat()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn configured(db: &Database) {
    let made = helper(db, "schedule_commands::configured").output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_schedule_is_made_shown_changed_and_removed() {
    let db = Database::new();
    run(
        &db,
        &[
            "schedule",
            "add",
            "q",
            "nightly",
            "the payload",
            "--cron",
            "0 3 * * *",
            "--zone",
            "Europe/Berlin",
            "--create",
        ],
    )
    .ok();
    let [listed] = &lines(&db, &["schedule", "list"])[..] else { panic!("there is one") };
    assert_eq!(
        (&listed["queue"], &listed["name"], &listed["state"]),
        (&json!("q"), &json!("nightly"), &json!("active"))
    );
    assert_eq!(listed["description"], "at 03:00 every day, Europe/Berlin time");
    assert_eq!(listed["definition"]["payload"], Value::Null, "a list has no payloads");
    let next = lines(&db, &["schedule", "next", "q", "nightly", "-n", "2"]);
    assert_eq!((next.len(), &next[0]), (2, &listed["next"]));
    let shown = &lines(&db, &["schedule", "show", "q", "nightly"])[0];
    assert_eq!(shown["definition"]["payload"], "the payload");
    assert_eq!(shown["times"].as_array().unwrap().len(), 5);
    // Another definition replaces it whole; the items that it has pushed stay counted.
    let id = run(&db, &["schedule", "fire", "q", "nightly"]).ok();
    let replaced = &lines(&db, &["schedule", "add", "q", "nightly", "--every", "1h"])[0];
    assert_eq!(replaced["effect"], "replaced");
    let shown = &lines(&db, &["schedule", "show", "q", "nightly"])[0];
    assert_eq!(shown["definition"], json!({"every": "1h", "missed": "once", "overlap": "allow"}));
    assert_eq!((&shown["occurrences"], shown["last"]["item"].as_str()), (&json!(1), Some(id.trim())));
    let [record] = &lines(&db, &["schedule", "history", "q", "nightly"])[..] else { panic!("one is fired") };
    assert_eq!((&record["outcome"], record["item"].as_str()), (&json!("fired_by_hand"), Some(id.trim())));
    let item = &lines(&db, &["peek", "q"])[0];
    assert_eq!((&item["id"], &item["payload"]), (&json!(id.trim()), &json!("the payload")));
    assert_eq!(item["attributes"]["schedule"], "nightly");
    run(&db, &["schedule", "remove", "q", "nightly"]).ok();
    assert_eq!(run(&db, &["schedule", "list"]).ok(), "");
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n", "its item stays");
}

#[test]
fn payloads_keys_and_files_go_in_as_they_are() {
    let db = Database::new();
    let file = db.file("payload");
    std::fs::write(&file, b"\xff\n").unwrap();
    let kind = ["--kind", "keyed", "--key", "a"];
    run(
        &db,
        &[
            &[
                "schedule",
                "add",
                "k",
                "s",
                "--every",
                "1h",
                "--file",
                file.to_str().unwrap(),
                "--attr",
                "a=b=c",
                "--create",
            ],
            &kind[..],
        ]
        .concat(),
    )
    .ok();
    run(&db, &["schedule", "fire", "k", "s", "--kind", "keyed"]).ok();
    let item = &lines(&db, &["peek", "k", "--kind", "keyed"])[0];
    assert_eq!((&item["payload_base64"], &item["key"]), (&json!("/wo="), &json!("a")));
    assert_eq!(item["attributes"]["a"], "b=c");
    // A queue with items of another kind.
    let said = run(&db, &["schedule", "add", "k", "t", "--every", "1h"]).failed(1);
    assert!(said.contains("of kind fifo"), "{said}");
    std::fs::write(&file, vec![b'x'; (64 << 10) + 1]).unwrap();
    let said = run(&db, &["schedule", "add", "q", "s", "--every", "1h", "--file", file.to_str().unwrap()])
        .failed(65);
    assert!(said.contains("is longer than 65536 bytes"), "{said}");
}

#[test]
fn a_daemon_fires_a_schedule_and_a_pause_stops_it() {
    let db = Database::new();
    run(&db, &["schedule", "add", "q", "often", "x", "--every", "1s", "--create"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let outcomes = |wanted: &str| {
        let records = served.at.get("/api/v1/queues/q/schedules/often/history").is(200);
        records["records"].as_array().unwrap().iter().filter(|it| it["outcome"] == wanted).count()
    };
    wait_until("two are fired", || outcomes("fired") >= 2);
    run(&db, &["schedule", "pause", "q", "often"]).ok();
    let paused = served.at.get("/api/v1/queues/q/schedules/often").is(200);
    assert_eq!((&paused["state"], &paused["next"]), (&json!("paused"), &Value::Null));
    let fired = outcomes("fired");
    // Several are due in this time.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(outcomes("fired"), fired);
    run(&db, &["schedule", "resume", "q", "often"]).ok();
    wait_until("it goes on", || outcomes("fired") > fired);
    let skipped = served.at.get("/api/v1/queues/q/schedules/often/history").is(200);
    let skipped =
        skipped["records"].as_array().unwrap().iter().find(|it| it["outcome"] == "skipped").cloned().unwrap();
    assert_eq!(skipped["reason"], "paused");
    assert!(skipped["count"].as_u64().unwrap() >= 2, "{skipped}");
}

#[test]
fn a_schedule_of_a_configuration_is_changed_there_and_can_be_forced_away() {
    let db = Database::new();
    configured(&db);
    let said = run(&db, &["schedule", "add", "q", "theirs", "--every", "1h"]).failed(1);
    assert!(
        said.contains("belongs to configuration \"/etc/kvqueue/kvqueue.toml\"; change it there"),
        "{said}"
    );
    let said = run(&db, &["schedule", "remove", "q", "theirs"]).failed(1);
    assert!(said.contains("remove it there and reload its daemons") && said.contains("--force"), "{said}");
    let served = serve(&db, "[queues.other]\nhandler = 'pull'\n");
    let at = |method: &str, query: &str| {
        served.at.request(method, &format!("/api/v1/queues/q/schedules/theirs{query}"))
    };
    assert_eq!(at("PUT", "").json(&json!({"every": "1h"})).send().error(409), "configured");
    assert_eq!(at("DELETE", "").send().error(409), "configured");
    // To pause it, and to fire it, changes nothing of the configuration's.
    assert_eq!(at("POST", "/pause").send().is(200)["changed"], true);
    assert_eq!(at("POST", "/resume").send().is(200)["done"], "resumed");
    at("POST", "/fire").send().is(200);
    assert_eq!(at("GET", "").send().is(200)["owner"], "/etc/kvqueue/kvqueue.toml");
    assert_eq!(at("DELETE", "?force=true").send().is(200)["done"], "removed");
    assert_eq!(at("GET", "").send().error(404), "not_found");
    configured(&db);
    run(&db, &["schedule", "remove", "q", "theirs", "--force"]).ok();
    assert_eq!(run(&db, &["schedule", "list", "q"]).ok(), "");
}

#[test]
fn schedules_are_paged_over_http_and_wrong_requests_are_refused() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let path = "/api/v1/queues/q/schedules";
    let put = |name: &str, body: &Value| -> Reply {
        served.at.request("PUT", &format!("{path}/{name}")).json(body).send()
    };
    for name in ["a", "b%2Fc", "d"] {
        assert_eq!(
            put(name, &json!({"cron": "@daily", "payload": "x".repeat(40_000)})).is(200)["effect"],
            "created"
        );
    }
    assert_eq!(put("a", &json!({"cron": "@hourly"})).is(200)["effect"], "replaced");
    assert_eq!(put("a", &json!({"cron": "@hourly"})).is(200)["effect"], "unchanged");
    let first = served.at.get(&format!("{path}?limit=2")).is(200);
    assert_eq!((first["schedules"].as_array().unwrap().len(), &first["next"]), (2, &json!("b/c")));
    let rest = served.at.get(&format!("{path}?after=b%2Fc")).is(200);
    assert_eq!((&rest["schedules"][0]["name"], &rest["next"]), (&json!("d"), &Value::Null));
    assert_eq!(rest["schedules"][0]["payload_bytes"], 40_000);
    // The definition of a schedule is the body that makes it.
    let shown = served.at.get(&format!("{path}/d")).is(200);
    assert_eq!(put("d", &shown["definition"]).is(200)["effect"], "unchanged");
    for wrong in [
        json!({}),
        json!({"every": "5m", "cron": "@daily"}),
        json!({"cron": "61 * * * *"}),
        json!({"cron": "@daily", "zone": "Nowhere"}),
        json!({"every": "5m", "colour": "red"}),
        json!({"every": "5m", "payload": "a", "payload_json": 1}),
        json!({"every": "5m", "missed": "all", "overlap": "skip"}),
        json!({"every": "5m", "key": "a"}),
        json!({"every": "5m", "payload": "x".repeat((64 << 10) + 1)}),
    ] {
        assert_eq!(put("e", &wrong).error(400), "bad_request", "{wrong}");
    }
    let gone = served.at.get(&format!("{path}/dd")).is(404);
    assert_eq!(
        gone["error"]["message"], "queue \"q\" has no schedule \"dd\"",
        "a name of one letter is too short to be near"
    );
    for number in 0..8 {
        assert_eq!(put(&format!("n{number}"), &json!({"every": "365d"})).is(200)["effect"], "created");
    }
    let names = lines(&db, &["schedule", "list"])
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(
        names,
        ["a", "b/c", "d", "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"],
        "a command goes through all pages"
    );
    assert_eq!(served.at.get(&format!("{path}/a/history?limit=0")).error(400), "bad_request");
    assert_eq!(served.at.get(&format!("{path}/a/history?after=x")).error(400), "bad_request");
}

#[test]
fn history_is_paged_newest_first() {
    let db = Database::new();
    run(&db, &["schedule", "add", "q", "s", "--every", "365d", "--create"]).ok();
    for _ in 0..5 {
        run(&db, &["schedule", "fire", "q", "s"]).ok();
    }
    let numbers = |args: &[&str]| -> Vec<u64> {
        let records = lines(&db, &[&["schedule", "history", "q", "s"], args].concat());
        records.iter().map(|record| record["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&[]), [4, 3, 2, 1, 0]);
    assert_eq!(numbers(&["-n", "2", "--after", "3"]), [2, 1]);
    let said = run(&db, &["schedule", "history", "q", "s", "-n", "2"]);
    assert!(said.stderr.contains("--after 3"), "{said:?}");
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let page = served.at.get("/api/v1/queues/q/schedules/s/history?limit=3").is(200);
    assert_eq!((&page["records"][0]["number"], &page["next"]), (&json!(4), &json!("2")));
    let page = served.at.get("/api/v1/queues/q/schedules/s/history?limit=3&after=2").is(200);
    assert_eq!((&page["records"][1]["number"], &page["next"]), (&json!(0), &Value::Null));
}

#[test]
fn schedules_of_a_frozen_queue_cannot_be_changed() {
    let db = Database::new();
    run(&db, &["schedule", "add", "q", "s", "--every", "365d", "--create"]).ok();
    freeze(&db);
    let changes: [&[&str]; 5] = [
        &["add", "q", "s", "--every", "1h"],
        &["remove", "q", "s"],
        &["pause", "q", "s"],
        &["resume", "q", "s"],
        &["fire", "q", "s"],
    ];
    for change in changes {
        let said = run(&db, &[&["schedule"], change].concat()).failed(1);
        assert!(said.contains("is frozen"), "{said}");
    }
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let path = "/api/v1/queues/q/schedules/s";
    let at = |method: &str, more: &str| served.at.request(method, &format!("{path}{more}"));
    assert_eq!(at("PUT", "").json(&json!({"every": "1h"})).send().error(409), "frozen");
    assert_eq!(at("DELETE", "").send().error(409), "frozen");
    for change in ["/pause", "/resume", "/fire"] {
        assert_eq!(at("POST", change).send().error(409), "frozen", "{change}");
    }
    assert_eq!(lines(&db, &["schedule", "list", "q"]).len(), 1);
    let audited = run(&db, &["audit", "--json"]).ok();
    assert_eq!(audited.lines().count(), 1, "only the first command has a record: {audited}");
}
