//! The status documents of the database and the client, as JSON for monitoring tools.
//!
//! The layout is FoundationDB's, as far as it applies. `cluster.embedded` has additional fields.

use std::time::UNIX_EPOCH;

use super::Database;
use super::address::ADDRESS_TEXT;
use super::facts::RELEASE;
use super::json::Json;

/// The document at `\xff\xff/status/json`.
pub fn cluster(database: &Database) -> String {
    Json::object([("client", client_section(database)), ("cluster", cluster_section(database))]).to_string()
}

fn address() -> Json {
    ADDRESS_TEXT.into()
}

fn seconds() -> Json {
    Json::Float(baton::system_now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

fn client_section(database: &Database) -> Json {
    let coordinator = Json::object([("address", address()), ("reachable", Json::Bool(true))]);
    Json::object([
        ("cluster_file", Json::object([("path", database.url().into()), ("up_to_date", Json::Bool(true))])),
        (
            "coordinators",
            Json::object([
                ("coordinators", Json::List(vec![coordinator])),
                ("quorum_reachable", Json::Bool(true)),
            ]),
        ),
        ("database_status", Json::object([("available", Json::Bool(true)), ("healthy", Json::Bool(true))])),
        ("messages", Json::List(vec![])),
        ("timestamp", seconds()),
    ])
}

fn cluster_section(database: &Database) -> Json {
    let facts = database.facts();
    let healthy = || Json::object([("healthy", Json::Bool(true)), ("name", "healthy".into())]);
    Json::object([
        ("cluster_controller_timestamp", seconds()),
        ("cluster_id", facts.cluster_id.as_str().into()),
        ("configuration", configuration()),
        (
            "data",
            Json::object([
                (
                    "moving_data",
                    Json::object([("in_flight_bytes", Json::Int(0)), ("in_queue_bytes", Json::Int(0))]),
                ),
                ("state", healthy()),
                ("total_disk_used_bytes", facts.disk_bytes.into()),
            ]),
        ),
        ("database_available", Json::Bool(true)),
        ("database_lock_state", Json::object([("locked", Json::Bool(false))])),
        (
            "embedded",
            Json::object([
                ("directory", facts.directory.to_string_lossy().as_ref().into()),
                ("host_pid", Json::Int(facts.host_pid.into())),
                ("version", env!("CARGO_PKG_VERSION").into()),
            ]),
        ),
        ("full_replication", Json::Bool(true)),
        ("generation", Json::Int(1)),
        ("layers", Json::object([("_valid", Json::Bool(true))])),
        ("machines", Json::object([])),
        ("messages", Json::List(vec![])),
        ("processes", Json::object([(facts.cluster_id.as_str(), process(facts.host_pid))])),
        ("recovery_state", Json::object([("name", "fully_recovered".into())])),
    ])
}

fn configuration() -> Json {
    Json::object([
        ("coordinators_count", Json::Int(1)),
        ("redundancy_mode", "single".into()),
        ("storage_engine", "redb".into()),
        ("tenant_mode", "disabled".into()),
        ("usable_regions", Json::Int(1)),
    ])
}

/// The one process: the host.
fn process(pid: u32) -> Json {
    let roles = ["coordinator", "master", "commit_proxy", "grv_proxy", "resolver", "log", "storage"];
    let role = |role: &str| Json::object([("role", role.into())]);
    Json::object([
        ("address", address()),
        ("class_source", "command_line".into()),
        ("class_type", "unset".into()),
        ("excluded", Json::Bool(false)),
        ("messages", Json::List(vec![])),
        ("pid", Json::Int(pid.into())),
        ("roles", Json::List(roles.map(role).into())),
        ("version", RELEASE.into()),
    ])
}

/// The response of `fdb_database_get_client_status`.
fn client(database: &Database) -> String {
    if let Some(code) = database.failure() {
        return Json::object([("InitializationError", Json::Int(code.raw().into()))]).to_string();
    }
    Json::object([
        ("Healthy", Json::Bool(true)),
        ("ClusterID", database.cluster_id().as_str().into()),
        ("Coordinators", Json::List(vec![address()])),
        ("CurrentCoordinator", address()),
        ("GrvProxies", Json::List(vec![address()])),
        ("CommitProxies", Json::List(vec![address()])),
        ("StorageServers", Json::List(vec![])),
        ("Connections", Json::List(vec![])),
        ("NumConnectionsFailed", Json::Int(0)),
    ])
    .to_string()
}

impl Database {
    /// The client's status, as JSON.
    #[must_use]
    pub fn client_status(&self) -> String {
        client(self)
    }
}
