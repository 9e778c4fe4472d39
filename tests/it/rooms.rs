//! The rooms of `src/`, of the layer and of the engine: each uses only rooms below it. So the reader of a room knows what may use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A crate whose files are in rooms.
#[derive(Clone, Copy)]
struct House {
    /// Its sources, from the root of the repository.
    directory: &'static str,
    /// The rooms, the lowest first: a directory or a file of its sources. A directory in a directory may be a room of its own.
    rooms: &'static [&'static str],
    /// Fewer uses of other rooms, or of other files, than these mean that the test does not find them.
    least: (usize, usize),
}

const DAEMON: House = House {
    directory: "src",
    rooms: &[
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
        "worker",
        "cli",
        "testing",
        "docs",
        "lib",
        "main",
    ],
    least: (500, 1_000),
};

const LAYER: House = House {
    directory: "crates/queue/src",
    rooms: &["model", "keys", "run", "ops", "client", "lib"],
    least: (300, 1_000),
};

const ENGINE: House = House {
    directory: "crates/fdb-embedded/src",
    rooms: &[
        "error",
        "limits",
        "key_map",
        "range_set",
        "rows",
        "url",
        "reports",
        "files",
        "capi/process",
        "fork",
        "network",
        "future",
        "options",
        "network_options",
        "space",
        "engine",
        "link",
        "client",
        "capi",
        "doctor",
        "backup",
        "lib",
    ],
    least: (200, 500),
};

const HOUSES: [House; 3] = [DAEMON, LAYER, ENGINE];

/// A file without its tests and comments.
struct Source {
    /// Its module, from the root of the crate.
    module: Vec<String>,
    text: String,
}

impl Source {
    fn room(&self, rooms: &[&str]) -> String {
        if self.module.is_empty() { "lib".to_owned() } else { room_of(&self.module.join("::"), rooms) }
    }

    /// The text without its imports and without visibilities, and each import with whether others can use it from here.
    fn without_imports(&self) -> (String, Vec<(String, bool)>) {
        let (mut rest, mut imports) = (String::new(), Vec::new());
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let code = line.trim_start();
            let public = code.strip_prefix("pub(").and_then(|it| it.split_once(')'));
            let public = public.map(|(_, code)| code).or_else(|| code.strip_prefix("pub"));
            let Some(import) = public.unwrap_or(code).trim_start().strip_prefix("use ") else {
                // A visibility is no use.
                let mut parts = line.split("pub(in ");
                rest += parts.next().unwrap();
                parts.for_each(|part| rest += part.split_once(')').map_or(part, |(_, code)| code));
                rest.push('\n');
                continue;
            };
            let mut import = import.to_owned();
            while !import.contains(';') {
                let Some(line) = lines.next() else { break };
                import.extend([" ", line]);
            }
            let import = import.split(';').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            imports.push((import, public.is_some()));
        }
        (rest, imports)
    }

    /// The rooms that it names: behind `crate::`, or behind as many `super::` as lead to the root.
    fn rooms_named(&self, rooms: &[&str]) -> BTreeSet<String> {
        let mut named = BTreeSet::new();
        for (at, _) in self.text.match_indices("crate::") {
            // Neither a part of another name, nor `$crate` of a macro.
            if !self.text[..at].ends_with(|before: char| before.is_alphanumeric() || "_$".contains(before)) {
                named.extend(rooms_of(&self.text[at + "crate::".len()..], rooms));
            }
        }
        let to_root = "super::".repeat(self.module.len().max(1));
        for (at, _) in self.text.match_indices(&to_root) {
            if !self.text[..at].ends_with("super::") {
                named.extend(rooms_of(&self.text[at + to_root.len()..], rooms));
            }
        }
        named
    }
}

/// The room that a path begins with: the first name, or the room in a room that has a longer name.
fn room_of(path: &str, rooms: &[&str]) -> String {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let begins = |room: &&&str| {
        let rest = path.strip_prefix(room.replace('/', "::").as_str());
        rest.is_some_and(|rest| name(rest).is_empty()) && room.contains('/')
    };
    rooms.iter().find(begins).map_or_else(|| name(path), |room| (*room).to_owned())
}

/// The room of a path, or of each path in braces.
fn rooms_of(path: &str, rooms: &[&str]) -> Vec<String> {
    let name = |text: &str| room_of(text, rooms);
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

impl House {
    /// Every file of it.
    fn sources(&self) -> Vec<Source> {
        let mut sources = Vec::new();
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(self.directory), &[], &mut sources);
        sources
    }
}

/// The roots of crates, and what only tests have.
const OUTSIDE_THE_MAP: [&str; 2] = ["lib", "main"];

/// The most files that may use each other in a circle.
const MOST_IN_A_CIRCLE: usize = 3;

/// The names that files give to what they import, and where that is.
type Imports = BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>;

/// The paths of an import, with the names that they get: `a::{b, c as d}` is `a::b` as `b`, and `a::c` as `d`.
fn expanded(import: &str) -> Vec<(Vec<String>, String)> {
    let Some((before, group)) = import.split_once('{') else {
        let (path, name) = import.split_once(" as ").unwrap_or((import, ""));
        let path: Vec<_> = path.trim().split("::").map(|part| part.trim().to_owned()).collect();
        let name = if name.is_empty() { path.last().unwrap().clone() } else { name.trim().to_owned() };
        return vec![(path, name)];
    };
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begin..]);
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expanded(&format!("{}{part}", before.trim()))).collect()
}

/// The paths of two names or more in a text.
fn paths(text: &str) -> Vec<Vec<String>> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(begin) = rest.find(is_of_name) {
        let is_macro = rest[..begin].ends_with('$');
        rest = &rest[begin..];
        let mut path = Vec::new();
        loop {
            let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            path.push(rest[..end].to_owned());
            rest = &rest[end..];
            match rest.strip_prefix("::") {
                Some(more) if more.starts_with(is_of_name) => rest = more,
                _ => break,
            }
        }
        if path.len() > 1 && !is_macro {
            found.push(path);
        }
    }
    found
}

/// A path from the root of the crate, if it is one of the crate's.
fn absolute(
    module: &[String],
    path: &[String],
    modules: &BTreeMap<Vec<String>, usize>,
) -> Option<Vec<String>> {
    let (mut base, mut path) = (module, path);
    match path.first()?.as_str() {
        "crate" => (base, path) = (&[], &path[1..]),
        "super" | "self" => {
            while let Some(first) = path.first().filter(|part| ["super", "self"].contains(&part.as_str())) {
                if first == "super" {
                    base = &base[..base.len().checked_sub(1)?];
                }
                path = &path[1..];
            }
        }
        first => {
            modules.get(&[base, std::slice::from_ref(&first.to_owned())].concat())?;
        }
    }
    Some([base, path].concat())
}

/// The file that a path leads to, behind the imports of the files on its way.
fn file_of(
    path: &[String],
    modules: &BTreeMap<Vec<String>, usize>,
    imports: &Imports,
    depth: usize,
) -> Option<usize> {
    (1..=path.len()).rev().find_map(|n| {
        let file = modules.get(&path[..n])?;
        let further = path.get(n).and_then(|name| imports.get(&path[..n])?.get(name));
        match further.filter(|_| depth < 8) {
            Some(to) => file_of(&[to, &path[n + 1..]].concat(), modules, imports, depth + 1),
            None => Some(*file),
        }
    })
}

/// The files that each file uses.
fn files_used(sources: &[Source]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<_, _> =
        sources.iter().enumerate().map(|(number, source)| (source.module.clone(), number)).collect();
    let (mut imports, mut used) = (Imports::new(), vec![Vec::new(); sources.len()]);
    for (number, source) in sources.iter().enumerate() {
        let (rest, found) = source.without_imports();
        for (import, is_public) in found {
            for (path, name) in expanded(&import) {
                let Some(path) = absolute(&source.module, &path, &modules) else { continue };
                imports.entry(source.module.clone()).or_default().entry(name).or_insert(path.clone());
                if !is_public {
                    used[number].push(path);
                }
            }
        }
        used[number].extend(paths(&rest).iter().filter_map(|path| absolute(&source.module, path, &modules)));
    }
    let files = |(number, paths): (usize, &Vec<_>)| {
        let files = paths.iter().filter_map(|path: &Vec<String>| file_of(path, &modules, &imports, 0));
        files.filter(|file| *file != number).collect()
    };
    used.iter().enumerate().map(files).collect()
}

/// The files that use each other in a circle, directly or by way of others; and how often a file uses another one.
fn circles(sources: &[Source]) -> (BTreeSet<Vec<String>>, usize) {
    let used = files_used(sources);
    let reached: Vec<BTreeSet<usize>> = (0..sources.len())
        .map(|from| {
            let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(file) = left.pop() {
                left.extend(used[file].iter().filter(|next| reached.insert(**next)));
            }
            reached
        })
        .collect();
    let circles = (0..sources.len())
        .map(|file| {
            let others = reached[file].iter().filter(|other| reached[**other].contains(&file));
            others.map(|other| sources[*other].module.join("::")).collect::<Vec<_>>()
        })
        .filter(|circle| circle.len() > 1)
        .collect();
    (circles, used.iter().map(BTreeSet::len).sum())
}

/// A circle has to be read, built and understood as a whole.
#[test]
fn no_more_than_three_files_use_each_other_in_a_circle() {
    for house in HOUSES {
        let sources = house.sources();
        let (circles, arrows) = circles(&sources);
        assert!(arrows > house.least.1, "only {arrows} uses were found in {}", house.directory);
        let large: Vec<_> = circles.iter().filter(|circle| circle.len() > MOST_IN_A_CIRCLE).collect();
        assert!(large.is_empty(), "these of {} use each other: {large:#?}", house.directory);
    }
}

#[test]
fn circles_are_found_in_every_form() {
    let source = |module: &str, text: &str| Source {
        module: module.split("::").map(str::to_owned).collect(),
        text: text.to_owned(),
    };
    let files = [
        source("a", "pub(crate) use inner::Thing;\nmod inner;\n"),
        source("a::inner", "use super::{other::{self, That as This}};\nfn f() { crate::b::g(); }\n"),
        source("a::other", "pub(in crate::b) struct That;\n"),
        source("b", "use crate::a::Thing;\nmod c;\nfn g() { c::h(\"use it; so\"); }\n"),
        source("b::c", "pub(super) fn h() { $crate::a::other::x(); super::super::a::Thing::new(); }\n"),
        source("d", "use crate::b::c;\n"),
    ];
    let circle = ["a::inner", "b", "b::c"].map(str::to_owned).to_vec();
    assert_eq!(circles(&files).0, BTreeSet::from([circle]));
}

#[test]
fn each_room_uses_only_rooms_below_it() {
    for house in HOUSES {
        let House { directory, rooms, least } = house;
        let floors: BTreeMap<_, _> = rooms.iter().enumerate().map(|(floor, room)| (*room, floor)).collect();
        let (mut wrong, mut arrows) = (Vec::new(), 0);
        let sources = house.sources();
        for (source, files) in sources.iter().zip(files_used(&sources)) {
            let room = source.room(rooms);
            let no_place = || panic!("{directory}/{room} has no place in the list of rooms");
            let floor = floors.get(&*room).unwrap_or_else(no_place);
            let mut others = source.rooms_named(rooms);
            others.extend(files.iter().map(|file| sources[*file].room(rooms)));
            for other in others {
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
        assert!(arrows > least.0, "only {arrows} uses of other rooms were found in {directory}");
        assert_eq!(wrong, [""; 0], "each uses a room of {directory} that is above its own");
    }
}

/// The only file of the layer that asks the database for rows of a range.
const READS_RANGES: &str = "run::range_read";

/// A reply may have fewer rows than its limit although others follow. So only one file looks at replies.
#[test]
fn the_layer_reads_ranges_in_one_file() {
    let reads = |source: &Source| ["RangeOption", "get_range"].iter().any(|name| source.text.contains(name));
    let sources = LAYER.sources();
    let readers: Vec<_> =
        sources.iter().filter(|source| reads(source)).map(|source| source.module.join("::")).collect();
    assert_eq!(readers, [READS_RANGES], "read rows of a range by {READS_RANGES}::RangeRead only");
}

#[test]
fn the_map_has_the_rooms_in_their_order() {
    let map = include_str!("../../docs/ARCHITECTURE.md").lines().filter(|line| line.starts_with("| `"));
    let places: Vec<_> =
        map.flat_map(|line| line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    for house in HOUSES {
        let in_house = |place: &&str| {
            Some(place.strip_prefix(house.directory)?.strip_prefix('/')?.trim_end_matches(".rs").to_owned())
        };
        let mut rooms: Vec<_> = places
            .iter()
            .filter_map(in_house)
            .filter(|room| !room.contains('/') || house.rooms.contains(&room.as_str()))
            .collect();
        rooms.reverse();
        let listed: Vec<_> =
            house.rooms.iter().copied().filter(|room| !OUTSIDE_THE_MAP.contains(room)).collect();
        assert_eq!(rooms, listed, "docs/ARCHITECTURE.md, from its last row up: {}", house.directory);
    }
}

#[test]
fn uses_of_rooms_are_found_in_every_form() {
    let source = |module: &str, text: &str| Source {
        module: module.split("::").map(str::to_owned).collect(),
        text: without_tests(text),
    };
    let text = "use crate::{\n    cli::{a, b},\n    http,\n};\nuse crate::daemon::x;\nlet y = crate::stats::z();\n// crate::docs\n\
        use super::super::actors::q;\nuse super::own;\n#[cfg(test)]\nmod tests {\n use crate::testing::T;\n}";
    let named: Vec<_> = source("config::load", text).rooms_named(DAEMON.rooms).into_iter().collect();
    assert_eq!(named, ["actors", "cli", "daemon", "http", "stats"]);
    let text = "use crate::{capi::process, capi::real};\nuse crate::capi::process::heap;\nuse crate::capi::process_of::x;";
    let named: Vec<_> = source("fork", text).rooms_named(ENGINE.rooms).into_iter().collect();
    assert_eq!(named, ["capi", "capi/process"]);
    assert_eq!(source("capi::process::heap", "").room(ENGINE.rooms), "capi/process");
    assert_eq!(
        test_modules("mod a;\n#[cfg(test)]\nmod documents;\n#[cfg(test)]\npub(crate) mod b;"),
        ["documents", "b"]
    );
}
