//! The revision of a release build from a checkout, for `kvqueue_build_info`. Other builds are not made again for each commit.

use std::process::Command;

const REVISION: &str = "KVQUEUE_REVISION";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={REVISION}");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if std::env::var_os(REVISION).is_some() || !is_release {
        return;
    }
    // A source tree without a repository of its own may lie in another one.
    let own = git(&["rev-parse", "--show-toplevel"]).is_some_and(|top| {
        let canonical = |path: &str| std::fs::canonicalize(path).ok();
        canonical(&top) == std::env::var("CARGO_MANIFEST_DIR").ok().as_deref().and_then(canonical)
    });
    if !own {
        return;
    }
    // It has another line after each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(revision) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env={REVISION}={revision}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
