//! What keys cost, and how they share: a keyed queue and one without keys, on the same engine and in the same run.
//!
//! ```sh
//! cargo bench -p kvqueue-queue --bench keyed -- [--only TABLE] [--items N]
//! KVQUEUE_TEST_CLUSTER_FILE=FILE FDB_CLIENT_LIB=LIB cargo bench -p kvqueue-queue --bench keyed
//! ```
//!
//! Tables: cost, hot, waiting, active, fair, weights, rate. A consumer fetches on a lease and finishes the batch. Each consumer has a handle on the database and a queue handle of its
//! own, as a process of its own has. Prints tables in Markdown.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod consumer;
mod tables;

use fdb_embedded::Network;
use tables::Bench;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let items = value("--items").map_or(20_000, |text| text.parse().unwrap());
    let _network = Network::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let database = std::env::var("KVQUEUE_TEST_CLUSTER_FILE")
        .unwrap_or_else(|_| format!("embedded:{}", scratch.path().join("db").display()));
    let bench = Bench::new(&database, items);
    let only = value("--only").map(String::as_str);
    runtime.block_on(async {
        for table in tables::TABLES {
            if only.is_none_or(|only| only == table) {
                bench.run(table).await;
            }
        }
    });
}
