//! The program's commands, as its help lists them.

use super::{Database, run};

/// How a help calls the list of commands. That of the program has a list for each task, and its options after the last one.
const HEADINGS: [&str; 3] = ["Commands:", "Cells:", FIRST_TASK];
const FIRST_TASK: &str = "Begin:";
const OPTIONS: &str = "Options of every command:";

/// All commands that help lists, each with those above it: `kvqueue`, `kvqueue dead`, `kvqueue dead list`.
pub(crate) fn commands() -> Vec<String> {
    let db = Database::embedded();
    let mut commands = vec!["kvqueue".to_owned()];
    let mut next = 0;
    while next < commands.len() {
        let command = commands[next].clone();
        commands.extend(below(&db, &command).iter().map(|name| format!("{command} {name}")));
        next += 1;
    }
    assert!(commands.len() > 20, "{commands:?}");
    commands
}

/// The commands that a command's help lists.
fn below(db: &Database, command: &str) -> Vec<String> {
    let words: Vec<_> = command.split(' ').skip(1).chain(["--help"]).collect();
    let help = run(db, &words).ok();
    let listed = help.lines().skip_while(|line| !HEADINGS.contains(line)).skip(1);
    let by_task = help.lines().any(|line| line == FIRST_TASK);
    let lines = listed.take_while(|line| line.starts_with("  ") || by_task && *line != OPTIONS);
    let lines = lines.filter(|line| line.starts_with("  "));
    // What a help says on goes on further to the right.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}
