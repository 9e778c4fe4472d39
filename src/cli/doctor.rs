//! `kvqueue doctor`

use std::time::Duration;

use fdb_embedded::doctor::{self, Finding, Report, Verdict};
use foundationdb::{Database, FdbError};
use serde_json::{Value, json};
use tokio::{runtime, time::timeout};

use super::{globals::Globals, output};
use crate::{database::Store, exit::Exit};

/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Check a database and say what was found; nothing is changed
///
/// An embedded directory that no process holds is read through: every page's checksum, its structure, every row. Nobody
/// can open it meanwhile. One that is held is looked at from outside. Of a cluster it says whether it answers, and what
/// runs there. Exits with 1 if something has to be done.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let config = globals.start()?;
        let report = match fdb_embedded::embedded_directory(&config.database) {
            Some(directory) => doctor::check(&directory),
            None => check_cluster(&config.database)?,
        };
        for finding in &report.findings {
            output::line(globals.json, text(finding).as_bytes(), &object(finding))?;
        }
        Ok(if report.is_healthy() { Exit::Done } else { Exit::Failed })
    }
}

fn text(finding: &Finding) -> String {
    let Finding { about, verdict, text, advice } = finding;
    let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{about:<10}{verdict:<9}{text}{advice}")
}

fn object(finding: &Finding) -> Value {
    let verdict = finding.verdict.to_string().to_lowercase();
    let mut object = json!({"about": finding.about, "verdict": verdict, "text": finding.text});
    if let Some(advice) = finding.advice {
        object["advice"] = json!(advice);
    }
    object
}

fn check_cluster(cluster_file: &str) -> anyhow::Result<Report> {
    let store = Store::open(cluster_file)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { timeout(PATIENCE, ask(&store.db)).await });
    let finding = |verdict, text, advice| Finding { about: "cluster", verdict, text, advice };
    let finding = match answer {
        Ok(Ok((version, software))) => {
            let software = software.map(|software| format!(", FoundationDB {software}")).unwrap_or_default();
            finding(Verdict::Fine, format!("it answers: read version {version}{software}"), None)
        }
        Ok(Err(error)) => {
            let advice = "look at fdbcli --exec 'status details' with the same cluster file";
            finding(Verdict::Problem, format!("it refuses: {error}"), Some(advice))
        }
        Err(_) => {
            let text = format!("no answer within {} seconds", PATIENCE.as_secs());
            finding(
                Verdict::Problem,
                text,
                Some("check the addresses in the cluster file, and whether fdbserver runs there"),
            )
        }
    };
    Ok(Report { findings: vec![finding] })
}

/// A read version, and the software that the first process runs, if the cluster tells.
async fn ask(db: &Database) -> Result<(i64, Option<String>), FdbError> {
    let tr = db.create_trx()?;
    let version = tr.get_read_version().await?;
    let status = tr.get(b"\xff\xff/status/json", true).await?;
    let status: Option<Value> = status.and_then(|status| serde_json::from_slice(&status).ok());
    let processes = status.as_ref().and_then(|status| status.pointer("/cluster/processes")?.as_object());
    let software =
        processes.and_then(|processes| processes.values().find_map(|process| process["version"].as_str()));
    Ok((version, software.map(str::to_owned)))
}
