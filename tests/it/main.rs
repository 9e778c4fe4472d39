//! The real program, end to end, one file per promise.
//!
//! With `KVQUEUE_TEST_CLUSTER_FILE` set, everything but the tests about the embedded directory runs on that cluster, each
//! test under a prefix of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod blocked;
mod chaos;
mod config_errors;
mod crash;
mod dead;
mod demo;
mod doctor;
mod exactly_once;
mod exec;
mod faults;
mod guarantees;
mod idle;
mod items;
mod leases;
mod output;
mod panics;
mod push;
mod push_options;
mod retries;
mod signals;
mod support;
mod sweeping;
mod systemd;
mod together;
mod unavailable;
mod work_off;
