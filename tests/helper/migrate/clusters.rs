//! Programs for the tests of `tests/it/migrate/clusters.rs`.

use foundationdb::options::TransactionOption;

use super::items::Here;

use crate::support::argument;

/// Lets versions go on from some seconds ahead of a cluster's.
pub(crate) fn runs_ahead() {
    let here = Here::open();
    here.runtime.block_on(async {
        let tr = here.db.create_trx().unwrap();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        let cluster: i64 = argument(0).unwrap().parse().unwrap();
        let version = tr.get_read_version().await.unwrap().max(cluster) + 600_000_000;
        tr.set(b"\xff\xff/management/min_required_commit_version", version.to_string().as_bytes());
        tr.commit().await.unwrap();
    });
}
