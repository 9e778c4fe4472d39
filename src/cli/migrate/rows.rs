//! Copying all rows once, and comparing both ends row by row. What differs at the target becomes what is at the source.

use futures::future::try_join;
use kvqueue_queue::migration::{Page, Phase, Record, Row, Tally};
use twox_hash::xxhash3_128;

use super::{error::MigrateError, moving::Moving};

/// Copies the rows behind the record's key, and returns the record for the comparison. While a page is written, the next
/// one is read.
pub(super) async fn copy(moving: &Moving<'_>, mut record: Record) -> Result<Record, MigrateError> {
    let mut page = moving.source_page(&record.through).await?;
    while record.phase == Phase::Copying {
        moving.ends.to.check_space()?;
        let after = after(&record, &page);
        let next = async {
            match after.phase {
                Phase::Copying => moving.source_page(&after.through).await,
                _ => Ok(Page::default()),
            }
        };
        let stored = moving.step(&record, &after, |tr| {
            page.rows.iter().for_each(|(key, value)| tr.set(key, value));
        });
        let (next, ()) = try_join(next, stored).await?;
        moving.report.rows(&moving.name(), "copying", after.rows, after.bytes);
        (page, record) = (next, after);
    }
    Ok(record)
}

/// The record after a page.
fn after(before: &Record, page: &Page) -> Record {
    let mut after = before.clone();
    after.rows += page.rows.len() as u64;
    after.bytes += page.byte_len() as u64;
    match &page.through {
        Some(through) => after.through.clone_from(through),
        None => (after.phase, after.through) = (Phase::Comparing, Vec::new()),
    }
    after
}

/// The rows of one end.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) tally: Tally,
    digest: xxhash3_128::Hasher,
}

/// The result of a pass over both ends.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) source: Sum,
    pub(super) target: Sum,
    /// Rows that were at one end alone, or not the same at both.
    pub(super) differing: u64,
}

/// The change that makes a row of the target equal to the source's.
#[derive(Debug, PartialEq, Eq)]
enum Change<'r> {
    Set(&'r Row),
    Clear(&'r [u8]),
}

impl Sum {
    fn add(&mut self, moving: &Moving<'_>, (key, value): &Row) {
        self.tally.add(&moving.queue, key, value);
        add_to(&mut self.digest, key, value);
    }

    /// The checksum of all rows: XXH3-128 of the keys and values, each behind its length, u32, little endian.
    pub(super) fn checksum(&self) -> u128 {
        self.digest.finish_128()
    }
}

/// Adds a row to a checksum.
pub(super) fn add_to(digest: &mut xxhash3_128::Hasher, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        let len = u32::try_from(part.len()).expect("keys and values are bounded far below 2^32 bytes");
        digest.write(&len.to_le_bytes());
        digest.write(part);
    }
}

/// Compares all rows. With the target's record, makes the rows of the target equal to the source's.
pub(super) async fn compare(moving: &Moving<'_>, mend: Option<&Record>) -> Result<Compared, MigrateError> {
    let mut compared = Compared::default();
    let mut behind = Vec::new();
    loop {
        let (source, target) = try_join(moving.source_page(&behind), moving.target_page(&behind)).await?;
        let through = first_end(&source, &target);
        let (source, target) = (known(&source, through), known(&target, through));
        source.iter().for_each(|row| compared.source.add(moving, row));
        target.iter().for_each(|row| compared.target.add(moving, row));
        let changes = changes(source, target);
        compared.differing += changes.len() as u64;
        if let Some(record) = mend.filter(|_| !changes.is_empty()) {
            moving
                .step(record, record, |tr| {
                    changes.iter().for_each(|change| match change {
                        Change::Set((key, value)) => tr.set(key, value),
                        Change::Clear(key) => tr.clear(key),
                    });
                })
                .await?;
        }
        moving.report.rows(
            &moving.name(),
            "comparing",
            compared.source.tally.rows,
            compared.source.tally.bytes,
        );
        match through {
            Some(through) => behind = through.to_vec(),
            None => return Ok(compared),
        }
    }
}

/// The last key up to which both pages are known; `None` is the end.
fn first_end<'p>(source: &'p Page, target: &'p Page) -> Option<&'p [u8]> {
    let ends = [source, target].into_iter().filter_map(|page| page.through.as_deref());
    ends.min()
}

/// The rows up to a key.
fn known<'p>(page: &'p Page, through: Option<&[u8]>) -> &'p [Row] {
    let end = through.map_or(page.rows.len(), |through| page.rows.partition_point(|(key, _)| key <= through));
    &page.rows[..end]
}

/// The changes that make the target's rows equal to the source's. Both are in the order of their keys.
fn changes<'r>(source: &'r [Row], target: &'r [Row]) -> Vec<Change<'r>> {
    let (mut source, mut target) = (source.iter().peekable(), target.iter().peekable());
    let mut changes = Vec::new();
    loop {
        match (source.peek(), target.peek()) {
            (None, None) => return changes,
            (Some(own), Some(other)) if own == other => {
                source.next();
                target.next();
            }
            (Some((own, _)), Some((other, _))) if own == other => {
                changes.extend(source.next().map(Change::Set));
                target.next();
            }
            (Some((own, _)), Some((other, _))) if own > other => {
                changes.extend(target.next().map(|(key, _)| Change::Clear(key)));
            }
            (None, Some(_)) => changes.extend(target.next().map(|(key, _)| Change::Clear(key))),
            (Some(_), _) => changes.extend(source.next().map(Change::Set)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_last_page_ends_the_copying_phase() {
        let row = || (b"k".as_slice().into(), b"value".as_slice().into());
        let begun = Record::new([1; 16], Phase::Copying);
        let first = after(&begun, &Page { rows: vec![row(), row()], through: Some(b"k".to_vec()) });
        assert_eq!((first.phase, first.rows, first.bytes), (Phase::Copying, 2, 12));
        assert_eq!(first.through, b"k");
        let last = after(&first, &Page { rows: vec![row()], through: None });
        assert_eq!((last.phase, last.rows, last.through), (Phase::Comparing, 3, Vec::new()));
    }

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

    /// All sets of rows of four keys, each with one of two values.
    fn all_rows() -> Vec<Rows> {
        let rows = |mut number: usize| {
            let mut rows = Rows::new();
            for key in [&b""[..], b"a", b"aa", b"b"] {
                if !number.is_multiple_of(3) {
                    rows.insert(key.to_vec(), vec![number.rem_euclid(3).try_into().unwrap()]);
                }
                number /= 3;
            }
            rows
        };
        (0..81).map(rows).collect()
    }

    fn page(rows: &Rows) -> Vec<Row> {
        rows.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect()
    }

    #[test]
    fn changes_make_the_target_equal_to_the_source() {
        let all = all_rows();
        for (source, target) in all.iter().flat_map(|source| all.iter().map(move |target| (source, target))) {
            let (source_page, target_page) = (page(source), page(target));
            let mut changed = target.clone();
            let found = changes(&source_page, &target_page);
            for change in &found {
                match change {
                    Change::Set((key, value)) => drop(changed.insert(key.to_vec(), value.to_vec())),
                    Change::Clear(key) => assert!(changed.remove(*key).is_some()),
                }
            }
            assert_eq!(&changed, source);
            let differing = source.iter().filter(|(key, value)| target.get(*key) != Some(value)).count()
                + target.keys().filter(|key| !source.contains_key(*key)).count();
            assert_eq!(found.len(), differing);
        }
    }

    #[test]
    fn checksum_depends_on_the_boundaries_of_keys_and_values() {
        let checksum = |rows: &[(&[u8], &[u8])]| {
            let mut digest = xxhash3_128::Hasher::new();
            rows.iter().for_each(|(key, value)| add_to(&mut digest, key, value));
            digest.finish_128()
        };
        assert_ne!(checksum(&[(b"ab", b"c")]), checksum(&[(b"a", b"bc")]));
        assert_ne!(checksum(&[(b"a", b"b"), (b"c", b"")]), checksum(&[(b"a", b"b"), (b"", b"c")]));
    }

    #[test]
    fn pages_are_compared_up_to_the_end_of_the_shorter_one() {
        let row = |key: &'static str| (key.as_bytes().into(), b"".as_slice().into());
        let short = Page { rows: vec![row("a"), row("b")], through: Some(b"b".to_vec()) };
        let long = Page { rows: vec![row("a"), row("c"), row("d")], through: None };
        let through = first_end(&short, &long);
        assert_eq!(through, Some(&b"b"[..]));
        assert_eq!((known(&short, through).len(), known(&long, through).len()), (2, 1));
        assert_eq!((first_end(&long, &long), known(&long, None).len()), (None, 3));
    }
}
