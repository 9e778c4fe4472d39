//! The units in systemd/: systemd understands them, they give away little, and they fit the daemon.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

const UNIT: &str = include_str!("../../systemd/kvqueue.service");
const TEMPLATE: &str = include_str!("../../systemd/kvqueue@.service");
const DROP_IN: &str = include_str!("../../systemd/old-systemd.conf");

/// The first version that knows `Type=notify-reload`.
const NOTIFY_RELOAD: u32 = 253;

/// The highest exposure that a unit may have, in tenths, as `systemd-analyze security` counts.
const EXPOSURE: &str = "20";

/// The values of a setting, in their order.
fn values<'u>(unit: &'u str, setting: &'u str) -> impl Iterator<Item = &'u str> {
    unit.lines().filter_map(move |line| line.strip_prefix(setting)?.strip_prefix('='))
}

#[track_caller]
fn value<'u>(unit: &'u str, setting: &'u str) -> &'u str {
    values(unit, setting).last().unwrap_or_else(|| panic!("no {setting}"))
}

/// systemd's version, if it is installed here.
fn systemd() -> Option<u32> {
    let output = Command::new("systemd-analyze").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.split_whitespace().nth(1)?;
    let digits = version.chars().take_while(char::is_ascii_digit).count();
    Some(version[..digits].parse().unwrap())
}

/// Both units with this program in them, and the drop-in where this systemd needs it.
fn units(version: u32) -> (TempDir, [PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let paths = [("kvqueue.service", UNIT), ("kvqueue@.service", TEMPLATE)].map(|(name, text)| {
        let path = directory.path().join(name);
        fs::write(&path, text.replace("/usr/bin/kvqueue", env!("CARGO_BIN_EXE_kvqueue"))).unwrap();
        if version < NOTIFY_RELOAD {
            let drop_ins = directory.path().join(format!("{name}.d"));
            fs::create_dir(&drop_ins).unwrap();
            fs::write(drop_ins.join("old-systemd.conf"), DROP_IN).unwrap();
        }
        path
    });
    (directory, paths)
}

/// Its stderr, without the warnings of a systemd older than `notify-reload`.
fn analyze(version: u32, args: &[&str], unit: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(args).arg(unit).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let said: String = said
        .lines()
        .filter(|line| version >= NOTIFY_RELOAD || !line.ends_with("ignoring: notify-reload"))
        .map(|line| format!("{line}\n"))
        .collect();
    (output.status.success(), said)
}

#[test]
fn systemd_verifies_the_units() {
    let Some(version) = systemd() else {
        println!("systemd-analyze is not installed, so the units are not verified");
        return;
    };
    let (_directory, units) = units(version);
    for unit in &units {
        assert_eq!(analyze(version, &["verify", "--man=no"], unit), (true, String::new()), "{unit:?}");
    }
}

#[test]
fn unit_security_scores_are_two_or_better() {
    let Some(version) = systemd() else {
        println!("systemd-analyze is not installed, so the units are not scored");
        return;
    };
    let (_directory, units) = units(version);
    for unit in &units {
        let threshold = format!("--threshold={EXPOSURE}");
        let (passed, said) = analyze(version, &["security", "--offline=true", &threshold], unit);
        assert!(passed && said.is_empty(), "{unit:?}: {said}");
    }
}

#[test]
fn units_wait_longer_than_the_shutdown_timeout() {
    let stop: u64 = value(UNIT, "TimeoutStopSec").parse().unwrap();
    // Handlers, their cancellation and giving back have some seconds after the shutdown timeout.
    assert!(stop >= kvqueue::Config::default().shutdown_timeout.as_secs() + 10);
}

#[test]
fn unit_and_template_differ_only_in_names() {
    let settings = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (unit, template) = (settings(UNIT), settings(TEMPLATE));
    assert_eq!(unit.len(), template.len());
    let named: Vec<_> = unit.iter().zip(&template).filter(|(unit, template)| unit != template).collect();
    insta::assert_debug_snapshot!(named, @r#"
    [
        (
            "Description=kvqueue, the daemon that processes durable queues",
            "Description=kvqueue, the daemon that processes durable queues (%i)",
        ),
        (
            "ExecStart=/usr/bin/kvqueue run --config /etc/kvqueue/kvqueue.toml",
            "ExecStart=/usr/bin/kvqueue run --config /etc/kvqueue/%i.toml",
        ),
        (
            "StateDirectory=kvqueue",
            "StateDirectory=kvqueue-%i",
        ),
        (
            "RuntimeDirectory=kvqueue",
            "RuntimeDirectory=kvqueue-%i",
        ),
        (
            "WorkingDirectory=%S/kvqueue",
            "WorkingDirectory=%S/kvqueue-%i",
        ),
    ]
    "#);
}

#[test]
fn the_drop_in_for_older_systemd_keeps_readiness_and_reload() {
    assert_eq!(value(UNIT, "Type"), "notify-reload");
    assert_eq!(value(DROP_IN, "Type"), "notify");
    assert_eq!(value(DROP_IN, "ExecReload"), "/bin/kill -HUP $MAINPID");
    // With these two, what the daemon sends is all that counts.
    assert_eq!(value(UNIT, "NotifyAccess"), "main");
    assert_eq!(values(UNIT, "ExecReload").count(), 0, "HUP twice");
}

#[test]
fn permanent_failures_prevent_a_restart() {
    let codes: Vec<_> = value(UNIT, "RestartPreventExitStatus").split(' ').collect();
    use kvqueue::Exit::{Config, Gone, Usage};
    assert_eq!(codes, [Usage, Gone, Config].map(|exit| (exit as u8).to_string()));
    assert_eq!(value(UNIT, "StartLimitIntervalSec"), "0", "what may mend itself is tried without end");
}
