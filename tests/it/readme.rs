//! The README names tests and shows a program; both are there.

use std::{fs, path::Path};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// The texts of all tests, also of those next to the code.
fn tests() -> String {
    let mut text = String::new();
    let mut directories =
        vec![root().join("tests/it"), root().join("crates/queue/tests"), root().join("src")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn the_readme_names_a_test_for_each_promise() {
    let readme = readme();
    let section = readme.split("\n## ").find(|section| section.starts_with("What it promises")).unwrap();
    let tests = tests();
    let promises: Vec<_> = section.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(promises.len() >= 8, "{promises:?}");
    for promise in promises {
        let name = promise.split('`').nth(1).unwrap_or_else(|| panic!("no test is named: {promise}"));
        assert!(tests.contains(&format!("fn {name}()")), "there is no test {name}");
    }
}

#[test]
fn the_readme_shows_the_example() {
    let example = fs::read_to_string(root().join("examples/mail.rs")).unwrap();
    let shown = example.split_once("\n\n").unwrap().1;
    assert!(readme().contains(&format!("```rust\n{shown}```\n")), "README.md does not show examples/mail.rs");
}

#[test]
fn the_readme_is_short() {
    let readme = readme();
    let (lines, words) = (readme.lines().count(), readme.split_whitespace().count());
    assert!(lines <= 130 && words <= 1_200, "{lines} lines, {words} words");
}
