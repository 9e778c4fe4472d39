//! How `--help` is laid out; the commands by task, which `docs/COMMANDS.md` lists too.

use std::fmt::Write;

use clap::Command;

/// Tasks, each with its commands. Each command that is shown has one task.
const TASKS: &[(&str, &[&str])] = &[
    ("Begin", &["init", "demo"]),
    ("Push and look", &["push", "pop", "peek", "len", "list", "why"]),
    ("Handle items", &["run", "work", "lease", "extend", "ack"]),
    ("See what a daemon does", &["status", "top", "page", "reload"]),
    ("Change items", &["item", "dead", "requeue", "move", "delete"]),
    ("Say when items run", &["pause", "resume", "limits", "schedule", "batch"]),
    ("Find out what happened", &["history", "audit"]),
    ("Set it up and check it", &["config", "token", "doctor", "recount", "bench", "completions"]),
    ("Take items elsewhere", &["export", "import", "backup", "migrate"]),
];

/// The same command line; its help lists the commands by task.
pub(super) fn by_task(command: Command) -> Command {
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = TASKS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut tasks = String::new();
    for (task, names) in TASKS {
        _ = writeln!(tasks, "{header}{task}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            _ = writeln!(tasks, "  {literal}{name:width$}{literal:#}  {about}");
        }
        tasks.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{tasks}{header}Options of every command:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// The same command line; the help of each command begins with its usage, and what explains it comes next.
pub(super) fn usage_first(command: Command) -> Command {
    const TEMPLATE: &str = "{usage-heading} {usage}\n\n{about-with-newline}\n{all-args}{after-help}";
    command.mut_subcommands(|below| usage_first(below).help_template(TEMPLATE))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_command_that_is_shown_has_one_task() {
        let command = crate::cli::command();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
        let mut shown: Vec<_> = shown.collect();
        let mut with_task: Vec<_> = TASKS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        with_task.sort_unstable();
        assert_eq!(with_task, shown);
    }

    /// A row for each command that can be run: its usage, and the first line of its help.
    fn rows(page: &mut String, command: &Command) {
        let is_shown = |it: &&Command| !it.is_hide_set() && it.get_name() != "help";
        let below: Vec<_> = command.get_subcommands().filter(is_shown).collect();
        if below.is_empty() || !command.is_subcommand_required_set() {
            let usage = command.clone().render_usage().to_string();
            let usage = usage.trim_start_matches("Usage: ").replace(" [OPTIONS]", "");
            let usage = usage.lines().next().unwrap_or_default().replace('|', "\\|");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
            _ = writeln!(page, "| `{usage}` | {about} |");
        }
        below.into_iter().for_each(|it| rows(page, it));
    }

    const HEAD: &str = "# The commands\n\n\
        For users who look for a command. `kvqueue COMMAND --help` has its options, `kvqueue --help` those of every command and the exit codes, \
        which [their page](config/process.md#exit-codes) explains.\n\n\
        Standard output is data, standard error the rest. Most commands open the database and need no daemon.\n\
        `kvqueue` makes this page from what it knows of itself; a test compares them.\n";

    #[test]
    fn the_page_of_commands_says_what_the_commands_are() {
        let mut root = crate::cli::command().disable_help_subcommand(true);
        root.build();
        let mut page = HEAD.to_owned();
        for (task, names) in TASKS {
            _ = write!(page, "\n## {task}\n\n| command | |\n|---|---|\n");
            names.iter().filter_map(|name| root.find_subcommand(name)).for_each(|it| rows(&mut page, it));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/COMMANDS.md");
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        // The comment of a type that several commands share is not the help of either.
        let mut helps: Vec<_> =
            page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once("` | ")?.1)).collect();
        let number = helps.len();
        helps.sort_unstable();
        helps.dedup();
        assert_eq!(helps.len(), number, "two commands have the same help");
        assert_eq!(
            written, page,
            "docs/COMMANDS.md is not up to date; write it with INSTA_UPDATE=always cargo test --lib cli::tasks"
        );
    }
}
