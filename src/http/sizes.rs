//! Sizes that fit each other: what one part sends, another accepts. `src/base/deadlines.rs` has the times.
//!
//! | what | fits into |
//! |---|---|
//! | a payload of the default `max-payload` as text; the longest of all in base 64 | the default `http.max-body`; the largest |
//! | the outcomes of all items of a lease, with the longest reasons of the clients; one with the longest result | the default `http.max-body` |
//! | the progress of all items of a lease | the default `http.max-body` |
//! | the largest `http.max-body` | the memory for bodies of one access token |
//! | a lease; a page of items | the memory for answers of one access token |
//! | a path of the API | a line of a request's head, as proxies accept it |
//!
//! The lines of a worker's process have their own bound, next to the protocol.

use kvqueue_queue::{
    MAX_ATTRIBUTES, MAX_ITEM_KEY, MAX_KEY, MAX_NAME, MAX_PAYLOAD, MAX_PROGRESS_MESSAGE, MAX_RESULT,
    MAX_TAKE_BYTES, MAX_TEXT, PAYLOAD_CEILING,
};

use super::{
    pull::LEASE_ITEMS,
    room::{ANSWERS, BODIES, SHORT},
};
use crate::{
    base::json_bytes::MOST_ESCAPED,
    config::{DEFAULT_BODY, MAX_BODY},
};

/// How many bytes of JSON one byte of a text may take: a control character is `\u0001`.
const ESCAPED: usize = 6;

/// The longest id of an item as text, which is of a keyed queue: two digits for each byte, and a zero byte of the key takes two.
const ID: usize = 2 * (2 * MAX_ITEM_KEY + 32);

/// The longest reason that the clients give with an outcome, in characters.
const REASON: usize = 1_000;

/// The rest of an outcome, or of an item: names of fields, times, numbers.
const REST: usize = 500;

/// The rest of a path with the name of a queue and the id of an item.
const ROUTE: usize = 100;

/// The most bytes that common proxies accept of a line of a request's head.
const HEAD_LINE: usize = 8 << 10;

const _: () = {
    let base64 = PAYLOAD_CEILING.div_ceil(3) * 4;
    assert!(MAX_PAYLOAD + SHORT <= DEFAULT_BODY && base64 + SHORT <= MAX_BODY);
    assert!(DEFAULT_BODY <= MAX_BODY && MAX_BODY <= BODIES.of_long_ones_of_a_token());

    let outcomes = LEASE_ITEMS * (ID + ESCAPED * REASON + REST);
    let outcome = ID + ESCAPED * MAX_RESULT + REST;
    let progress = LEASE_ITEMS * (ID + ESCAPED * MAX_PROGRESS_MESSAGE + REST);
    assert!(outcomes <= DEFAULT_BODY && outcome <= DEFAULT_BODY && progress <= DEFAULT_BODY);

    // A fetch and a page have this many bytes, or one item with all that it may have.
    let texts = ESCAPED * (MAX_ATTRIBUTES + 2 * MAX_TEXT + MAX_KEY + MAX_ITEM_KEY);
    let one = MOST_ESCAPED * PAYLOAD_CEILING + texts + ID + REST;
    let many = ESCAPED * MAX_TAKE_BYTES + LEASE_ITEMS * (ID + REST);
    assert!(one <= ANSWERS.of_a_token && many <= ANSWERS.of_a_token);

    assert!(ROUTE + 3 * MAX_NAME + ID <= HEAD_LINE);
};
