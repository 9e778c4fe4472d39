//! The memory that a request takes is a small multiple of its body, for any content.

use serde_json::json;

use super::served;
use crate::{idle::memory, support::Database};

/// The length of each body: just below the default of `http.max-body`.
const LENGTH: usize = 9 << 20;

/// How many times its body a request may take: the body as it came, what is read of it, and room to grow.
const MULTIPLE: usize = 8;

/// `start`, then `part` as often as it fits, then `end`.
fn filled(start: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = start.to_owned();
    for index in 0.. {
        let part = part(index);
        if text.len() + part.len() + end.len() > LENGTH {
            break;
        }
        text += &part;
    }
    text.truncate(text.trim_end_matches(',').len());
    text + end
}

/// An item of the most attributes that one can have.
fn item_of_attributes(_: usize) -> String {
    let all: Vec<_> = (0..1_800).map(|index| format!("\"{index:x}\":\"\"")).collect();
    format!("{{\"payload\":\"\",\"attributes\":{{{}}}}},", all.join(","))
}

#[test]
fn a_request_takes_a_small_multiple_of_its_body() {
    let db = Database::new();
    let served = served(&db);
    let repeated = |text: &'static str| move |_| text.to_owned();
    let (push, pause) = (("POST", "/api/v1/queues/q/items"), ("PUT", "/api/v1/queues/q/pause"));
    let bodies = [
        (push, filled("{\"items\":[", repeated("{},"), "]}"), 400),
        (push, filled("{\"items\":[", repeated("{\"payload\":\"\"},"), "]}"), 400),
        (push, filled("{\"items\":[", item_of_attributes, "]}"), 400),
        (
            push,
            filled(
                "{\"items\":[{\"payload\":\"\",\"attributes\":{",
                |index| format!("\"{index:x}\":\"\","),
                "}}]}",
            ),
            400,
        ),
        (push, filled("{\"", repeated("unknown"), "\":1}"), 400),
        (push, filled("{\"items\":\"", repeated("no list "), "\"}"), 400),
        (push, filled("{\"items\":[{\"payload\":\"\",\"at\":\"", repeated("\\u0000"), "\"}]}"), 400),
        (push, filled("{\"items\":", repeated("["), ""), 400),
        (push, filled("{\"items\":[{\"payload\":\"", repeated("x"), "\"}]}"), 413),
        (pause, filled("{\"reason\":\"", repeated("x"), "\"}"), 413),
    ];
    // The first request of all has the daemon take what it needs anyway.
    served.at.post(push.1, &json!({ "items": [{ "payload": "x".repeat(1 << 20) }] })).is(201);
    let before = memory(served.daemon.pid(), "VmHWM");
    for (to, body, status) in bodies {
        let (beginning, length) = (body[..30].to_owned(), body.len());
        assert!(length > LENGTH / 2, "{beginning}");
        let request = served.at.request(to.0, to.1).header("Content-Type", "application/json").body(body);
        let answer = request.send();
        assert!(answer.body.len() < 8_192, "{beginning}: the answer has {} bytes", answer.body.len());
        assert_eq!(answer.status, status, "{beginning}: {}", String::from_utf8_lossy(&answer.body));
        let taken = usize::try_from(memory(served.daemon.pid(), "VmHWM") - before).unwrap() << 10;
        println!("{beginning}: {} MiB", taken >> 20);
        assert!(taken < MULTIPLE * LENGTH, "{beginning}: it took {taken} bytes of memory");
    }
    served.at.get("/livez").is(200);
}
