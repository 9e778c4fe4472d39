//! `docs/GUARANTEES.md` and the pages below it name tests; they exist.

use std::path::Path;

/// The texts between backticks, in order.
fn quoted(page: &str) -> Vec<&str> {
    page.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = ["docs/GUARANTEES.md", "docs/guarantees/more.md"]
        .map(|page| std::fs::read_to_string(root.join(page)).unwrap())
        .join("\n");
    let mut named = 0;
    for line in page.lines().filter(|line| line.starts_with("- `")) {
        let words = quoted(line);
        let [file, tests @ ..] = &words[..] else { continue };
        let path = root.join(file);
        assert!(path.exists(), "{file} is not there");
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for test in tests {
            assert!(text.contains(&format!("fn {test}()")), "{file} has no test {test}");
            named += 1;
        }
    }
    assert!(named > 40, "the pages name {named} tests only");
}
