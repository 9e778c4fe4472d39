//! What people type who know other programs: the error suggests what to type.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that read a file, or stdin if it is called `-`.
const FILES: &[&str] = &["--lines", "--file"];

/// Synonyms, and the commands that may be meant.
const OTHERS: &[(&[&str], &[&str])] = &[
    (&["purge", "clear", "truncate", "drop"], &["delete", "dead purge"]),
    (&["rm", "remove", "del"], &["delete"]),
    (&["enqueue", "add", "put", "send"], &["push"]),
    (&["dequeue", "take", "get", "receive"], &["pop"]),
    (&["ls", "queues"], &["list"]),
    (&["stats", "info", "ps"], &["status", "len"]),
    (&["reserve"], &["lease"]),
    (&["acknowledge", "complete", "finish"], &["ack"]),
    (&["start", "daemon", "serve", "restart"], &["run"]),
    (&["worker", "consume"], &["work", "run"]),
    (&["retry"], &["item retry", "dead retry", "requeue"]),
    (&["cancel", "abort"], &["item cancel"]),
    (&["show", "inspect", "job"], &["item show"]),
    (&["cron"], &["schedule"]),
    (&["monitor", "watch"], &["top", "page"]),
    (&["dashboard", "web", "ui"], &["page"]),
    (&["failed", "retry-all"], &["dead list", "dead retry"]),
];

/// Options that other programs have and ours have not, the command that they are given to (any, if empty), and what to write.
const FOREIGN_OPTIONS: &[(&[&str], &str, &str)] = &[
    (&["--queue"], "", "the queue is the first argument, as in 'kvqueue push QUEUE ITEM'"),
    (&["--in"], "push", "write '--delay 5m' to have an item handled later"),
    (
        &["--retries", "--retry"],
        "push",
        "how often items are tried is 'retry.max-attempts' of the queue's configuration",
    ),
    (&["--watch", "-w"], "status", "'kvqueue top' shows it again and again"),
    (&["-c"], "", "write '--config FILE', or set KVQUEUE_CONFIG"),
    (
        &["-d", "--daemon", "--background", "--detach"],
        "run",
        "it stays in the foreground; have systemd start it (kvqueue.service), or a shell with '&'",
    ),
    (&["--at", "--host", "--server"], "work", "write '--url http://HOST:PORT' to name a daemon"),
    (&["--url", "--host", "--server"], "status", "write '--at HOST:PORT' to name a daemon"),
];

/// Of `kvqueue run QUEUE`.
const RUN: &str = "it handles the queues of the configuration; for one without it write 'kvqueue run --queue QUEUE --handler HANDLER'";

/// Adds to the error the command or the option of kvqueue for a synonym, or how to read stdin.
pub(super) fn suggest(mut error: clap::Error) -> clap::Error {
    let of_file = |option: &&&str| matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with(**option));
    if error.kind() == ErrorKind::InvalidValue
        && let Some(option) = FILES.iter().find(of_file)
    {
        let tip = format!("to read standard input, write '{option} -'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(ours) = ours(name)
    {
        let ours = ours.iter().map(|&command| command.to_owned()).collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(ours));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && let Some(tip) = instead(argument, &error)
    {
        // clap's own tips are about options whose names look alike.
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What to write instead of an argument that a command does not have.
fn instead(argument: &str, error: &clap::Error) -> Option<&'static str> {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let is_of = |command: &str| usage.contains(&format!("kvqueue {command}"));
    if !argument.starts_with('-') {
        return is_of("run").then_some(RUN);
    }
    let name = argument.split('=').next().unwrap_or(argument);
    let found = FOREIGN_OPTIONS.iter().find(|(names, command, _)| names.contains(&name) && is_of(command));
    found.map(|(_, _, tip)| *tip)
}

fn ours(name: &str) -> Option<&'static [&'static str]> {
    OTHERS.iter().find(|(names, _)| names.contains(&name)).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command line that is wrong is answered with.
    fn said(line: &str) -> String {
        suggest(crate::cli::command().try_get_matches_from(line.split(' ')).unwrap_err()).to_string()
    }

    #[test]
    fn options_of_other_programs_are_answered_with_what_to_write() {
        for (line, tip) in [
            ("kvqueue push --queue mails hello", "the queue is the first argument"),
            ("kvqueue push mails hello --in 5m", "--delay 5m"),
            ("kvqueue status --watch", "kvqueue top"),
            ("kvqueue run -c kvqueue.toml", "--config FILE"),
            ("kvqueue run -d", "systemd"),
            ("kvqueue run mails", "kvqueue run --queue QUEUE"),
            ("kvqueue work mails --at=http://localhost:7420 -- cat", "--url http://HOST:PORT"),
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument") && said.contains(tip), "{line}: {said}");
            assert_eq!(said.matches("tip:").count(), 1, "{line}: {said}");
        }
        // Others keep clap's.
        assert!(said("kvqueue push mails hello --dela 5m").contains("--delay"));
    }

    #[test]
    fn foreign_command_names_map_to_existing_commands() {
        let cli = crate::cli::command();
        for (names, ours) in OTHERS {
            assert!(names.iter().all(|name| cli.find_subcommand(name).is_none()), "{names:?}");
            for command in *ours {
                let mut words = command.split(' ');
                let found = words.try_fold(&cli, |above, word| above.find_subcommand(word));
                assert!(found.is_some(), "{command}");
            }
        }
    }
}
