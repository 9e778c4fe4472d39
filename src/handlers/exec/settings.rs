//! The settings of a command.

use std::{num::NonZeroU64, process::ExitStatus, time::Duration};

use serde::{Deserialize, Serialize};

use crate::config::{duration, size};
use crate::handlers::{LONGEST_THROTTLE, Outcome, ScopeName, Settings, SettingsError, check_lists};

const FIX: &str = "write command = [\"program\", \"argument\"] in handler-config";

/// How long a process may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a process without an item stays.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Keys for one mode alone.
const ITEM_KEYS: [&str; 8] = [
    "dead-exit-codes",
    "release-exit-codes",
    "throttle-exit-codes",
    "throttle-for",
    "throttle-scope",
    "result",
    "progress",
    "log-output",
];
const WORKER_KEYS: [&str; 5] =
    ["max-items", "max-memory", "start-timeout", "idle-timeout", "heartbeat-timeout"];

/// How items reach the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// One process for each item.
    #[default]
    Item,
    /// Processes stay, and take one item after the other.
    Worker,
}

/// Where the result of a done item comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResultFrom {
    /// It has none.
    #[default]
    None,
    /// The standard output of its command.
    Stdout,
}

/// Where the progress of an item comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProgressFrom {
    /// The last line that its command has written.
    #[default]
    LastLine,
    /// Lines of their own in the error output of its command.
    Stderr,
    /// Nothing is known of it.
    None,
}

/// The settings of `exec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ExecSettings {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// How items reach it.
    #[serde(default)]
    pub(super) mode: Mode,
    /// The most bytes of error output that are kept of a failing command; and of each stream of a command, or of a process during one item, that
    /// are logged.
    #[serde(default = "default_stderr_limit", with = "size")]
    pub(super) stderr_limit: u64,
    /// Exit codes that make the item a dead letter.
    #[serde(default = "default_dead_exit_codes")]
    dead_exit_codes: Vec<i32>,
    /// Exit codes that give the item back.
    #[serde(default)]
    release_exit_codes: Vec<i32>,
    /// Exit codes by which no item of a scope starts for a time.
    #[serde(default)]
    throttle_exit_codes: Vec<i32>,
    #[serde(default = "default_throttle_for", with = "duration")]
    throttle_for: Duration,
    #[serde(default)]
    throttle_scope: ScopeName,
    #[serde(default)]
    pub(super) result: ResultFrom,
    #[serde(default)]
    pub(super) progress: ProgressFrom,
    /// Whether the log gets the lines that the command writes.
    #[serde(default)]
    pub(super) log_output: bool,
    /// A process is replaced after this number of items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_items: Option<NonZeroU64>,
    /// A process that has more resident memory is replaced after its item.
    #[serde(default, with = "size::optional", skip_serializing_if = "Option::is_none")]
    pub(super) max_memory: Option<u64>,
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    start_timeout: Option<Duration>,
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    idle_timeout: Option<Duration>,
    /// The longest time without a heartbeat of a process that has an item; `None`: without a limit.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat_timeout: Option<Duration>,
}

fn default_stderr_limit() -> u64 {
    4096
}

/// `EX_DATAERR` of `sysexits.h`: the input was wrong, so it will be wrong again.
fn default_dead_exit_codes() -> Vec<i32> {
    vec![65]
}

fn default_throttle_for() -> Duration {
    Duration::from_secs(30)
}

impl ExecSettings {
    pub(super) fn read(settings: &Settings) -> Result<Self, SettingsError> {
        let read: Self = settings.parse().map_err(|SettingsError(problem)| {
            let about_command = problem.starts_with("command") || problem.starts_with("missing");
            SettingsError(if about_command { format!("{problem}; {FIX}") } else { problem })
        })?;
        if read.command.first().is_none_or(String::is_empty) {
            let problem = format!("it names no program; {FIX}");
            return Err(SettingsError::text("command", &read.command, problem));
        }
        let (wrong_keys, mode, reason) = match read.mode {
            Mode::Item => (&WORKER_KEYS[..], "worker", "only mode = \"worker\" has this setting"),
            Mode::Worker => (&ITEM_KEYS[..], "item", "a process that stays writes each outcome as a line"),
        };
        for key in wrong_keys {
            if let Some(value) = settings.written(key) {
                let problem = format!("{reason}; remove it, or write mode = {mode:?}");
                return Err(SettingsError::value(key, value, problem));
            }
        }
        read.check_worker()?;
        if read.throttle_for.is_zero() || read.throttle_for > LONGEST_THROTTLE {
            let written = duration::format(read.throttle_for);
            return Err(SettingsError::text("throttle-for", &written, "write 1ms to 24h"));
        }
        let codes = [
            ("dead-exit-codes", &*read.dead_exit_codes),
            ("release-exit-codes", &*read.release_exit_codes),
            ("throttle-exit-codes", &*read.throttle_exit_codes),
        ];
        check_lists(codes, 1..=255, "write codes from 1 to 255; 0 always means done")?;
        Ok(read)
    }

    fn check_worker(&self) -> Result<(), SettingsError> {
        if self.max_memory == Some(0) {
            let problem = "every process uses more memory than that; write a size such as \"512MiB\", or leave the key out";
            return Err(SettingsError::text("max-memory", "0B", problem));
        }
        let times = [
            ("start-timeout", self.start_timeout, "become ready"),
            ("idle-timeout", self.idle_timeout, "be idle"),
            ("heartbeat-timeout", self.heartbeat_timeout, "send a heartbeat"),
        ];
        match times.iter().find(|(_, time, _)| *time == Some(Duration::ZERO)) {
            None => Ok(()),
            Some((key, _, what)) => {
                let fix = "write a time such as \"30s\", or leave the key out";
                Err(SettingsError::text(key, "0s", format_args!("a process cannot {what} in no time; {fix}")))
            }
        }
    }

    /// How long a process may take until it is ready.
    pub(super) fn start_timeout(&self) -> Duration {
        self.start_timeout.unwrap_or(START_TIMEOUT)
    }

    /// How long a process without an item stays.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.idle_timeout.unwrap_or(IDLE_TIMEOUT)
    }

    /// The outcome for an item whose command ended with this status and output.
    pub(super) fn outcome(&self, status: ExitStatus, said: &str) -> Outcome {
        let reason = || match said.trim_end() {
            "" => format!("{} failed with {status}", self.command[0]),
            said => format!("{} failed with {status}: {said}", self.command[0]),
        };
        let is_one_of = |codes: &[i32]| status.code().is_some_and(|code| codes.contains(&code));
        if status.success() {
            Outcome::Done
        } else if is_one_of(&self.dead_exit_codes) {
            Outcome::Dead(reason())
        } else if is_one_of(&self.release_exit_codes) {
            Outcome::Release
        } else if is_one_of(&self.throttle_exit_codes) {
            Outcome::throttle(self.throttle_scope.into(), self.throttle_for, reason())
        } else {
            Outcome::Retry(reason())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use kvqueue_queue::Scope;

    use super::*;
    use crate::config::Config;

    fn settings(text: &str) -> ExecSettings {
        ExecSettings::read(&text.parse().unwrap()).unwrap()
    }

    fn exited(settings: &ExecSettings, code: i32) -> Outcome {
        settings.outcome(ExitStatus::from_raw(code << 8), "so\n")
    }

    #[test]
    fn an_exit_code_is_an_outcome() {
        let settings = settings("command = ['x']\nrelease-exit-codes = [75]");
        assert_eq!(exited(&settings, 0), Outcome::Done);
        assert_eq!(exited(&settings, 1), Outcome::retry("x failed with exit status: 1: so"));
        assert_eq!(exited(&settings, 65), Outcome::dead("x failed with exit status: 65: so"));
        assert_eq!(exited(&settings, 75), Outcome::Release);
        assert_eq!(exited(&settings, 76), Outcome::retry("x failed with exit status: 76: so"));
        let killed = settings.outcome(ExitStatus::from_raw(9), "");
        assert_eq!(killed, Outcome::retry("x failed with signal: 9 (SIGKILL)"));
    }

    #[test]
    fn an_exit_code_may_throttle() {
        let settings = settings(
            "command = ['x']\nthrottle-exit-codes = [76]\nthrottle-for = '1m'\nthrottle-scope = 'tenant'",
        );
        let wanted =
            Outcome::throttle(Scope::Tenant, Duration::from_mins(1), "x failed with exit status: 76: so");
        assert_eq!(exited(&settings, 76), wanted);
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        let problem = |text: &str| ExecSettings::read(&text.parse().unwrap()).unwrap_err().to_string();
        insta::assert_snapshot!(problem("command = ['x']\ndead-exit-codes = [0, 1]"), @"dead-exit-codes = 0: write codes from 1 to 255; 0 always means done");
        insta::assert_snapshot!(problem("command = ['x']\nrelease-exit-codes = [65]"), @"release-exit-codes = 65: it is in dead-exit-codes, too; remove it from one of them");
        insta::assert_snapshot!(problem("command = ['x']\nrelease-exit-codes = [256]"), @"release-exit-codes = 256: write codes from 1 to 255; 0 always means done");
        insta::assert_snapshot!(problem("command = ['x']\nthrottle-exit-codes = [65]"), @"throttle-exit-codes = 65: it is in dead-exit-codes, too; remove it from one of them");
        insta::assert_snapshot!(problem("command = ['x']\nthrottle-for = '25h'"), @r#"throttle-for = "25h": write 1ms to 24h"#);
        insta::assert_snapshot!(problem("command = ['x']\nthrottle-scope = 'all'"), @"throttle-scope: unknown variant `all`, expected one of `key`, `tenant`, `queue`");
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'worker'\nthrottle-for = '5s'"), @r#"throttle-for = "5s": a process that stays writes each outcome as a line; remove it, or write mode = "item""#);
        insta::assert_snapshot!(problem("command = ['x']\nmax-items = 5"), @r#"max-items = 5: only mode = "worker" has this setting; remove it, or write mode = "worker""#);
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'item'\nidle-timeout = '5s'"), @r#"idle-timeout = "5s": only mode = "worker" has this setting; remove it, or write mode = "worker""#);
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'worker'\ndead-exit-codes = [65]"), @r#"dead-exit-codes = [65]: a process that stays writes each outcome as a line; remove it, or write mode = "item""#);
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'works'"), @r#"mode: unknown variant `works`, expected `item` or `worker`"#);
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'worker'\nmax-items = 0"), @"max-items: invalid value: integer `0`, expected a nonzero u64");
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'worker'\nmax-memory = '0B'"), @r#"max-memory = "0B": every process uses more memory than that; write a size such as "512MiB", or leave the key out"#);
        insta::assert_snapshot!(problem("command = ['x']\nmode = 'worker'\nstart-timeout = '0s'"), @r#"start-timeout = "0s": a process cannot become ready in no time; write a time such as "30s", or leave the key out"#);
        insta::assert_snapshot!(problem("command = ['x']\nstderr-limit = 4096"), @r#"stderr-limit: invalid type: integer `4096`, expected a size such as "8MiB""#);
    }

    #[test]
    fn the_commented_file_and_the_reference_show_every_key_with_its_default() {
        let defaults = toml::Table::try_from(settings("command = ['./send-mail']")).unwrap();
        let shown = include_str!("../../../config/kvqueue.toml").replace("\n#| ", "\n");
        let shown: Config = toml::from_str(&shown).unwrap();
        assert_eq!(shown.queues["emails"].handler_config, defaults);
        let reference = include_str!("../../../docs/config/handlers.md");
        for (key, value) in defaults.iter().filter(|(key, _)| *key != "command") {
            let row = format!("| `{key}` | `{value}` |");
            assert!(reference.contains(&row), "docs/config/handlers.md lacks {row}");
        }
        let settings = settings("command = ['./send-mail']\nmode = 'worker'");
        let time = |time| format!("`{:?}`", duration::format(time));
        let [start, idle] = [settings.start_timeout(), settings.idle_timeout()].map(time);
        let none = "none".to_owned();
        for (key, value) in WORKER_KEYS.iter().zip([&none, &none, &start, &idle, &none]) {
            let row = format!("| `{key}` | {value} |");
            assert!(reference.contains(&row), "docs/config/handlers.md lacks {row}");
        }
    }

    #[test]
    fn dead_exit_codes_may_be_empty() {
        let settings = settings("command = ['x']\ndead-exit-codes = []");
        assert_eq!(exited(&settings, 65), Outcome::retry("x failed with exit status: 65: so"));
    }
}
