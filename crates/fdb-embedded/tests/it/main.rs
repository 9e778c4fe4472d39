//! The embedded engine through the unmodified `foundationdb` crate.

#![expect(clippy::unwrap_used, reason = "tests")]

mod backup;
mod common;
mod crash;
mod gate;
mod helper;
mod hostile;
mod mapped;
mod options;
mod processes;
mod sizes;
mod special;
mod stepdown;
mod storage;
mod system;
mod takeover;
mod transactions;
mod versions;

/// Runs a helper in the process that [`helper::Helper`] starts. Otherwise it does nothing.
#[test]
fn helper_process() {
    helper::run_as_helper(&[
        ("reads_in_the_end", takeover::helper_reads_in_the_end),
        ("is_short_of_descriptors", takeover::helper_is_short_of_descriptors),
        ("appends_forever", takeover::helper_appends_forever),
        ("waits_for_a_host", stepdown::helper_waits_for_a_host),
        ("increments", processes::helper_increments),
        ("reads_and_commits_much", processes::helper_reads_and_commits_much),
        ("goes_elsewhere", special::helper_goes_elsewhere),
        ("opens_and_closes", crash::helper_opens_and_closes),
        ("commits_until_killed", crash::helper_commits_until_killed),
        ("hosts", common::helper_hosts),
    ]);
}
