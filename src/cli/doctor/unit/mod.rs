//! systemd's unit: whether it runs this program with this configuration, and gives it the time that it needs.
//!
//! Read from files, since systemd may not run here, or not for this user.

mod files;
mod span;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use self::files::{DIRECTORIES, Service};
use super::findings::Findings;
use crate::config::duration;

const ABOUT: &str = "unit";

/// The unit that packages bring.
const USUAL: &str = "kvqueue.service";

/// How much longer than the shutdown timeout a stop may take: handlers are cancelled, and what they had is given back.
const DRAIN_TAIL: Duration = Duration::from_secs(10);

/// How long systemd waits if a unit does not say.
const DEFAULT_STOP: Duration = Duration::from_secs(90);

/// The first systemd that knows `Type=notify-reload`.
const NOTIFY_RELOAD: u32 = 253;

/// What a unit is held against.
struct World<'w> {
    config: Option<&'w Path>,
    shutdown_timeout: Duration,
    /// systemd's version, where there is one.
    systemd: Option<u32>,
    runs: fn(&Path) -> bool,
}

/// Looks at the unit of that name, or at the usual one if it is there.
pub(super) fn look(
    name: Option<&str>,
    config: Option<&Path>,
    shutdown_timeout: Duration,
    findings: &mut Findings,
) {
    let unit = name
        .map_or_else(|| USUAL.to_owned(), |name| format!("{}.service", name.trim_end_matches(".service")));
    let directories = DIRECTORIES.map(Path::new);
    let Some(service) = Service::find(&unit, &directories) else {
        let text = format!("{unit} is not installed");
        match name {
            Some(_) => findings.problem(ABOUT, text, format!("put it into {}", DIRECTORIES[0])),
            None => findings.fine(ABOUT, text),
        }
        return;
    };
    let world = World { config, shutdown_timeout, systemd: systemd(), runs };
    judge(&unit, &service, &world, findings);
}

fn judge(unit: &str, service: &Service, world: &World<'_>, findings: &mut Findings) {
    let words: Vec<_> = service.get("ExecStart").unwrap_or_default().split_whitespace().collect();
    let Some(program) = words.first().map(|program| program.trim_start_matches(['@', '-', ':', '+', '!']))
    else {
        findings.problem(
            ABOUT,
            format!("{unit} starts nothing"),
            "give it ExecStart=/usr/bin/kvqueue run --config FILE",
        );
        return;
    };
    if !(world.runs)(Path::new(program)) {
        let advice = "install kvqueue there, or set ExecStart= with systemctl edit";
        findings.problem(ABOUT, format!("{unit} starts {program}, which is no program here"), advice);
        return;
    }
    if service.get("Type") == Some("notify-reload")
        && world.systemd.is_some_and(|version| version < NOTIFY_RELOAD)
    {
        let text = format!("{unit} has Type=notify-reload, which this systemd does not know");
        findings.problem(ABOUT, text, format!("put old-systemd.conf into {}/{unit}.d", DIRECTORIES[0]));
    }
    let file = config_of(&words);
    if file.as_deref() != world.config {
        let shown =
            file.map_or_else(|| "no configuration file".to_owned(), |file| file.display().to_string());
        findings.note(
            ABOUT,
            format!("{unit} runs with {shown}"),
            "give doctor the same with --config, to see whether they fit",
        );
        return;
    }
    match stop_time(service) {
        Some(stop) if stop >= world.shutdown_timeout + DRAIN_TAIL => {
            findings.fine(ABOUT, format!("{unit} starts {program}, and gives a stop the time it needs"));
        }
        Some(stop) => {
            let (stop, shutdown_timeout) = (duration::format(stop), duration::format(world.shutdown_timeout));
            let text =
                format!("{unit} kills a stop after {stop}, and shutdown-timeout is {shutdown_timeout}");
            let least = (world.shutdown_timeout + DRAIN_TAIL).as_secs();
            findings.problem(
                ABOUT,
                text,
                format!("set TimeoutStopSec={least} or more with systemctl edit, or lower shutdown-timeout"),
            );
        }
        None => findings.problem(
            ABOUT,
            format!("{unit}: TimeoutStopSec is no time"),
            "write it as in TimeoutStopSec=45",
        ),
    }
}

/// `TimeoutSec` sets it, too.
fn stop_time(service: &Service) -> Option<Duration> {
    let text = service.get("TimeoutStopSec").or_else(|| service.get("TimeoutSec"));
    text.map_or(Some(DEFAULT_STOP), span::parse)
}

/// The file in `--config FILE` or `--config=FILE`.
fn config_of(words: &[&str]) -> Option<PathBuf> {
    let after = words.iter().position(|word| *word == "--config").and_then(|place| words.get(place + 1));
    let file = after.copied().or_else(|| words.iter().find_map(|word| word.strip_prefix("--config=")));
    file.map(PathBuf::from)
}

fn systemd() -> Option<u32> {
    let output = Command::new("systemctl").arg("--version").output().ok()?;
    version(&String::from_utf8_lossy(&output.stdout))
}

/// From a first line such as `systemd 257 (257.9-1)`.
fn version(text: &str) -> Option<u32> {
    let word = text.split_whitespace().nth(1)?;
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..digits].parse().ok()
}

/// Whether it is a file that somebody may run.
fn runs(program: &Path) -> bool {
    let metadata = std::fs::metadata(program);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../../systemd/kvqueue.service");

    fn judged(drop_in: &str, shutdown_timeout: u64, systemd: u32) -> String {
        let mut service = Service::default();
        service.read(UNIT);
        service.read(drop_in);
        let world = World {
            config: Some(Path::new("/etc/kvqueue/kvqueue.toml")),
            shutdown_timeout: Duration::from_secs(shutdown_timeout),
            systemd: Some(systemd),
            runs: |program| program == Path::new("/usr/bin/kvqueue"),
        };
        let mut findings = Findings::default();
        judge(USUAL, &service, &world, &mut findings);
        findings.lines()
    }

    #[test]
    fn the_unit_that_comes_with_kvqueue_fits() {
        insta::assert_snapshot!(judged("", 30, 257), @"unit      fine     kvqueue.service starts /usr/bin/kvqueue, and gives a stop the time it needs");
        insta::assert_snapshot!(judged(include_str!("../../../../systemd/old-systemd.conf"), 30, 252), @"unit      fine     kvqueue.service starts /usr/bin/kvqueue, and gives a stop the time it needs");
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_fix() {
        insta::assert_snapshot!(judged("", 60, 257), @"unit      PROBLEM  kvqueue.service kills a stop after 45s, and shutdown-timeout is 1m; set TimeoutStopSec=70 or more with systemctl edit, or lower shutdown-timeout");
        insta::assert_snapshot!(judged("[Service]\nTimeoutStopSec=soon", 30, 257), @"unit      PROBLEM  kvqueue.service: TimeoutStopSec is no time; write it as in TimeoutStopSec=45");
        insta::assert_snapshot!(judged("", 30, 252), @r"
        unit      PROBLEM  kvqueue.service has Type=notify-reload, which this systemd does not know; put old-systemd.conf into /etc/systemd/system/kvqueue.service.d
        unit      fine     kvqueue.service starts /usr/bin/kvqueue, and gives a stop the time it needs
        ");
        insta::assert_snapshot!(judged("[Service]\nExecStart=/opt/kvqueue run", 30, 257), @"unit      PROBLEM  kvqueue.service starts /opt/kvqueue, which is no program here; install kvqueue there, or set ExecStart= with systemctl edit");
        insta::assert_snapshot!(judged("[Service]\nExecStart=/usr/bin/kvqueue run --config=/etc/other.toml", 30, 257), @"unit      note     kvqueue.service runs with /etc/other.toml; give doctor the same with --config, to see whether they fit");
        insta::assert_snapshot!(judged("[Service]\nExecStart=", 30, 257), @"unit      PROBLEM  kvqueue.service starts nothing; give it ExecStart=/usr/bin/kvqueue run --config FILE");
    }

    #[test]
    fn a_version_has_a_suffix_or_none() {
        assert_eq!(version("systemd 252 (252.39-1~deb12u1)\n+PAM"), Some(252));
        assert_eq!(version("systemd v258-rc1"), None);
        assert_eq!(version(""), None);
    }
}
