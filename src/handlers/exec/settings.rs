//! The settings of a command.

use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use crate::config::size;
use crate::handlers::{Outcome, Settings, SettingsError};

const FIX: &str = "write command = [\"program\", \"argument\"] in handler-config";

/// The settings of `exec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ExecSettings {
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// The most bytes that a reason has of a failing command's error output.
    #[serde(default = "default_stderr_limit", with = "size")]
    pub(super) stderr_limit: u64,
    /// Exit codes that say that no retry helps.
    #[serde(default = "default_dead_exit_codes")]
    dead_exit_codes: Vec<i32>,
    /// Exit codes that give the item back.
    #[serde(default)]
    release_exit_codes: Vec<i32>,
}

fn default_stderr_limit() -> u64 {
    4096
}

/// `EX_DATAERR` of `sysexits.h`: the input was wrong, so it will be wrong again.
fn default_dead_exit_codes() -> Vec<i32> {
    vec![65]
}

impl ExecSettings {
    pub(super) fn read(settings: &Settings) -> Result<Self, SettingsError> {
        let read: Self = settings.parse().map_err(|SettingsError(problem)| {
            let about_command = problem.starts_with("command") || problem.starts_with("missing");
            SettingsError(if about_command { format!("{problem}; {FIX}") } else { problem })
        })?;
        if read.command.first().is_none_or(String::is_empty) {
            return Err(SettingsError(format!("command = {:?}: it names no program; {FIX}", read.command)));
        }
        check_codes("dead-exit-codes", &read.dead_exit_codes)?;
        check_codes("release-exit-codes", &read.release_exit_codes)?;
        if let Some(code) = read.dead_exit_codes.iter().find(|code| read.release_exit_codes.contains(code)) {
            let problem = "it is one of dead-exit-codes, too; remove it from one of them";
            return Err(SettingsError(format!("release-exit-codes = {code}: {problem}")));
        }
        Ok(read)
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
        } else {
            Outcome::Retry(reason())
        }
    }
}

fn check_codes(key: &str, codes: &[i32]) -> Result<(), SettingsError> {
    match codes.iter().find(|code| !(1..=255).contains(*code)) {
        None => Ok(()),
        Some(code) => {
            Err(SettingsError(format!("{key} = {code}: write codes from 1 to 255; 0 always means done")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

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
        let killed = settings.outcome(ExitStatus::from_raw(9), "");
        assert_eq!(killed, Outcome::retry("x failed with signal: 9 (SIGKILL)"));
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        let problem = |text: &str| ExecSettings::read(&text.parse().unwrap()).unwrap_err().to_string();
        insta::assert_snapshot!(problem("command = ['x']\ndead-exit-codes = [0, 1]"), @"dead-exit-codes = 0: write codes from 1 to 255; 0 always means done");
        insta::assert_snapshot!(problem("command = ['x']\nrelease-exit-codes = [65]"), @"release-exit-codes = 65: it is one of dead-exit-codes, too; remove it from one of them");
        insta::assert_snapshot!(problem("command = ['x']\nrelease-exit-codes = [256]"), @"release-exit-codes = 256: write codes from 1 to 255; 0 always means done");
        insta::assert_snapshot!(problem("command = ['x']\nstderr-limit = 4096"), @r#"stderr-limit: invalid type: integer `4096`, expected a size such as "8MiB""#);
    }

    #[test]
    fn the_commented_file_and_the_reference_show_every_key_with_its_default() {
        let defaults = toml::Table::try_from(settings("command = ['./send-mail']")).unwrap();
        let shown = include_str!("../../../config/kvqueue.toml").replace("\n#| ", "\n");
        let shown: Config = toml::from_str(&shown).unwrap();
        assert_eq!(shown.queues["emails"].handler_config, defaults);
        let reference = include_str!("../../../docs/CONFIG.md");
        for (key, value) in defaults.iter().filter(|(key, _)| *key != "command") {
            let row = format!("| `{key}` | `{value}` |");
            assert!(reference.contains(&row), "docs/CONFIG.md lacks {row}");
        }
    }

    #[test]
    fn dead_exit_codes_may_be_empty() {
        let settings = settings("command = ['x']\ndead-exit-codes = []");
        assert_eq!(exited(&settings, 65), Outcome::retry("x failed with exit status: 65: so"));
    }
}
