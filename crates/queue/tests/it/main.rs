//! The queue layer on a database: the embedded engine, or the cluster whose file `KVQUEUE_TEST_CLUSTER_FILE` names.
//!
//! On a cluster every test works under a prefix of its own and clears it at the end; tests that need injected faults
//! are skipped there, and say so.

#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod common;

mod agenda;
mod approaches;
mod attributes;
mod batch_model;
mod batch_races;
mod batch_sweeps;
mod batches;
mod bounds;
mod cancels;
mod clocks;
mod counters;
mod counts;
mod dead;
mod delayed;
mod duty;
mod expired;
mod expiry;
mod expiry_model;
mod expiry_races;
mod foreign;
mod forgotten;
mod hastened;
mod history;
mod history_index;
mod history_model;
mod holds;
mod index_repair;
mod interop;
mod item_changes;
mod item_model;
mod item_waits;
mod joins;
mod keyed;
mod keyed_races;
mod keyed_suspects;
mod kinds;
mod large;
mod late;
mod lease_time;
mod leases;
mod limits_used;
mod long_payloads;
mod model;
mod mortal;
mod moves;
mod operation_ids;
mod operations;
mod order;
mod ordered;
mod orphans;
mod partitions;
mod pause;
mod peek;
mod poison;
mod producers;
mod progress;
mod push_model;
mod pushers;
mod queue_limit;
mod queues;
mod rates;
mod recipe_pushes;
mod recipes;
mod recount;
mod restored;
mod results;
mod retention;
mod retries;
mod rule_changes;
mod schedule_changes;
mod schedule_clocks;
mod schedule_daemons;
mod schedule_model;
mod schedule_overlap;
mod schedules;
mod sessions;
mod shares;
mod single;
mod staged;
mod stranded;
mod stress;
mod sweep;
mod sweepers;
mod tokens;
mod turns;
mod unique;
mod unique_times;
mod unknown;
mod unreadable;
mod views;
mod watches;
mod went_back;
mod wrong_kinds;
