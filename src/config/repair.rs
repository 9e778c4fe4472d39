//! What can be read of a configuration file that is not TOML, so that a typo in it takes nothing away from commands that do not need the line.

use std::path::Path;

use super::{ConfigError, Fault, Place};

/// The most lines that are left out. More are not a typo.
const MOST: usize = 32;

/// The file without its lines that are not TOML, and the faults. An error if it is not known whether such a line determines where items are.
///
/// Keys of the whole file come before its first table. So they are lost only with a line that has one of them, or that has no key.
pub(super) fn without_broken_lines(
    file: &Path,
    text: &str,
    faults: &mut Vec<Fault>,
) -> Result<String, ConfigError> {
    if text.parse::<toml::Table>().is_ok() {
        return Ok(text.to_owned());
    }
    let mut lines: Vec<&str> = text.lines().collect();
    let (mut first, mut places) = (None, Vec::new());
    for _ in 0..=MOST {
        let text = lines.join("\n");
        let Err(error) = text.parse::<toml::Table>() else {
            faults.extend(places.into_iter().filter_map(|place| {
                let problem = first.clone()?;
                Some(Fault { error: ConfigError::Syntax { path: file.to_owned(), problem }, place })
            }));
            return Ok(text);
        };
        let problem = error.to_string().trim_end().to_owned();
        let line = error.span().map(|span| text.as_bytes()[..span.start.min(text.len())].iter());
        let line = line.map(|before| before.filter(|byte| **byte == b'\n').count());
        let needed = line.and_then(|line| Some((line, needed_by(&lines, line)?)));
        let Some((line, needed)) = needed else {
            let problem = first.unwrap_or(problem);
            return Err(ConfigError::Syntax { path: file.to_owned(), problem });
        };
        first.get_or_insert_with(|| format!("line {}: {}", line + 1, error.message().replace('\n', ", ")));
        let is_header = is_header(lines[line]);
        lines[line] = "";
        // The keys of a table without a name are nowhere.
        let rest = lines[line + 1..].iter_mut().take_while(|it| is_header && !self::is_header(it));
        rest.for_each(|it| *it = "");
        for place in needed {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    Err(ConfigError::Syntax { path: file.to_owned(), problem: first.unwrap_or_default() })
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// Which commands need a line, and the ones behind it that belong elsewhere without it. `None` if it is not known, or all of them do.
fn needed_by(lines: &[&str], at: usize) -> Option<Vec<Place>> {
    let line = lines.get(at)?;
    let own = place(lines, at)?;
    // A header that is no header any more leaves its keys to the table before it.
    let lost = [("queues", Place::Queues), ("http]", Place::Http)].into_iter();
    let lost = lost.filter(|(name, _)| line.contains(name)).map(|(_, place)| place);
    Some(lost.chain([own]).collect())
}

fn place(lines: &[&str], at: usize) -> Option<Place> {
    let line = lines.get(at)?;
    if is_header(line) {
        return of_table(&names(line, ']'));
    }
    let header = lines[..at].iter().rev().find(|line| is_header(line));
    match header.map(|header| names(header, ']')) {
        Some(table) => match &table[..] {
            [queues, name, ..] if queues == "queues" => Some(Place::Queue(name.clone())),
            _ => of_table(&table),
        },
        None => {
            let keys = names(line, '=');
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            // A queue's name may be misspelt here.
            Place::of(&keys).map(|place| match place {
                Place::Daemon if keys.first() == Some(&"queues") => Place::Queues,
                Place::Queue(_) => Place::Queues,
                place => place,
            })
        }
    }
}

/// Which commands need a table of this name, which may be cut off.
fn of_table(names: &[String]) -> Option<Place> {
    match names.first()?.as_str() {
        "queues" => Some(Place::Queues),
        "http" => Some(Place::Http),
        "log" => Some(Place::Daemon),
        _ => None,
    }
}

/// The names of a dotted key or header, up to `end`.
fn names(line: &str, end: char) -> Vec<String> {
    let line = line.trim_start().trim_start_matches('[');
    let key = line.split(end).next().unwrap_or(line);
    let name = |name: &str| name.trim().trim_matches(['"', '\'']).to_owned();
    key.split('.').map(name).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "database = 'embedded:here'\nprefix = 'p'\nhttp.listen = 'off'\nshutdown-timeout = '3s'\n\
        [log]\nlevel = 'debug'\n[queues.a]\nhandler = 'exec'\nhandler-config.command = ['a', 'b']\n\
        [queues.a.retry]\nmax-attempts = 3\n[queues.b]\nhandler = 'log'\n";

    fn repaired(text: &str) -> Result<(toml::Table, Vec<Place>), ConfigError> {
        let mut faults = Vec::new();
        let text = without_broken_lines(Path::new("kvqueue.toml"), text, &mut faults)?;
        Ok((text.parse().unwrap(), faults.into_iter().map(|fault| fault.place).collect()))
    }

    /// Whatever is typed into the file, commands have the right database or none.
    #[test]
    fn no_typo_changes_where_items_are() {
        let good: toml::Table = GOOD.parse().unwrap();
        let (mut went_on, mut refused) = (0, 0);
        for typo in ["", "'", "\"", "[", "]", "=", "{", "#", "\n", ".", ",", "'''", "x", " = "] {
            for at in 0..GOOD.len() {
                for end in [at, at + 1] {
                    let text = format!("{}{typo}{}", &GOOD[..at], &GOOD[end..]);
                    if text.parse::<toml::Table>().is_ok() {
                        continue;
                    }
                    let Ok((table, places)) = repaired(&text) else {
                        refused += 1;
                        continue;
                    };
                    went_on += 1;
                    let same = |key: &str| table.get(key) == good.get(key);
                    assert!(same("database") && same("prefix"), "{text}\n{table}");
                    assert!(same("http") || places.contains(&Place::Http), "{text}\n{table}");
                    let queues = |table: &toml::Table| table.get("queues").cloned();
                    assert!(
                        queues(&table) == queues(&good)
                            || places.iter().any(|place| matches!(place, Place::Queues | Place::Queue(_))),
                        "{text}\n{table}"
                    );
                }
            }
        }
        assert!(went_on > 1_000 && refused > 1_000, "{went_on} {refused}");
    }

    #[test]
    fn a_fault_says_which_commands_need_the_line() {
        let places = |from: &str, to: &str| {
            assert!(GOOD.contains(from));
            repaired(&GOOD.replacen(from, to, 1)).map(|(_, places)| places).ok()
        };
        assert_eq!(places("'3s'", "'3s"), Some(vec![Place::Daemon]));
        assert_eq!(places("'debug'", "debug'"), Some(vec![Place::Daemon]));
        assert_eq!(places("'off'", "'off"), Some(vec![Place::Http]));
        assert_eq!(places("= 'exec'", "'exec'"), Some(vec![Place::Queue("a".to_owned())]));
        assert_eq!(places("max-attempts =", "max-attempts"), Some(vec![Place::Queue("a".to_owned())]));
        assert_eq!(places("[queues.b]", "[queues.b"), Some(vec![Place::Queues]));
        for (from, to) in [("'embedded:here'", "'embedded:here"), ("prefix =", "prefix"), ("database", "[")] {
            assert_eq!(places(from, to), None, "{to}");
        }
        assert!(repaired(&"x\n".repeat(9)).is_err() && repaired("]").is_err());
    }
}
