//! The second phase: all rows, once.

use futures::future::try_join;
use kvqueue_queue::migration::{Page, Phase, Record};

use super::{error::MigrateError, moving::Moving};

/// Copies what is behind the record's key, and returns the record of what is to be compared. While a page is written the next one is read.
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
        moving.report.rows(moving, "copying", after.rows, after.bytes);
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

#[cfg(test)]
mod tests {
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
}
