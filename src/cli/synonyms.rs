//! Synonyms of commands, as other programs have them: the error for a synonym suggests the command of kvqueue.

use clap::error::{ContextKind, ContextValue, ErrorKind};

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
    (&["start", "daemon", "serve"], &["run"]),
    (&["worker", "consume"], &["work", "run"]),
    (&["retry"], &["item retry", "dead retry", "requeue"]),
    (&["cancel", "abort"], &["item cancel"]),
    (&["show", "inspect"], &["item show"]),
];

/// Adds to the error the command of kvqueue for a synonym.
pub(super) fn suggest(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(ours) = ours(name)
    {
        let ours = ours.iter().map(|&command| command.to_owned()).collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(ours));
    }
    error
}

fn ours(name: &str) -> Option<&'static [&'static str]> {
    OTHERS.iter().find(|(names, _)| names.contains(&name)).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

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
