//! The real program, end to end, one file per promise.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` set, everything but the tests about the embedded directory runs on that cluster, each
//! test under a prefix of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod backup;
mod batches;
mod bench;
mod blocked;
mod broken_disk;
mod cancels;
mod chaos;
mod config_errors;
mod crash;
mod dead;
mod demo;
mod doctor;
mod elsewhere;
mod exactly_once;
mod exec;
mod exec_worker;
mod expiry;
mod faults;
mod full_disk;
mod full_target;
mod guarantees;
mod history;
mod http;
mod idle;
mod item_waits;
mod items;
mod keyed;
mod killed_commands;
mod kinds;
mod leases;
mod limits;
mod logging;
mod messages;
mod migrate;
mod missing_program;
mod network;
mod ordered;
mod output;
mod packages;
mod page;
mod panics;
mod pause;
mod poison;
mod progress;
mod push;
mod push_options;
mod rates;
mod recount;
mod reload;
mod results;
mod retention;
mod retries;
mod scale;
mod schedule_commands;
mod schedules;
mod sharing;
mod signals;
mod stalled_log;
mod states;
mod support;
mod sweeping;
mod systemd;
mod taken_away;
mod throttle;
mod together;
#[cfg(feature = "otel")]
mod traces;
mod transfer;
mod unavailable;
mod units;
mod webhook;
mod work;
mod work_off;
