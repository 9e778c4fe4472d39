//! The rooms of `src/`: each uses only rooms below it. So the reader of a room knows what may use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The rooms, the lowest first: a directory or a file of `src/`.
const ROOMS: &[&str] = &[
    "base",
    "config",
    "telemetry",
    "database",
    "meters",
    "audit",
    "access",
    "handlers",
    "consumer",
    "status",
    "metrics",
    "schedules",
    "sweep",
    "stats",
    "actors",
    "operations",
    "control",
    "http",
    "lifecycle",
    "systemd",
    "daemon",
    "cli",
    "testing",
    "docs",
    "lib",
    "main",
];

/// A file of `src/` without its tests and comments.
struct Source {
    /// Its module, from the root of the crate.
    module: Vec<String>,
    text: String,
}

impl Source {
    fn room(&self) -> &str {
        self.module.first().map_or("lib", String::as_str)
    }

    /// The rooms that it names: behind `crate::`, or behind as many `super::` as lead to the root.
    fn rooms_named(&self) -> BTreeSet<String> {
        let mut named = BTreeSet::new();
        for (at, _) in self.text.match_indices("crate::") {
            // Neither a part of another name, nor `$crate` of a macro.
            if !self.text[..at].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before)) {
                named.extend(first_names(&self.text[at + "crate::".len()..]));
            }
        }
        let to_root = "super::".repeat(self.module.len().max(1));
        for (at, _) in self.text.match_indices(&to_root) {
            if !self.text[..at].ends_with("super::") {
                named.extend(first_names(&self.text[at + to_root.len()..]));
            }
        }
        named
    }
}

/// The first name of a path, or of each path in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut names, mut begins) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if c.is_whitespace() => {}
            _ if begins => {
                names.push(name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// The text without comments, and without modules that only tests have.
fn without_tests(text: &str) -> String {
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let is_module = |at: usize| code[at..].lines().nth(1).is_some_and(|line| line.ends_with("mod tests {"));
    let end = code.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(|at| is_module(*at));
    code[..end.unwrap_or(code.len())].to_owned()
}

/// The names of modules in files of their own that only tests have.
fn test_modules(text: &str) -> Vec<String> {
    let after = text.split("#[cfg(test)]\n").skip(1).filter_map(|rest| rest.lines().next());
    let names = after
        .filter_map(|line| line.trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

fn read(directory: &Path, module: &[String], into: &mut Vec<Source>) {
    let mut skipped = BTreeSet::new();
    let own = [directory.join("mod.rs"), directory.with_extension("rs"), directory.join("lib.rs")];
    for file in own.iter().filter_map(|file| fs::read_to_string(file).ok()) {
        skipped.extend(test_modules(&file));
    }
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if skipped.contains(&name) {
            continue;
        }
        let below = [module, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            read(&path, &below, into);
        } else {
            let module = if name == "mod" { module.to_vec() } else { below };
            into.push(Source { module, text: without_tests(&fs::read_to_string(&path).unwrap()) });
        }
    }
}

#[test]
fn each_room_uses_only_rooms_below_it() {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut sources);
    let floors: BTreeMap<_, _> = ROOMS.iter().enumerate().map(|(floor, room)| (*room, floor)).collect();
    let (mut wrong, mut arrows) = (Vec::new(), 0);
    for source in &sources {
        let room = source.room();
        let floor =
            floors.get(room).unwrap_or_else(|| panic!("src/{room} has no place in the list of rooms"));
        for other in source.rooms_named() {
            // What is not a room is a name that `lib.rs` has, such as `crate::Config`, or all of them.
            let other_floor = floors.get(&*other).unwrap_or(&floors["lib"]);
            if other == room {
                continue;
            }
            arrows += 1;
            if other_floor > floor {
                wrong.push(format!("{} uses {other}", source.module.join("::")));
            }
        }
    }
    assert!(arrows > 500, "only {arrows} uses of other rooms were found in {} files", sources.len());
    assert_eq!(wrong, [""; 0], "each uses a room that is above its own");
}

#[test]
fn the_map_has_the_rooms_in_their_order() {
    let map = include_str!("../../docs/ARCHITECTURE.md").lines().filter(|line| line.starts_with("| `src/"));
    let places = map.flat_map(|line| line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let mut rooms: Vec<_> = places
        .filter_map(|place| place.strip_prefix("src/"))
        .map(|place| place.trim_end_matches(".rs"))
        .collect();
    rooms.reverse();
    let listed: Vec<_> = ROOMS.iter().copied().filter(|room| !["lib", "main"].contains(room)).collect();
    assert_eq!(rooms, listed, "docs/ARCHITECTURE.md, from its last row up");
}

#[test]
fn uses_of_rooms_are_found_in_every_form() {
    let source = |module: &str, text: &str| Source {
        module: module.split("::").map(str::to_owned).collect(),
        text: without_tests(text),
    };
    let text = "use crate::{\n    cli::{a, b},\n    http,\n};\nuse crate::daemon::x;\nlet y = crate::stats::z();\n// crate::docs\n\
        use super::super::actors::q;\nuse super::own;\n#[cfg(test)]\nmod tests {\n use crate::testing::T;\n}";
    let named: Vec<_> = source("config::load", text).rooms_named().into_iter().collect();
    assert_eq!(named, ["actors", "cli", "daemon", "http", "stats"]);
    assert_eq!(
        test_modules("mod a;\n#[cfg(test)]\nmod documents;\n#[cfg(test)]\npub(crate) mod b;"),
        ["documents", "b"]
    );
}
