//! The audit trail over HTTP: every route of operators that changes something leaves one record.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
};

use serde_json::{Value, json};

use super::{LOG, with_dead};
use crate::{
    ordered::with_blocked,
    support::{Address, Database, Request, run, serve},
};

const UNDER: &str = "/api/v1/queues/{queue}";

/// The operations of the document that leave a record, with its action.
fn operations() -> BTreeMap<(String, String), String> {
    let document: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let mut found = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if let Some(action) = operation["x-kvqueue-audit"].as_str() {
                found.insert((method.to_uppercase(), path.clone()), action.to_owned());
            }
        }
    }
    assert!(found.len() >= 14);
    found
}

/// A request that goes well: method, path in the document, the values in it, a query, a body.
type Example = (&'static str, String, Vec<String>, &'static str, Option<Value>);

fn examples(at: &Address, bearer: &str) -> Vec<Example> {
    let send = |request: Request| request.header("Authorization", bearer).send();
    let push = |body: Value| {
        let pushed = send(at.request("POST", "/api/v1/queues/other/items").json(&body)).is(201);
        let ids = pushed["ids"].as_array().unwrap().iter();
        ids.map(|id| id.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let item = |delay: u64| json!({"payload": "x", "delay_ms": delay});
    let ids = push(json!({"items": [
        item(0), item(3_600_000), item(0), item(3_600_000), item(0), item(3_600_000), item(3_600_000), item(0)
    ]}));
    let letters = send(at.request("GET", "/api/v1/queues/dead/dead")).is(200)["letters"].clone();
    let letter = |index: usize| letters[index]["id"].as_str().unwrap().to_owned();
    let example = |method, path: &str, values: &[&str], query, body| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        (method, path.replace("QUEUE", UNDER), values, query, body)
    };
    let batch = json!({"then": {"payload": "x"}});
    let batch = send(at.request("POST", "/api/v1/queues/q/batches").json(&batch)).is(201)["id"].clone();
    let batch = batch.as_str().unwrap().to_owned();
    let token = json!({"name": "shop", "scopes": ["push"], "queues": ["q"]});
    vec![
        example("PUT", "QUEUE/pause", &["q"], "", Some(json!({"reason": "why"}))),
        example("PUT", "QUEUE/pause", &["q"], "", Some(json!({"local": true}))),
        example("DELETE", "QUEUE/pause", &["q"], "", None),
        example("DELETE", "QUEUE/pause", &["q"], "?local=true", None),
        example(
            "PUT",
            "QUEUE/limits",
            &["keyed"],
            "?create=true",
            Some(json!({"pattern": "a", "running": 1})),
        ),
        example("DELETE", "QUEUE/limits", &["keyed"], "?pattern=a", None),
        example("PUT", "QUEUE/schedules/{name}", &["q", "daily"], "", Some(json!({"cron": "@daily"}))),
        example("POST", "QUEUE/schedules/{name}/pause", &["q", "daily"], "", None),
        example("POST", "QUEUE/schedules/{name}/resume", &["q", "daily"], "", None),
        example("POST", "QUEUE/schedules/{name}/fire", &["q", "daily"], "", None),
        example("DELETE", "QUEUE/schedules/{name}", &["q", "daily"], "", None),
        example("DELETE", "QUEUE/batches/{batch}", &["q", &batch], "", None),
        example("POST", "QUEUE/unblock", &["blocked"], "", Some(json!({"key": "a"}))),
        example("POST", "/api/v1/tokens", &[], "", Some(token)),
        example("DELETE", "/api/v1/tokens/{name}", &["shop"], "", None),
        example("DELETE", "QUEUE/items/{id}", &["other", &ids[0]], "", None),
        example("POST", "QUEUE/items/{id}/requeue", &["other", &ids[1]], "", None),
        example("POST", "QUEUE/items/{id}/cancel", &["other", &ids[4]], "", None),
        example("POST", "QUEUE/items/{id}/reschedule", &["other", &ids[5]], "", Some(json!({"now": true}))),
        example("PUT", "QUEUE/items/{id}/payload", &["other", &ids[7]], "", Some(json!({"payload": "y"}))),
        example("POST", "QUEUE/cancel", &["other"], "", Some(json!({"confirm": "other", "key": "none"}))),
        example("POST", "QUEUE/requeue", &["other"], "", Some(json!({"waiting": true}))),
        example("POST", "QUEUE/move", &["other"], "", Some(json!({"to": "moved", "limit": 1}))),
        example("DELETE", "QUEUE", &["other"], "?confirm=other", None),
        example("DELETE", "QUEUE/dead/{id}", &["dead", &letter(1)], "", None),
        example("POST", "QUEUE/dead/purge", &["dead"], "", Some(json!({"confirm": "dead"}))),
        example("POST", "/api/v1/reload", &[], "", None),
    ]
}

#[test]
fn every_route_that_changes_something_leaves_one_record() {
    let db = Database::new();
    with_dead(&db, &["1", "2", "3"]);
    with_blocked(&db, &["a"]);
    let served = serve(&db, &format!("http.require-token = true\n{LOG}"));
    let token = run(&db, &["token", "new", "ops", "--scope", "admin"]).ok();
    let bearer = format!("Bearer {}", token.trim());
    let send = |request: Request| request.header("Authorization", &bearer).send();
    let (operations, mut covered) = (operations(), BTreeSet::new());
    // The rule that blocks, and the token.
    let mut known = 2;
    for (method, pattern, values, query, body) in examples(&served.at, &bearer) {
        let operation = (method.to_owned(), pattern.clone());
        let wanted = operations.get(&operation);
        let wanted = wanted.unwrap_or_else(|| panic!("{method} {pattern} has no x-kvqueue-audit"));
        covered.insert(operation);
        let mut path = pattern.clone();
        for value in &values {
            let (before, rest) = path.split_once('{').unwrap();
            path = format!("{before}{value}{}", rest.split_once('}').unwrap().1);
        }
        let request = served.at.request(method, &(path + query));
        let reply = send(match &body {
            Some(body) => request.json(body),
            None => request,
        });
        assert!((200..300).contains(&reply.status), "{method} {pattern}: {reply:?}");
        let page = send(served.at.request("GET", "/api/v1/audit?limit=1000")).is(200);
        known += 1;
        let records = page["records"].as_array().unwrap();
        assert_eq!((records.len(), &page["next"]), (known, &Value::Null), "{method} {pattern}");
        let record = &records[0];
        assert_eq!(record["action"], **wanted, "{method} {pattern}");
        assert_eq!(record["who"], json!({"kind": "token", "name": "ops"}));
        assert!(record["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{record}");
        let queue = if pattern.contains("{queue}") { json!(values[0]) } else { Value::Null };
        assert_eq!(record["queue"], queue, "{method} {pattern}");
        match &values[..] {
            [_, name] if pattern.contains("{name}") => {
                assert_eq!(record["details"]["schedule"], **name, "{method} {pattern}");
            }
            [_, id] if pattern.contains("{batch}") => {
                assert_eq!(record["details"]["batch"], **id, "{method} {pattern}");
            }
            [_, id] => assert_eq!(record["details"]["ids"], json!([id]), "{method} {pattern}"),
            _ => {}
        }
    }
    let left: Vec<_> = operations.keys().filter(|operation| !covered.contains(operation)).collect();
    assert!(left.is_empty(), "routes without an example here: {left:?}");
}

#[test]
fn refused_requests_leave_none_and_pages_go_on() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let pause = |queue: &str| {
        served.at.request("PUT", &format!("/api/v1/queues/{queue}/pause?create=true")).send().is(200)
    };
    // A pause that changes nothing leaves none.
    for queue in ["q", "r", "r", "s", "t"] {
        pause(queue);
    }
    let wrong = [("DELETE", "/api/v1/queues/q"), ("DELETE", "/api/v1/queues/q?confirm=r")];
    for (method, path) in wrong {
        assert_eq!(served.at.request(method, path).send().error(409), "not_confirmed");
    }
    assert_eq!(served.at.post("/api/v1/queues/q/requeue", &json!({})).error(400), "bad_request");
    let page = |query: &str| served.at.get(&format!("/api/v1/audit{query}")).is(200);
    let first = page("?limit=3");
    assert_eq!(first["records"].as_array().unwrap().len(), 3);
    let last = page(&format!("?limit=3&after={}", first["next"].as_str().unwrap()));
    assert_eq!((last["records"].as_array().unwrap().len(), &last["next"]), (1, &Value::Null));
    assert_eq!(last["records"][0]["who"], json!({"kind": "anyone"}));
    assert_eq!(page("?queue=r")["records"].as_array().unwrap().len(), 1);
    assert_eq!(served.at.get("/api/v1/audit?after=soon").error(400), "bad_request");
    assert_eq!(served.at.get("/api/v1/audit?limit=0").error(400), "bad_request");
}

#[test]
fn the_operator_and_the_user_of_a_socket_are_named() {
    let db = Database::new();
    let (secret, socket) = (db.file("secret"), db.file("http.sock"));
    fs::write(&secret, "a-secret-of-the-operator").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let (secret, listen) = (secret.display(), format!("unix:{}", socket.display()));
    let served = serve(&db, &format!("http.token-file = '{secret}'\nhttp.listen = '{listen}'\n{LOG}"));
    let send = |method: &str, path: &str| {
        served.at.request(method, path).header("Authorization", "Bearer a-secret-of-the-operator").send()
    };
    send("PUT", "/api/v1/queues/q/pause").is(200);
    let record = send("GET", "/api/v1/audit").is(200)["records"][0].clone();
    assert_eq!(record["who"], json!({"kind": "operator"}));
    assert_eq!(record["address"], format!("Unix socket, uid {}", rustix::process::getuid().as_raw()));
}
