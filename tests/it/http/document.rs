//! docs/openapi.json says what the daemon answers. Just enough of JSON Schema for that document; more strictly than that says, since a key
//! that the document does not have is an error.

use serde_json::{Value, json};

use super::with_dead;
use crate::{
    ordered::with_blocked,
    support::{Database, Reply, Served, serve},
};

fn document() -> Value {
    serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap()
}

pub(crate) struct Document(Value);

/// An operation of the document.
pub(crate) struct Described<'a> {
    pub(crate) id: &'a str,
    /// The action of its record in the audit trail.
    pub(crate) audit: Option<&'a str>,
    method: &'a str,
    path: &'a str,
}

impl Document {
    pub(crate) fn read() -> Self {
        Self(document())
    }

    /// All operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Described<'_>> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
            methods.map(move |(method, operation)| {
                let id = operation["operationId"].as_str().unwrap();
                Described { id, audit: operation["x-kvqueue-audit"].as_str(), method, path }
            })
        })
    }

    /// What a request for this path asks for. Of two paths that fit, the one with fewer names in braces counts.
    pub(crate) fn operation(&self, method: &str, path: &str) -> Described<'_> {
        let path = path.split('?').next().unwrap();
        let fits = |pattern: &str| {
            let pairs = || pattern.split('/').zip(path.split('/'));
            pattern.split('/').count() == path.split('/').count()
                && pairs().all(|(part, given)| part.starts_with('{') || part == given)
        };
        let method = method.to_lowercase();
        let found = self.operations().filter(|it| it.method == method && fits(it.path));
        let found = found.min_by_key(|it| it.path.matches('{').count());
        found.unwrap_or_else(|| panic!("docs/openapi.json has no {method} {path}"))
    }

    /// Fails if an answer is not as the document says.
    #[track_caller]
    pub(crate) fn hold(&self, operation: &Described<'_>, reply: &Reply) {
        self.check(operation.method, operation.path, reply);
    }

    fn target<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(path) => self.0.pointer(path.strip_prefix('#').unwrap()).unwrap(),
            None => schema,
        }
    }

    /// The difference of a value from its schema.
    fn problem(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let schema = self.target(schema);
        if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let problems: Vec<_> = any.iter().map(|it| self.problem(it, value, at)).collect();
            return problems.iter().all(Option::is_some).then(|| format!("{at}: none of {problems:?}"));
        }
        let types: Vec<_> = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = types.contains(&found) || found == "integer" && types.contains(&"number");
        if !fits {
            return Some(format!("{at}: {value} is {found}, not {types:?}"));
        }
        if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
            return Some(format!("{at}: {value} is none of {}", schema["enum"]));
        }
        match value {
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items
                    .find_map(|(index, item)| self.problem(&schema["items"], item, &format!("{at}[{index}]")))
            }
            Value::Object(object) if schema["additionalProperties"].is_object() => {
                let of = &schema["additionalProperties"];
                object.iter().find_map(|(key, value)| self.problem(of, value, &format!("{at}.{key}")))
            }
            Value::Object(object) if schema["properties"].is_object() => {
                let missing = schema["required"].as_array().into_iter().flatten();
                let missing = missing.map(|key| key.as_str().unwrap()).find(|key| !object.contains_key(*key));
                let missing = missing.map(|key| format!("{at} lacks {key}"));
                missing.or_else(|| {
                    object.iter().find_map(|(key, value)| match schema["properties"].get(key) {
                        None => Some(format!("{at}.{key} is not in the document")),
                        Some(schema) => self.problem(schema, value, &format!("{at}.{key}")),
                    })
                })
            }
            _ => None,
        }
    }

    #[track_caller]
    fn check(&self, method: &str, path: &str, reply: &Reply) -> Value {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {path}");
        let status = reply.status.to_string();
        let response = operation["responses"].get(&status).unwrap_or(&operation["responses"]["default"]);
        let response = self.target(response);
        let schema = &response["content"]["application/json"]["schema"];
        if schema.is_null() {
            assert!(reply.body.is_empty(), "{method} {path}: {reply:?}");
            return Value::Null;
        }
        let body = reply.json();
        let problem = self.problem(schema, &body, "");
        assert_eq!(problem, None, "{method} {path}: {status} {body}");
        body
    }
}

/// Asks for something at a path of the document, with these values in it.
struct Asker<'a> {
    document: Document,
    served: &'a Served,
}

impl Asker<'_> {
    #[track_caller]
    fn ask(&self, status: u16, method: &str, path: &str, values: &[&str], body: Option<Value>) -> Value {
        let mut parts = path.split('?');
        let (pattern, query) = (parts.next().unwrap(), parts.next());
        let mut actual = pattern.to_owned();
        for value in values {
            let (before, rest) = actual.split_once('{').expect("the path has a place for each value");
            actual = format!("{before}{value}{}", rest.split_once('}').unwrap().1);
        }
        if let Some(query) = query {
            actual += &format!("?{query}");
        }
        let request = self.served.at.request(method, &actual);
        let reply = match body {
            Some(body) => request.json(&body).send(),
            None => request.send(),
        };
        assert_eq!(reply.status, status, "{method} {actual}: {}", String::from_utf8_lossy(&reply.body));
        self.document.check(method, pattern, &reply)
    }
}

#[test]
fn openapi_document_matches_the_served_responses() {
    let db = Database::new();
    with_dead(&db, &["one", "two", "three"]);
    with_blocked(&db, &["a", "b"]);
    let config = "[queues.q]\nhandler = 'exec'\nhandler-config = { command = ['sleep', '100'] }\nconsumers = [{ k = 1 }]\n\
                  [queues.idle]\nhandler = 'log'\n[queues.work]\nhandler = 'pull'\n[queues.keyed]\nhandler = 'pull'\nkind = 'keyed'\n";
    let served = serve(&db, &format!("shutdown-timeout = '0s'\n{config}"));
    let asker = Asker { document: Document::read(), served: &served };
    let ask = |status, method: &str, path: &str, values: &[&str], body| {
        asker.ask(status, method, path, values, body)
    };
    let get = |path: &str, values: &[&str]| ask(200, "GET", path, values, None);
    get("/livez", &[]);
    get("/readyz", &[]);
    assert_eq!(get("/api/v1/openapi.json", &[]), document());

    let entry = |n: usize| {
        json!({
            "payload": format!("{n}"), "attributes": {"k": "v"}, "content_type": "text/plain", "trace_parent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "unique": format!("u{n}"),
        })
    };
    let items = "/api/v1/queues/{queue}/items";
    let body = json!({"items": (0..5).map(entry).collect::<Vec<_>>(), "idempotency_key": "o"});
    let pushed = ask(201, "POST", items, &["q"], Some(body));
    let scheduled = ask(
        201,
        "POST",
        items,
        &["q"],
        Some(json!({"items": [{"payload_base64": "/w==", "at": "2100-01-01T00:00:00Z"}]})),
    );
    ask(400, "POST", items, &["q"], Some(json!({})));
    get(&format!("{items}?limit=2"), &["q"]);
    get("/api/v1/queues/{queue}/items/{id}", &["q", pushed["ids"][4].as_str().unwrap()]);
    ask(404, "GET", "/api/v1/queues/{queue}/items/{id}", &["q", "x00"], None);
    ask(400, "GET", &format!("{items}?bytes=x"), &["q"], None);
    for state in ["ready", "scheduled", "retrying", "running"] {
        get(&format!("{items}?state={state}"), &["q"]);
    }
    get(&format!("{items}?state=dead"), &["dead"]);
    ask(400, "GET", &format!("{items}?state=later"), &["q"], None);

    let item = "/api/v1/queues/{queue}/items/{id}";
    ask(200, "POST", &format!("{item}/requeue"), &["q", scheduled["ids"][0].as_str().unwrap()], None);
    ask(404, "POST", &format!("{item}/requeue"), &["q", "x00"], None);
    let id = |index: usize| pushed["ids"][index].as_str().unwrap();
    get(&format!("{items}?unique=none"), &["q"]);
    ask(200, "POST", &format!("{item}/reschedule"), &["q", id(3)], Some(json!({"delay_ms": 3_600_000})));
    ask(400, "POST", &format!("{item}/reschedule"), &["q", id(3)], Some(json!({})));
    ask(404, "POST", &format!("{item}/reschedule"), &["q", "x00"], Some(json!({"now": true})));
    ask(200, "PUT", &format!("{item}/payload"), &["q", id(3)], Some(json!({"payload_base64": "/w=="})));
    ask(400, "PUT", &format!("{item}/payload"), &["q", id(3)], Some(json!({})));
    ask(404, "PUT", &format!("{item}/payload"), &["q", "x00"], Some(json!({"payload": "x"})));
    ask(200, "POST", &format!("{item}/cancel"), &["q", id(3)], None);
    ask(404, "POST", &format!("{item}/cancel"), &["q", id(3)], None);
    ask(200, "DELETE", item, &["q", pushed["ids"][4].as_str().unwrap()], None);
    ask(404, "DELETE", item, &["q", "x00"], None);
    let queue = "/api/v1/queues/{queue}";
    ask(200, "POST", &format!("{queue}/requeue"), &["q"], Some(json!({"waiting": true, "dead": true})));
    ask(200, "POST", &format!("{queue}/move"), &["q"], Some(json!({"to": "moved", "limit": 1})));
    ask(400, "POST", &format!("{queue}/move"), &["q"], Some(json!({"to": "moved"})));
    let which = json!({"confirm": "moved", "state": "ready", "attribute": {"name": "k", "value": "none"}});
    ask(200, "POST", &format!("{queue}/cancel"), &["moved"], Some(which));
    ask(
        400,
        "POST",
        &format!("{queue}/cancel"),
        &["moved"],
        Some(json!({"confirm": "moved", "state": "dead"})),
    );
    ask(409, "POST", &format!("{queue}/cancel"), &["moved"], Some(json!({"confirm": "q"})));
    ask(200, "DELETE", &format!("{queue}?confirm=moved"), &["moved"], None);
    ask(409, "DELETE", queue, &["q"], None);

    let letters = "/api/v1/queues/{queue}/dead";
    let page = get(&format!("{letters}?limit=2"), &["dead"]);
    let ids: Vec<_> =
        page["letters"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    get("/api/v1/queues/{queue}/dead/{id}", &["dead", ids[0]]);
    ask(200, "POST", &format!("{item}/requeue"), &["dead", ids[0]], None);
    ask(409, "POST", &format!("{item}/requeue"), &["dead", ids[0]], None);
    ask(409, "POST", &format!("{item}/cancel"), &["dead", ids[1]], None);
    ask(409, "POST", &format!("{item}/reschedule"), &["dead", ids[1]], Some(json!({"now": true})));
    ask(200, "DELETE", "/api/v1/queues/{queue}/dead/{id}", &["dead", ids[1]], None);
    ask(200, "POST", &format!("{queue}/requeue"), &["dead"], Some(json!({"dead": true})));
    let purge = "/api/v1/queues/{queue}/dead/purge";
    ask(200, "POST", purge, &["dead"], Some(json!({"confirm": "dead"})));
    ask(409, "POST", purge, &["dead"], Some(json!({"confirm": ""})));

    let lease = "/api/v1/queues/{queue}/lease";
    ask(200, "POST", lease, &["work"], None);
    ask(201, "POST", items, &["work"], Some(json!({"items": [entry(7), {"payload_base64": "/w=="}]})));
    let leased = ask(200, "POST", lease, &["work"], Some(json!({"max": 2})));
    let (held, id) = (leased["lease"].as_str().unwrap(), leased["items"][0]["id"].as_str().unwrap());
    ask(200, "POST", "/api/v1/queues/{queue}/leases/{lease}/extend", &["work", held], None);
    let acknowledge = "/api/v1/queues/{queue}/leases/{lease}/acknowledge";
    let done = json!({"outcomes": [{"id": id, "outcome": "done"}], "release_rest": true});
    ask(200, "POST", acknowledge, &["work", held], Some(done.clone()));
    ask(200, "POST", acknowledge, &["work", held], Some(done));
    let none = format!("{}-1", "0".repeat(32));
    ask(409, "POST", acknowledge, &["work", &none], Some(json!({})));
    let leased = ask(200, "POST", lease, &["work"], None);
    let both = json!({"release_rest": true, "next": {"max": 1}});
    let next = ask(200, "POST", acknowledge, &["work", leased["lease"].as_str().unwrap()], Some(both));
    assert_eq!(next["next"]["items"][0]["id"], leased["items"][0]["id"]);

    let tokens = "/api/v1/tokens";
    let new = json!({"name": "n", "scopes": ["push"], "expires": "60s"});
    ask(200, "POST", tokens, &[], Some(new.clone()));
    ask(409, "POST", tokens, &[], Some(new));
    get(tokens, &[]);
    ask(200, "DELETE", "/api/v1/tokens/{name}", &["n"], None);
    ask(404, "DELETE", "/api/v1/tokens/{name}", &["n"], None);
    get("/api/v1/audit", &[]);
    get("/api/v1/workers?queue=work", &[]);
    get("/api/v1/audit?queue=q&limit=2", &[]);
    ask(400, "GET", "/api/v1/audit?after=x", &[], None);

    let limits = "/api/v1/queues/{queue}/limits";
    let rule = json!({"pattern": "tenant-*", "running": 1, "rate": "5/1s", "burst": 9, "weight": 2, "ordered": true, "on_dead": "block"});
    ask(200, "PUT", limits, &["keyed"], Some(rule));
    ask(200, "PUT", limits, &["keyed"], Some(json!({"whole_queue": true, "running": 5})));
    get(limits, &["keyed"]);
    ask(409, "GET", limits, &["q"], None);
    ask(200, "DELETE", &format!("{limits}?pattern=tenant-*"), &["keyed"], None);
    ask(404, "DELETE", &format!("{limits}?pattern=tenant-*"), &["keyed"], None);
    let held_keys = "/api/v1/queues/{queue}/held";
    get(&format!("{held_keys}?limit=1"), &["blocked"]);
    get(held_keys, &["blocked"]);
    ask(400, "GET", &format!("{held_keys}?after=000000000000000000000000"), &["blocked"], None);
    ask(409, "GET", held_keys, &["q"], None);
    let unblock = "/api/v1/queues/{queue}/unblock";
    ask(200, "POST", unblock, &["blocked"], Some(json!({"key": "a"})));
    ask(200, "POST", unblock, &["blocked"], Some(json!({"key_base64": "Yg=="})));
    ask(404, "POST", unblock, &["blocked"], Some(json!({"key": "a"})));
    ask(409, "POST", unblock, &["q"], Some(json!({"key": "a"})));
    let batches = "/api/v1/queues/{queue}/batches";
    let batch = "/api/v1/queues/{queue}/batches/{batch}";
    let then = json!({"payload": "x", "attributes": {"k": "v"}, "content_type": "text/plain"});
    let made = ask(201, "POST", batches, &["idle"], Some(json!({"then": then, "deadline_ms": 3_600_000})));
    let of_idle = made["id"].as_str().unwrap();
    let then = json!({"payload_base64": "/w==", "key": "a"});
    let made = ask(201, "POST", batches, &["keyed"], Some(json!({ "then": then })));
    let of_keyed = made["id"].as_str().unwrap();
    let never = json!([{"id": "0".repeat(24), "queue": "work"}]);
    ask(409, "POST", batches, &["keyed"], Some(json!({"then": then, "after": never})));
    let after = json!({"then": then, "after": never, "missing": "ended"});
    let made = ask(201, "POST", batches, &["keyed"], Some(after));
    assert_eq!((&made["waits_for"], &made["gone"]), (&json!(0), &json!(1)));
    let member = json!({"items": [{"payload": "member", "batch": of_idle}]});
    ask(201, "POST", items, &["work"], Some(member.clone()));
    get(items, &["work"]);
    let leased = ask(200, "POST", lease, &["work"], Some(json!({"max": 9})));
    assert!(
        leased["items"].as_array().unwrap().iter().any(|item| item["batches"] == json!([of_idle])),
        "{leased}"
    );
    ask(400, "POST", batches, &["idle"], Some(json!({"then": {"payload": "x", "priority": 1}})));
    for path in [batches.to_owned(), format!("{batches}?limit=1"), format!("{batches}?after={of_idle}")] {
        get(&path, &["idle"]);
        get(&path, &["keyed"]);
    }
    get(batch, &["idle", of_idle]);
    ask(200, "POST", &format!("{batch}/commit"), &["idle", of_idle], None);
    ask(200, "POST", &format!("{batch}/commit"), &["idle", of_idle], None);
    ask(409, "POST", items, &["work"], Some(member));
    get(batch, &["idle", of_idle]);
    get(batch, &["keyed", of_keyed]);
    ask(200, "DELETE", batch, &["keyed", of_keyed], None);
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/commit")] {
        ask(404, method, &format!("{batch}{path}"), &["keyed", of_keyed], None);
    }
    let schedules = "/api/v1/queues/{queue}/schedules";
    let schedule = "/api/v1/queues/{queue}/schedules/{name}";
    let definition = json!({
        "cron": "0 3 * * *", "zone": "Europe/Berlin", "payload_json": {"a": 1}, "attributes": {"k": "v"}, "missed": "all", "missed_window": "6h", "missed_max": 9, "jitter": "10m",
    });
    ask(200, "PUT", schedule, &["idle", "nightly"], Some(definition));
    let keyed = json!({"every": "365d", "payload_base64": "/w==", "content_type": "text/plain", "key": "a", "overlap": "skip"});
    ask(200, "PUT", schedule, &["keyed", "yearly"], Some(keyed));
    ask(400, "PUT", schedule, &["idle", "other"], Some(json!({"every": "365d", "priority": 1})));
    for path in [schedules.to_owned(), format!("{schedules}?limit=1"), format!("{schedules}?after=a")] {
        get(&path, &["idle"]);
        get(&path, &["keyed"]);
    }
    get(schedule, &["idle", "nightly"]);
    ask(200, "POST", &format!("{schedule}/fire"), &["keyed", "yearly"], None);
    ask(409, "POST", &format!("{schedule}/fire"), &["keyed", "yearly"], None);
    get(schedule, &["keyed", "yearly"]);
    get(&format!("{schedule}/history"), &["keyed", "yearly"]);
    get(&format!("{schedule}/history?limit=1&after=9"), &["keyed", "yearly"]);
    ask(200, "POST", &format!("{schedule}/pause"), &["idle", "nightly"], None);
    get(schedule, &["idle", "nightly"]);
    ask(200, "POST", &format!("{schedule}/resume"), &["idle", "nightly"], None);
    // One that is not paused can be restarted.
    ask(200, "POST", &format!("{schedule}/resume"), &["idle", "nightly"], Some(json!({"restart": true})));
    for (method, path) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/fire"),
        ("GET", "/history"),
    ] {
        ask(404, method, &format!("{schedule}{path}"), &["idle", "none"], None);
    }
    ask(200, "DELETE", schedule, &["idle", "nightly"], None);
    ask(201, "POST", items, &["keyed"], Some(json!({"items": [{"payload": "x", "key": "a"}]})));
    get(items, &["keyed"]);
    let leased = ask(200, "POST", lease, &["keyed"], Some(json!({"max": 2})));
    let (held, id) = (leased["lease"].as_str().unwrap(), leased["items"][0]["id"].as_str().unwrap());
    let throttle =
        json!({"id": id, "outcome": "throttle", "scope": "tenant", "after_ms": 1, "reason": "429"});
    ask(200, "POST", acknowledge, &["keyed", held], Some(json!({ "outcomes": [throttle] })));
    ask(200, "PUT", "/api/v1/queues/{queue}/pause", &["idle"], None);
    ask(200, "PUT", "/api/v1/queues/{queue}/pause", &["idle"], Some(json!({"reason": "why"})));
    ask(404, "PUT", "/api/v1/queues/{queue}/pause", &["none"], Some(json!({"local": true})));
    for path in ["/api/v1/status", "/api/v1/queues?all=true", "/api/v1/consumers"] {
        get(path, &[]);
    }
    get("/api/v1/queues/{queue}", &["q"]);
    get("/api/v1/queues/{queue}/history", &["q"]);
    ask(404, "GET", "/api/v1/queues/{queue}", &["none"], None);
    ask(200, "DELETE", "/api/v1/queues/{queue}/pause", &["idle"], None);
    ask(200, "PUT", "/api/v1/queues/{queue}/pause", &["idle"], Some(json!({"local": true})));
    ask(200, "POST", "/api/v1/reload", &[], None);
}
