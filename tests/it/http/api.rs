//! The endpoints.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{LOG, with_dead};
use crate::support::{Database, freeze, run, serve};

#[test]
fn http_reports_liveness_readiness_and_status() {
    let db = Database::new();
    let served = serve(&db, LOG);
    assert_eq!(served.at.get("/livez").is(200), json!({"status": "ok"}));
    assert_eq!(
        served.at.get("/readyz").is(200),
        json!({"ready": true, "reason_count": 0, "warning_count": 0, "reasons": [], "warnings": []})
    );
    let status = served.at.get("/api/v1/status").is(200);
    assert_eq!((&status["phase"], &status["queues"][0]["queue"]), (&json!("ready"), &json!("q")));
    assert_eq!(status["pid"], served.daemon.pid());
    let queue = served.at.get("/api/v1/queues/q").is(200);
    assert_eq!((&queue["handler"], &queue["paused_locally"]), (&json!("log"), &json!(false)));
    assert_eq!(served.at.get("/api/v1/queues").is(200)["queues"][0]["queue"], "q");
    assert!(served.at.get("/api/v1/queues/q/history").is(200)["samples"].is_array());
    assert!(served.at.get("/api/v1/consumers").is(200)["consumers"].is_array());
    let metrics = served.at.get("/metrics");
    assert_eq!(
        metrics.header("Content-Type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(
        metrics.contains("\nkvqueue_http_requests_total{route=\"/livez\",code=\"200\"} 1\n"),
        "{metrics}"
    );
    assert_eq!(served.at.get("/api/v1/queues/other").error(404), "no_queue");
    assert_eq!(served.at.get("/nothing").error(404), "not_found");
    let wrong = served.at.request("PUT", "/livez").send();
    assert_eq!(wrong.header("Allow"), Some("GET, HEAD"));
    assert_eq!(wrong.error(405), "method_not_allowed");
    let head = served.at.request("HEAD", "/livez").send();
    assert_eq!((head.status, head.body.len()), (200, 0));
    served.daemon.signal(Signal::TERM);
    assert_eq!(served.daemon.end().code, Some(0));
}

#[test]
fn pushed_items_are_listed_page_by_page() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let push = |body| served.at.post("/api/v1/queues/other/items", &body);
    let items: Vec<_> = (0..5).map(|n| json!({"payload": format!("item {n}")})).collect();
    let pushed = push(json!({ "items": items })).is(201);
    assert_eq!((&pushed["pushed"], &pushed["already"]), (&json!(5), &json!(false)));
    let one = push(json!({"items": [{"payload_base64": "//8="}]})).is(201);
    let first = served.at.get("/api/v1/queues/other/items?limit=4").is(200);
    let ids: Vec<_> = first["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
    assert_eq!(json!(ids), json!(pushed["ids"].as_array().unwrap()[..4]));
    assert_eq!(first["next"], ids[3]);
    let next = first["next"].as_str().unwrap();
    let second = served.at.get(&format!("/api/v1/queues/other/items?limit=4&bytes=1&after={next}")).is(200);
    // A place that is none is refused, also with a unique key.
    for wrong in ["after=%C2%86", "after=%C2%86&unique=none"] {
        let refused = served.at.get(&format!("/api/v1/queues/other/items?{wrong}"));
        assert_eq!(refused.error(400), "bad_request");
    }
    assert_eq!(second["next"], json!(null));
    let expected = json!([
        {"id": pushed["ids"][4], "state": "ready", "payload": "i", "bytes": 6, "cut": true, "attempt": 1, "attempts": 0},
        {"id": one["ids"][0], "state": "ready", "payload_base64": "/w==", "bytes": 2, "cut": true, "attempt": 1, "attempts": 0},
    ]);
    let mut items = second["items"].clone();
    for item in items.as_array_mut().unwrap() {
        // Their ids tell when they were pushed.
        assert!(item.as_object_mut().unwrap().remove("enqueued_at").is_some());
    }
    assert_eq!(items, expected);
    let path = format!("/api/v1/queues/other/items/{}", one["ids"][0].as_str().unwrap());
    assert_eq!(served.at.get(&path).is(200)["payload_base64"], "//8=");
    // The command sees the same.
    let peeked = run(&db, &["--json", "peek", "other", "-k", "6"]).ok();
    assert_eq!(peeked.lines().count(), 6);
    assert!(peeked.contains(&path[28..]), "{peeked} {path}");
    // What is not processed is shown when it is asked for.
    let listed = |path: &str| served.at.get(path).is(200)["queues"].clone();
    assert_eq!(listed("/api/v1/queues").as_array().unwrap().len(), 1);
    let all = listed("/api/v1/queues?all=true");
    assert_eq!(
        all[1],
        json!({"queue": "other", "ready": 6, "running": 0, "waiting": 0, "dead": 0, "done": 0, "pushed": 6, "paused": null})
    );
}

#[test]
fn the_list_of_queues_has_pages_and_finds_names_by_their_beginning() {
    let db = Database::new();
    let served = serve(&db, LOG);
    for name in ["a", "b1", "b2", "b3", "qq"] {
        let item = json!({"items": [{"payload": "x"}]});
        served.at.post(&format!("/api/v1/queues/{name}/items"), &item).is(201);
    }
    let list = |query: &str| {
        let answer = served.at.get(&format!("/api/v1/queues?{query}")).is(200);
        let names: Vec<_> =
            answer["queues"].as_array().unwrap().iter().map(|it| it["queue"].clone()).collect();
        (Value::from(names), answer["next"].clone())
    };
    // The daemon's own queue comes first, and only once.
    assert_eq!(list("all=true"), (json!(["q", "a", "b1", "b2", "b3", "qq"]), Value::Null));
    let (first, next) = list("all=true&limit=2");
    assert_eq!(first, json!(["q", "a", "b1"]));
    let (second, next) = list(&format!("all=true&limit=2&after={}", next.as_str().unwrap()));
    assert_eq!(second, json!(["b2", "b3"]));
    assert_eq!(
        list(&format!("all=true&limit=2&after={}", next.as_str().unwrap())),
        (json!(["qq"]), Value::Null)
    );
    assert_eq!(list("all=true&starts_with=b&limit=3"), (json!(["b1", "b2", "b3"]), Value::Null));
    assert_eq!(list("all=true&starts_with=q"), (json!(["q", "qq"]), Value::Null));
    // A place before the names that are asked for.
    assert_eq!(list("all=true&starts_with=b&after=61"), (json!(["b1", "b2", "b3"]), Value::Null));
    assert_eq!(list("starts_with=b"), (json!([]), Value::Null));
    let long = format!("starts_with={}", "x".repeat(81));
    for wrong in ["limit=0", "limit=1001", "after=7", "after=x1", &long] {
        let path = format!("/api/v1/queues?all=true&{wrong}");
        assert_eq!(served.at.get(&path).error(400), "bad_request", "{wrong}");
    }
}

#[test]
fn http_push_is_idempotent_and_has_all_options() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let push = |body| served.at.post("/api/v1/queues/other/items", &body);
    let twice = json!({"items": [{"payload": "a"}, {"payload": "b"}], "idempotency_key": "o"});
    let first = push(twice.clone()).is(201);
    let again = push(twice).is(201);
    assert_eq!(
        again,
        json!({"pushed": 0, "ids": first["ids"], "effects": ["repeated", "repeated"], "already": true})
    );
    let other = push(json!({"items": [{"payload": "a"}, {"payload": "other"}], "idempotency_key": "o"}));
    assert_eq!(other.error(409), "idempotency_key_reused");
    let unique = json!({"items": [{"payload": "c", "unique": "u", "attributes": {"k": "v"}, "content_type": "text/plain"}]});
    let first = push(unique.clone()).is(201);
    assert_eq!(
        push(unique).is(201),
        json!({"pushed": 0, "ids": first["ids"], "effects": ["duplicate"], "already": false})
    );
    let path = format!("/api/v1/queues/other/items/{}", first["ids"][0].as_str().unwrap());
    let item = served.at.get(&path).is(200);
    assert_eq!((&item["attributes"], &item["unique"]), (&json!({"k": "v"}), &json!("u")));
    push(json!({"items": [{"payload": "d", "delay_ms": 3_600_000}]})).is(201);
    let counts = served.at.get("/api/v1/queues?all=true").is(200)["queues"][1].clone();
    assert_eq!((&counts["ready"], &counts["waiting"]), (&json!(3), &json!(1)));
}

#[test]
fn http_push_reports_the_effect_of_each_item() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let item = |unique: &str| json!({"payload": "x", "unique": unique});
    let items = json!({"items": [item("one"), item("one"), item("two")]});
    let pushed = served.at.post("/api/v1/queues/other/items", &items).is(201);
    assert_eq!((&pushed["pushed"], &pushed["effects"]), (&json!(2), &json!(["added", "duplicate", "added"])));
    assert_eq!(pushed["ids"][0], pushed["ids"][1]);
}

#[test]
fn a_repeated_http_push_answers_as_the_first_one_did() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let push = |body: &Value| served.at.post("/api/v1/queues/other/items", body).is(201);
    let old = push(&json!({"items": [{"payload": "old", "unique": "u"}]}));
    let mixed = json!({"items": [{"payload": "a", "unique": "u"}, {"payload": "b"}], "idempotency_key": "1"});
    let (first, again) = (push(&mixed), push(&mixed));
    assert_eq!((&first["ids"][0], &first["effects"]), (&old["ids"][0], &json!(["duplicate", "added"])));
    assert_eq!(
        again,
        json!({"pushed": 0, "ids": first["ids"], "effects": ["duplicate", "repeated"], "already": true})
    );
    let none = json!({"items": [{"payload": "a", "unique": "u"}], "idempotency_key": "2"});
    let (first, again) = (push(&none), push(&none));
    assert_eq!((&first["already"], &again["already"]), (&json!(false), &json!(true)));
    assert_eq!((&again["ids"], &again["effects"]), (&old["ids"], &json!(["duplicate"])));
    // The time has passed when the push is repeated.
    let at = |at: &str| json!({"items": [{"payload": "a", "at": at}], "idempotency_key": "3"});
    let (first, again) = (push(&at("2999-01-01T00:00:00Z")), push(&at("2020-01-01T00:00:00Z")));
    assert_eq!((&again["ids"], &again["already"]), (&first["ids"], &json!(true)));
}

#[test]
fn the_idempotency_key_header_sets_the_idempotency_key() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let push = |key: &str, body: Value| {
        let request = served.at.request("POST", "/api/v1/queues/other/items").json(&body);
        request.header("Idempotency-Key", key).send()
    };
    let item = json!([{"payload": "a"}]);
    let first = push("order-17", json!({ "items": item })).is(201);
    assert_eq!(first["effects"], json!(["added"]));
    let again = push("order-17", json!({ "items": item })).is(201);
    assert_eq!((&again["effects"], &again["ids"]), (&json!(["repeated"]), &first["ids"]));
    // It is the same operation wherever it is named.
    let both = push("order-17", json!({"items": item, "idempotency_key": "order-17"})).is(201);
    assert_eq!(both["already"], true);
    let other = json!([{"payload": "other"}]);
    assert_eq!(push("order-17", json!({ "items": other })).error(409), "idempotency_key_reused");
    assert_eq!(
        push("order-17", json!({"items": item, "idempotency_key": "order-18"})).error(400),
        "bad_request"
    );
    assert_eq!(push("", json!({ "items": item })).error(400), "bad_request");
    assert_eq!(run(&db, &["len", "other"]).ok(), "1\n");
}

#[test]
fn a_pause_needs_no_body() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let pause = || served.at.request("PUT", "/api/v1/queues/other/pause?create=true");
    assert_eq!(pause().send().is(200)["paused"], true);
    assert!(run(&db, &["push", "other", "x"]).ok().contains("pushed 1"));
    // A field that is there must have the documented type.
    assert_eq!(pause().body("{}").send().error(415), "content_type");
    assert_eq!(pause().header("Content-Type", "application/json").body("{").send().error(400), "bad_request");
}

#[test]
fn settings_of_a_queue_that_is_nowhere_are_refused_unless_it_is_to_be_created() {
    let db = Database::new();
    let served = serve(&db, LOG);
    run(&db, &["push", "keyd", "x", "--kind", "keyed", "--key", "k"]).ok();
    let settings = [
        ("pause", json!({"reason": "a test"}), 200),
        ("limits", json!({"whole_queue": true, "running": 1}), 200),
        ("schedules/daily", json!({"cron": "@daily"}), 200),
    ];
    for (what, body, status) in settings {
        let put = |queue: &str, query: &str| {
            served.at.request("PUT", &format!("/api/v1/queues/{queue}/{what}{query}")).json(&body).send()
        };
        let refused = put("keyed", "").is(404);
        assert_eq!(refused["error"]["code"], "no_queue", "{what}: {refused}");
        assert!(refused["error"].to_string().contains("did you mean \\\"keyd\\\"?"), "{refused}");
        assert!(refused["error"]["fix"].as_str().unwrap().contains("create=true"), "{refused}");
        put("keyed", "?create=maybe").is(400);
        put(&format!("new-{what}").replace('/', "-"), "?create=true").is(status);
    }
    assert_eq!(run(&db, &["len", "keyd", "--kind", "keyed"]).ok(), "1\n");
}

#[test]
fn an_invalid_push_is_refused_with_a_reason() {
    let db = Database::new();
    let served = serve(&db, &format!("http.max-body = '2MiB'\n{LOG}max-payload = '10B'\n"));
    let path = "/api/v1/queues/q/items";
    let push = |body| served.at.post(path, &body);
    assert_eq!(push(json!({"items": [{"payload": "12345678901"}]})).error(413), "too_large");
    assert_eq!(push(json!({"items": [{"payload": "x", "priority": 1}]})).error(409), "no_priorities");
    assert_eq!(push(json!({"items": []})).error(400), "bad_request");
    // No command could learn it: an environment variable cannot have NUL.
    let with_nul = push(json!({"items": [{"payload": "x", "content_type": "text/plain\0"}]}));
    assert_eq!(with_nul.error(400), "bad_request");
    assert_eq!(push(json!({"items": [{"payload": "x"}], "idempotency_key": ""})).error(400), "bad_request");
    assert_eq!(push(json!([[["x"]]])).error(400), "bad_request");
    let post = || served.at.request("POST", path);
    assert_eq!(post().body("{}").send().error(415), "content_type");
    assert_eq!(post().body("{}").header("Content-Type", "text/plain").send().error(415), "content_type");
    let json = || post().header("Content-Type", "application/json; charset=utf-8");
    assert_eq!(json().body("{").send().error(400), "bad_request");
    assert_eq!(json().body(vec![b' '; (2 << 20) + 1]).send().error(413), "too_large");
    json().body(r#"{"items": [{"payload": "x"}]}"#).send().is(201);
    for path in ["/api/v1/queues/%zz/items", "/api/v1/queues/%ff/items", "/api/v1/queues/q/items?limit=0"] {
        assert_eq!(served.at.get(path).error(400), "bad_request", "{path}");
    }
    // The name is ä/%2F+, and is not that of another queue.
    let name = "%C3%A4%2F%252F+";
    let odd = format!("/api/v1/queues/{name}/items");
    let push = served.at.request("POST", &odd).header("Content-Type", "application/json");
    push.body(r#"{"items": [{"payload": "x"}]}"#).send().is(201);
    let queues = served.at.get("/api/v1/queues?all=true").is(200);
    let named = |queue: &Value| queue["queue"] == "ä/%2F+";
    assert!(queues["queues"].as_array().unwrap().iter().any(named), "{queues}");
    assert_eq!(served.at.get(&odd).is(200)["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(served.at.get(&odd.replace("%25", "%")).is(200)["items"], json!([]));
    let long = format!("/api/v1/queues/{}/items", "x".repeat(256));
    assert_eq!(served.at.get(&long).error(400), "bad_request");
    assert_eq!(served.at.get("/api/v1/queues/q/items/abc").error(400), "bad_request");
    assert_eq!(served.at.get("/api/v1/queues/q/items/000000000000000000000000").error(404), "not_found");
}

#[test]
fn dead_letters_are_listed_retried_and_purged_over_http() {
    let db = Database::new();
    with_dead(&db, &["one", "two", "three", "four"]);
    let served = serve(&db, LOG);
    let page = served.at.get("/api/v1/queues/dead/dead?limit=3").is(200);
    let ids: Vec<_> =
        page["letters"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), page["next"].as_str()), (3, Some(ids[2])));
    assert_eq!(page["letters"][0]["payload"], json!(null));
    let at = |id: &str| format!("/api/v1/queues/dead/dead/{id}");
    let letter = served.at.get(&at(ids[0])).is(200);
    assert_eq!(
        (&letter["payload"], &letter["attempts"], &letter["cut"]),
        (&json!("one"), &json!(1), &json!(false))
    );
    let requeue =
        || served.at.request("POST", &format!("/api/v1/queues/dead/items/{}/requeue", ids[0])).send();
    assert_eq!(requeue().is(200), json!({"id": ids[0], "done": "requeued", "state_before": "dead"}));
    assert_eq!(requeue().error(409), "ready");
    served.at.request("DELETE", &at(ids[1])).send().is(200);
    assert_eq!(served.at.get(&at(ids[1])).error(404), "not_found");
    let purge = |confirm| served.at.post("/api/v1/queues/dead/dead/purge", &json!({ "confirm": confirm }));
    assert_eq!(purge("other").error(409), "not_confirmed");
    let changed = |done, items: u32| json!({"queue": "dead", "done": done, "items": items, "refused": 0, "unreadable": 0, "more": false});
    let all = served.at.post("/api/v1/queues/dead/requeue", &json!({"dead": true})).is(200);
    assert_eq!(all, changed("requeued", 2));
    assert_eq!(purge("dead").is(200), changed("purged", 0));
    assert_eq!(run(&db, &["len", "dead"]).ok().trim(), "3");
}

#[test]
fn a_dead_letter_whose_unique_key_is_taken_stays() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let config = db.file("dead.toml");
    let text =
        "[queues.d]\nhandler = 'exec'\nretry.max-attempts = 1\nhandler-config = { command = ['false'] }\n";
    std::fs::write(&config, text).unwrap();
    let push =
        || served.at.post("/api/v1/queues/d/items", &json!({"items": [{"payload": "x", "unique": "u"}]}));
    let id = push().is(201)["ids"][0].as_str().unwrap().to_owned();
    run(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
    assert_eq!(push().is(201)["pushed"], 1);
    let path = format!("/api/v1/queues/d/items/{id}/requeue");
    assert_eq!(served.at.request("POST", &path).send().error(409), "unique_taken");
}

#[test]
fn http_pause_is_stored_and_never_thaws_a_freeze() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let path = "/api/v1/queues/other/pause";
    let pause = |body| served.at.request("PUT", &format!("{path}?create=true")).json(&body).send();
    pause(json!({"reason": "maintenance"})).is(200);
    assert_eq!(pause(json!({"reason": "x".repeat(501)})).error(400), "bad_request");
    assert_eq!(pause(json!({"local": 1})).error(400), "bad_request");
    served.at.request("DELETE", path).send().is(200);
    assert_eq!(served.at.request("DELETE", &format!("{path}?local=yes")).send().error(400), "bad_request");
    assert_eq!(pause(json!({"local": true})).error(404), "not_found");
}

#[test]
fn http_refuses_all_changes_of_a_frozen_queue() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    run(&db, &["push", "free", "one"]).ok();
    freeze(&db);
    // Of its own queues the daemon knows it, and of others it asks the database.
    for config in [LOG, "[queues.other]\nhandler = 'log'"] {
        let served = serve(&db, config);
        let at = |method, path: &str| served.at.request(method, &format!("/api/v1/queues/q/{path}"));
        let items = json!({"items": [{"payload": "a"}]});
        let several = json!({"items": [{"payload": "a"}, {"payload": "b"}], "idempotency_key": "o"});
        let id = "000000000000000000000000";
        let requests = [
            at("POST", "items").json(&items),
            at("POST", "items").json(&several),
            at("DELETE", &format!("dead/{id}")),
            served.at.request("DELETE", "/api/v1/queues/q?confirm=q"),
            served.at.request("POST", "/api/v1/queues/free/move").json(&json!({"to": "q", "all": true})),
            at("POST", "requeue").json(&json!({"waiting": true})),
            at("POST", "move").json(&json!({"to": "other", "all": true})),
            at("DELETE", &format!("items/{id}")),
            at("POST", &format!("items/{id}/requeue")),
            at("POST", "dead/purge").json(&json!({"confirm": "q"})),
            at("PUT", "pause").json(&json!({})),
            at("DELETE", "pause"),
        ];
        for request in requests {
            assert_eq!(request.send().error(409), "frozen");
        }
        assert_eq!(at("GET", "items").send().is(200)["items"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn many_single_pushes_share_transactions() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let at = &served.at;
    let ids: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let body = |n| json!({"items": [{"payload": format!("{thread}/{n}")}]});
                    let push =
                        |n| at.post("/api/v1/queues/other/items", &body(n)).is(201)["ids"][0].to_string();
                    (0..25).map(push).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 200);
    assert_eq!(run(&db, &["len", "other"]).ok().trim(), "200");
    // The first ten bytes of an id are its transaction's.
    let transactions: std::collections::BTreeSet<_> = ids.iter().map(|id| &id[..21]).collect();
    assert!(transactions.len() < 200, "each push had a transaction of its own");
}
