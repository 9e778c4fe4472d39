//! Documents that tests write from the code: `INSTA_UPDATE=always cargo test --lib` writes them, and without that variable a test
//! fails if one is not as it would be written.

use std::{fs, ops::Range, path::Path};

/// Holds a file to `made`. `path` is relative to the repository.
pub(crate) fn whole_file(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if fs::read_to_string(&file).is_ok_and(|known| known == made) {
        return;
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&file, made).unwrap();
    } else {
        panic!(
            "{path} is not as the code says; write it with INSTA_UPDATE=always cargo test --lib, and look at the change"
        );
    }
}

/// Holds the rows of the table with this header to `rows`.
pub(crate) fn table_in(path: &str, header: &str, rows: &[String]) {
    let (known, at) = table(path, header);
    let mut made = known[..at.start].to_owned();
    rows.iter().for_each(|row| made.extend([row, "\n"]));
    made += &known[at.end..];
    whole_file(path, &made);
}

/// The rows of the table with this header, as they stand.
pub(crate) fn rows_of(path: &str, header: &str) -> Vec<String> {
    let (known, at) = table(path, header);
    known[at].lines().map(str::to_owned).collect()
}

/// A file, and where the rows of the table with this header are.
fn table(path: &str, header: &str) -> (String, Range<usize>) {
    let known = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let start = known.find(header).unwrap_or_else(|| panic!("{path} has no table {header}"));
    // The header and the line below it stay.
    let rows_at = start + known[start..].match_indices('\n').nth(1).expect("a table has rows").0 + 1;
    let below = known[rows_at..].lines().take_while(|line| line.starts_with('|'));
    let end = rows_at + below.map(|line| line.len() + 1).sum::<usize>();
    (known, rows_at..end)
}
