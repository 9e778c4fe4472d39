//! The audit trail over HTTP: who asked, and how records are read.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use super::LOG;
use crate::support::{Database, Request, run, serve};

/// What operations leave is in the transcript of the [twins](crate::twins).
#[test]
fn requests_that_are_no_operation_leave_a_record_with_the_client() {
    let db = Database::new();
    let served = serve(&db, &format!("http.require-token = true\n{LOG}"));
    let token = run(&db, &["token", "new", "ops", "--scope", "admin"]).ok();
    let bearer = format!("Bearer {}", token.trim());
    let send = |request: Request| request.header("Authorization", &bearer).send();
    let requests = [
        ("PUT", "queues/q/schedules/daily", Some(json!({"cron": "@daily"})), "schedule.put", json!("q")),
        ("PUT", "queues/q/pause", Some(json!({"local": true})), "queue.pause", json!("q")),
        ("DELETE", "queues/q/pause?local=true", None, "queue.resume", json!("q")),
        ("POST", "reload", None, "daemon.reload", Value::Null),
    ];
    for (number, (method, path, body, action, queue)) in requests.into_iter().enumerate() {
        let request = served.at.request(method, &format!("/api/v1/{path}"));
        let reply = send(match &body {
            Some(body) => request.json(body),
            None => request,
        });
        assert!((200..300).contains(&reply.status), "{method} {path}: {reply:?}");
        let page = send(served.at.request("GET", "/api/v1/audit?limit=1000")).is(200);
        let records = page["records"].as_array().unwrap();
        // The token has one, too.
        assert_eq!((records.len(), &page["next"]), (number + 2, &Value::Null), "{method} {path}");
        let record = &records[0];
        assert_eq!((&record["action"], &record["queue"]), (&json!(action), &queue), "{method} {path}");
        assert_eq!(record["who"], json!({"kind": "token", "name": "ops"}));
        assert!(record["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{record}");
    }
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
