//! A database for the unit tests that need one. Most tests on a database are in `tests/it`.

use foundationdb::Database;

/// The key that a commit makes of a parameter of SET_VERSIONSTAMPED_KEY.
pub(crate) fn stamped(mut parameter: Vec<u8>, transaction: [u8; 10]) -> Vec<u8> {
    let position = parameter.split_off(parameter.len() - 4);
    let position = u32::from_le_bytes(position.try_into().expect("four bytes are split off")) as usize;
    parameter[position..position + 10].copy_from_slice(&transaction);
    parameter
}

/// Runs a test on a throw-away embedded database.
pub(crate) fn on_database(test: impl AsyncFnOnce(&Database)) {
    let _network = fdb_embedded::testing::network();
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Database::from_path(&format!("embedded:{}", dir.path().join("db").display()));
    futures::executor::block_on(test(&db.expect("an empty directory can be opened")));
}

/// The second elements of the keys that a section of `docs/KEYSPACE.md` lists, in its order.
pub(crate) fn listed_in_keyspace(heading: &str) -> Vec<&'static str> {
    let page = include_str!("../../../docs/KEYSPACE.md");
    let section =
        page.split("\n##").find(|section| section.trim_start_matches(['#', ' ']).starts_with(heading));
    let rows = section.expect("the page has the section").lines().filter(|line| line.starts_with("| `(q, "));
    let keys = rows.flat_map(|row| row.split(" | ").next().unwrap_or_default().split("(q, \"").skip(1));
    keys.filter_map(|key| key.split('"').next()).collect()
}
