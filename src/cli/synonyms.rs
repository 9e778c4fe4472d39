//! What people type who know other programs: the error suggests what to type.

use std::{error::Error, num::ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that read a file, or stdin if it is called `-`.
const FILES: &[&str] = &["--lines", "--file"];

/// Synonyms, and the commands that may be meant.
const OTHERS: &[(&[&str], &[&str])] = &[
    (&["purge", "clear", "truncate", "drop"], &["delete", "dead purge"]),
    (&["rm", "remove", "del"], &["delete"]),
    (&["enqueue", "add", "put", "send"], &["push"]),
    (&["dequeue", "take", "get"], &["pop"]),
    (&["ls", "queues"], &["list"]),
    (&["stats", "info", "ps"], &["status", "len"]),
    (&["reserve", "receive"], &["lease"]),
    (&["workers", "consumers"], &["status"]),
    (&["acknowledge", "complete", "finish"], &["ack"]),
    (&["start", "daemon", "serve", "restart"], &["run"]),
    (&["worker", "consume"], &["work", "run"]),
    (&["retry"], &["requeue"]),
    (&["cancel", "abort"], &["item cancel"]),
    (&["show", "inspect", "job"], &["item show"]),
    (&["cron"], &["schedule"]),
    (&["monitor", "watch"], &["top", "page"]),
    (&["dashboard", "web", "ui"], &["page"]),
    (&["failed", "retry-all"], &["dead list", "requeue"]),
];

/// Commands that other programs have and ours have not, and what to write or do.
const FOREIGN_COMMANDS: &[(&[&str], &str)] = &[
    (
        &["stop", "shutdown", "quit", "kill"],
        "a daemon stops at Ctrl-C, and one of systemd by 'systemctl stop kvqueue'",
    ),
    (
        &["log", "logs"],
        "a daemon logs to standard error; 'journalctl -u kvqueue' shows the log of one of systemd",
    ),
];

/// Options that other programs have and ours have not, the command that they are given to (any, if empty), and what to write.
const FOREIGN_OPTIONS: &[(&[&str], &str, &str)] = &[
    (&["-Q", "--queues", "--concurrency", "--workers", "--threads"], "run", CONSUMERS),
    (&["--port", "--host", "--bind"], "run", "the address is 'http.listen' of the configuration"),
    (
        &["--loglevel", "--log-level", "-l"],
        "",
        "set KVQUEUE_LOG__LEVEL=debug, or 'log.level' of the configuration",
    ),
    (&["--queue"], "", "the queue is the first argument, as in 'kvqueue push QUEUE ITEM'"),
    (
        &["--in", "--countdown", "--eta", "--defer", "--when"],
        "push",
        "write '--delay 5m' or '--at TIME' to have an item handled later",
    ),
    (
        &["--retries", "--retry", "--max-attempts", "--max-retries", "--attempts", "--tries"],
        "push",
        "how often items are tried is 'retry.max-attempts' of the queue's configuration",
    ),
    (
        &["--message-group-id", "--group", "--group-id", "--partition-key", "--customer", "--tenant"],
        "push",
        "write '--key KEY', in a queue of kind \"keyed\"",
    ),
    (
        &["--body", "--message", "--message-body", "--payload", "--data"],
        "push",
        "the item is the second argument, as in 'kvqueue push QUEUE ITEM'; '--file FILE' reads it",
    ),
    (&["--expires", "--expire", "--expires-in"], "push", "write '--ttl 1h' to have an item expire"),
    (&["--concurrency", "--max"], "limits", "write '--running N'"),
    (&["--count", "--limit", "--max", "--num"], "", "write '-n N'"),
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

const CONSUMERS: &str = "it handles the queues of the configuration, with as many 'consumers' as each has there; '--queue NAME' names one without it";

/// Of `kvqueue status QUEUE`.
const STATUS: &str = "it is about the daemon and all of its queues; 'kvqueue len QUEUE' and 'kvqueue peek QUEUE' are about one";

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
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, tip)) = FOREIGN_COMMANDS.iter().find(|(names, _)| names.contains(&name.as_str()))
    {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*tip).into()]));
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(group) = group_of(&error)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
    {
        let tip = format!("the queue comes behind the verb, as in 'kvqueue {group} list {name}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if error.kind() == ErrorKind::ValueValidation
        && error.source().is_some_and(|source| source.is::<ParseIntError>())
    {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec!["write a whole number".into()]));
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
        return if is_of("run") { Some(RUN) } else { is_of("status").then_some(STATUS) };
    }
    let name = argument.split('=').next().unwrap_or(argument);
    let found = FOREIGN_OPTIONS.iter().find(|(names, command, _)| names.contains(&name) && is_of(command));
    found.map(|(_, _, tip)| *tip)
}

/// The group of commands about queues in which a verb is missing.
fn group_of(error: &clap::Error) -> Option<&'static str> {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    ["limits", "dead", "schedule", "batch"]
        .into_iter()
        .find(|group| usage.contains(&format!("kvqueue {group} ")))
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
            ("kvqueue run --concurrency 4", "'consumers'"),
            ("kvqueue push mails x --max-attempts 3", "retry.max-attempts"),
            ("kvqueue push mails x --countdown 10", "--delay 5m"),
            ("kvqueue push mails x --message-group-id ann", "--key KEY"),
            ("kvqueue peek mails --count 3", "-n N"),
            ("kvqueue limits set mails * --concurrency 1", "--running N"),
            ("kvqueue status mails", "kvqueue len QUEUE"),
            ("kvqueue work mails --at=http://localhost:7420 -- cat", "--url http://HOST:PORT"),
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument") && said.contains(tip), "{line}: {said}");
            assert_eq!(said.matches("tip:").count(), 1, "{line}: {said}");
        }
        let said_of_order = said("kvqueue limits mails set * --running 1");
        assert!(said_of_order.contains("as in 'kvqueue limits list mails'"), "{said_of_order}");
        // Others keep clap's.
        assert!(said("kvqueue push mails hello --dela 5m").contains("--delay"));
    }

    #[test]
    fn commands_of_other_programs_are_answered_with_what_to_do() {
        for (line, tip) in [
            ("kvqueue receive mails", "'lease'"),
            ("kvqueue workers", "'status'"),
            ("kvqueue stop", "Ctrl-C"),
        ] {
            let said = said(line);
            assert!(said.contains("unrecognized subcommand") && said.contains(tip), "{line}: {said}");
        }
        let said = said("kvqueue limits set mails * --running one");
        assert!(said.contains("write a whole number"), "{said}");
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
