//! systemd's unit: whether it runs this program with this configuration, and allows a stop the time that it needs.
//!
//! `systemctl show` says what systemd has read of the unit, with its drop-ins and templates. Where systemd
//! does not run, nothing is checked.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use jiff::{Span, SpanRelativeTo};

use super::findings::Findings;
use crate::config::duration;

const ABOUT: &str = "unit";

/// The unit that the packages install.
const USUAL: &str = "kvqueue.service";

/// Where an administrator's units are.
const DIRECTORY: &str = "/etc/systemd/system";

/// How much longer than the shutdown timeout a stop may take: handlers are cancelled, and their items released.
const DRAIN_TAIL: Duration = Duration::from_secs(10);

/// The properties that are asked for.
const PROPERTIES: &str = "LoadState,Type,ExecStart,TimeoutStopUSec";

/// The settings that the unit must fit.
struct Wanted<'w> {
    config: Option<&'w Path>,
    shutdown_timeout: Duration,
    is_program: fn(&Path) -> bool,
}

/// The output of `systemctl show`: a line `NAME=VALUE` for each property.
struct Properties(String);

impl Properties {
    fn of(unit: &str) -> io::Result<Self> {
        let output =
            Command::new("systemctl").args(["show", "--no-pager", "-p", PROPERTIES, "--", unit]).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(text.lines().next().unwrap_or("it failed").to_owned()));
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let values = self.0.lines().filter_map(|line| line.split_once('='));
        values.filter(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value).next()
    }

    /// The words of the command that starts the service.
    fn command(&self) -> Vec<&str> {
        let words = self.get("ExecStart").and_then(|it| it.split_once("argv[]=")).map(|(_, words)| words);
        let words = words.map(|words| words.split(" ;").next().unwrap_or(words));
        words.into_iter().flat_map(str::split_whitespace).collect()
    }

    /// How long systemd waits for a stop; without end if it always waits.
    fn stop_time(&self) -> Option<Duration> {
        match self.get("TimeoutStopUSec")? {
            "infinity" => Some(Duration::MAX),
            text => {
                let span: Span = text.parse().ok()?;
                span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
            }
        }
    }
}

/// Checks the unit of that name, or the usual one if it is installed.
pub(super) fn look(
    name: Option<&str>,
    config: Option<&Path>,
    shutdown_timeout: Duration,
    findings: &mut Findings,
) {
    let unit = name
        .map_or_else(|| USUAL.to_owned(), |name| format!("{}.service", name.trim_end_matches(".service")));
    let properties = match Properties::of(&unit) {
        Ok(properties) => properties,
        Err(error) => {
            let text = format!("{unit} is not checked: systemctl show: {error}");
            match name {
                Some(_) => findings.note(ABOUT, text, "run doctor where systemd runs"),
                None => findings.fine(ABOUT, text),
            }
            return;
        }
    };
    if properties.get("LoadState") == Some("not-found") {
        let text = format!("{unit} is not installed");
        match name {
            Some(_) => findings.problem(ABOUT, text, format!("put it into {DIRECTORY}")),
            None => findings.fine(ABOUT, text),
        }
        return;
    }
    judge(&unit, &properties, &Wanted { config, shutdown_timeout, is_program }, findings);
}

fn judge(unit: &str, properties: &Properties, wanted: &Wanted<'_>, findings: &mut Findings) {
    let words = properties.command();
    let Some(program) = words.first() else {
        findings.problem(
            ABOUT,
            format!("{unit} starts nothing"),
            "give it ExecStart=/usr/bin/kvqueue run --config FILE",
        );
        return;
    };
    if !(wanted.is_program)(Path::new(program)) {
        let advice = "install kvqueue there, or set ExecStart= with systemctl edit";
        findings.problem(ABOUT, format!("{unit} starts {program}, which is not a program here"), advice);
        return;
    }
    if let Some(kind) = properties.get("Type").filter(|kind| !["notify", "notify-reload"].contains(kind)) {
        // A systemd before 253 does not know `notify-reload`, and takes `simple` for it.
        findings.problem(
            ABOUT,
            format!("{unit} has Type={kind}, so systemd does not know when the daemon is ready"),
            format!(
                "set Type=notify-reload; before systemd 253, put old-systemd.conf into {DIRECTORY}/{unit}.d"
            ),
        );
    }
    let file = config_of(&words);
    if file.as_deref() != wanted.config {
        let shown =
            file.map_or_else(|| "no configuration file".to_owned(), |file| file.display().to_string());
        findings.note(
            ABOUT,
            format!("{unit} runs with {shown}"),
            "give doctor the same with --config, to see whether they fit",
        );
        return;
    }
    let Some(stop) = properties.stop_time() else {
        let shown = properties.get("TimeoutStopUSec").unwrap_or("nothing");
        let text = format!("{unit}: systemctl shows {shown:?} for TimeoutStopUSec, which is not a time");
        findings.problem(ABOUT, text, "write it as in TimeoutStopSec=45");
        return;
    };
    if stop >= wanted.shutdown_timeout + DRAIN_TAIL {
        findings.fine(ABOUT, format!("{unit} starts {program}, and gives a stop the time it needs"));
        return;
    }
    let (stop, shutdown_timeout) = (duration::format(stop), duration::format(wanted.shutdown_timeout));
    let least = (wanted.shutdown_timeout + DRAIN_TAIL).as_secs();
    findings.problem(
        ABOUT,
        format!("{unit} kills a stop after {stop}, and shutdown-timeout is {shutdown_timeout}"),
        format!("set TimeoutStopSec={least} or more with systemctl edit, or lower shutdown-timeout"),
    );
}

/// The file in `--config FILE` or `--config=FILE`.
fn config_of(words: &[&str]) -> Option<PathBuf> {
    let after = words.iter().position(|word| *word == "--config").and_then(|place| words.get(place + 1));
    let file = after.copied().or_else(|| words.iter().find_map(|word| word.strip_prefix("--config=")));
    file.map(PathBuf::from)
}

/// Whether it is a file that somebody may run.
fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The properties of the unit that comes with kvqueue, with some words replaced.
    fn shown(replaced: &[(&str, &str)]) -> Properties {
        let text = "Type=notify-reload\nTimeoutStopUSec=45s\n\
            ExecStart={ path=/usr/bin/kvqueue ; argv[]=/usr/bin/kvqueue run --config /etc/kvqueue/kvqueue.toml ; \
            ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n\
            LoadState=loaded\n";
        let replace = |text: String, (from, to): &(&str, &str)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        };
        Properties(replaced.iter().fold(text.to_owned(), replace))
    }

    fn judged(replaced: &[(&str, &str)], shutdown_timeout: u64) -> String {
        let wanted = Wanted {
            config: Some(Path::new("/etc/kvqueue/kvqueue.toml")),
            shutdown_timeout: Duration::from_secs(shutdown_timeout),
            is_program: |program| program == Path::new("/usr/bin/kvqueue"),
        };
        let mut findings = Findings::default();
        judge(USUAL, &shown(replaced), &wanted, &mut findings);
        findings.lines()
    }

    #[test]
    fn the_packaged_unit_is_reported_as_fine() {
        let fits = judged(&[], 30);
        insta::assert_snapshot!(fits, @"unit      fine     kvqueue.service starts /usr/bin/kvqueue, and gives a stop the time it needs");
        assert_eq!(judged(&[("notify-reload", "notify")], 30), fits);
        assert_eq!(judged(&[("=45s", "=infinity")], 30), fits);
    }

    #[test]
    fn a_unit_that_does_not_fit_is_reported_with_the_fix() {
        insta::assert_snapshot!(judged(&[], 60), @"unit      PROBLEM  kvqueue.service kills a stop after 45s, and shutdown-timeout is 1m; set TimeoutStopSec=70 or more with systemctl edit, or lower shutdown-timeout");
        insta::assert_snapshot!(judged(&[("=45s", "=soon")], 30), @r#"unit      PROBLEM  kvqueue.service: systemctl shows "soon" for TimeoutStopUSec, which is not a time; write it as in TimeoutStopSec=45"#);
        insta::assert_snapshot!(judged(&[("notify-reload", "simple")], 30), @r"
        unit      PROBLEM  kvqueue.service has Type=simple, so systemd does not know when the daemon is ready; set Type=notify-reload; before systemd 253, put old-systemd.conf into /etc/systemd/system/kvqueue.service.d
        unit      fine     kvqueue.service starts /usr/bin/kvqueue, and gives a stop the time it needs
        ");
        insta::assert_snapshot!(judged(&[("argv[]=/usr/bin", "argv[]=/opt")], 30), @"unit      PROBLEM  kvqueue.service starts /opt/kvqueue, which is not a program here; install kvqueue there, or set ExecStart= with systemctl edit");
        insta::assert_snapshot!(judged(&[("--config /etc/kvqueue/kvqueue.toml", "--config=/etc/other.toml")], 30), @"unit      note     kvqueue.service runs with /etc/other.toml; give doctor the same with --config, to see whether they fit");
        insta::assert_snapshot!(judged(&[("ExecStart=", "Other=")], 30), @"unit      PROBLEM  kvqueue.service starts nothing; give it ExecStart=/usr/bin/kvqueue run --config FILE");
    }

    #[test]
    fn times_are_read_as_systemd_shows_them() {
        let stop = |text: &str| shown(&[("45s", text)]).stop_time().map(|time| time.as_secs_f64());
        assert_eq!(stop("1min 30s"), Some(90.0));
        assert_eq!(stop("500ms"), Some(0.5));
        assert_eq!(stop("1d 2h 3min"), Some(93_780.0));
        assert_eq!(stop("1w"), Some(604_800.0));
        assert_eq!(stop("soon"), None);
    }
}
