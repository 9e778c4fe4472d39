//! The embedded engine through the unmodified `foundationdb` crate.

#![expect(clippy::unwrap_used, reason = "tests")]

mod backup;
mod common;
mod crash;
mod exits;
mod gate;
mod helper;
mod hostile;
mod mapped;
mod namespaces;
mod options;
mod processes;
mod serializable;
mod sizes;
mod socket;
mod special;
mod stepdown;
mod storage;
mod system;
mod takeover;
mod takeover_gap;
mod transactions;
mod versions;

/// Runs a helper in the process that [`helper::Helper`] starts. Otherwise it does nothing.
#[test]
fn helper_process() {
    helper::run_as_helper(&[
        ("reads_in_the_end", takeover::helper_reads_in_the_end),
        ("is_short_of_descriptors", takeover::helper_is_short_of_descriptors),
        ("waits_in_a_gap", takeover_gap::helper_waits_in_a_gap),
        ("appends_forever", takeover::helper_appends_forever),
        ("waits_for_a_host", stepdown::helper_waits_for_a_host),
        ("increments", processes::helper_increments),
        ("reads_and_commits_much", processes::helper_reads_and_commits_much),
        ("runs_transactions", serializable::helper_runs_transactions),
        ("goes_elsewhere", special::helper_goes_elsewhere),
        ("opens_and_closes", crash::helper_opens_and_closes),
        ("commits_until_killed", crash::helper_commits_until_killed),
        ("hosts", common::helper_hosts),
        ("exits", exits::helper_exits),
        ("tells_the_holder", namespaces::helper_tells_the_holder),
    ]);
}
