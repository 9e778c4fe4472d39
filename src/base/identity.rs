//! The ids of this process's sessions. They tell which process has a lease.

use std::time::SystemTime;

use kvqueue_queue::{SessionId, from_millis};
use uuid::Uuid;

/// The most bits of a process number on Linux.
const PID_BITS: u32 = 22;

/// Who made a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    /// Its process number, on its own machine.
    pub(crate) pid: u32,
    /// When it made the session, by its clock.
    pub(crate) at: SystemTime,
}

/// The version in the ids, in the place of a UUID's. Earlier versions of kvqueue wrote [`UNSIGNED`], and gave the ids of
/// leases to workers without a signature.
const VERSION: u8 = 9;
const UNSIGNED: u8 = 8;

/// An id that no other session has, or has had. Its form is that of a UUID, with version 9. It has the time in milliseconds (48 bits), the process number (22 bits), and
/// 52 bits of a UUID of version 7, which are random or count up.
pub(crate) fn session_id() -> SessionId {
    with_pid(Uuid::now_v7(), std::process::id())
}

fn with_pid(uuid: Uuid, pid: u32) -> SessionId {
    let mut bytes = uuid.into_bytes();
    if pid >> PID_BITS == 0 {
        let [_, high, middle, low] = pid.to_be_bytes();
        // Version and variant stay in the upper bits of bytes 6 and 8.
        bytes[6] = VERSION << 4 | (high >> 2);
        bytes[7] = (high << 6) | (middle >> 2);
        bytes[8] = 0x80 | (middle & 0b11) << 4 | low >> 4;
        bytes[9] = low << 4 | (bytes[9] & 0x0f);
    }
    SessionId(bytes)
}

/// Who made a session; none if its id does not tell, as ids that other programs make.
pub(crate) fn maker(SessionId(bytes): SessionId) -> Option<Maker> {
    if !matches!(bytes[6] >> 4, VERSION | UNSIGNED) || bytes[8] >> 6 != 0b10 {
        return None;
    }
    let [six, seven, eight, nine] =
        [bytes[6] & 0x0f, bytes[7], bytes[8] & 0x3f, bytes[9] >> 4].map(u32::from);
    let pid = six << 18 | seven << 10 | eight << 4 | nine;
    let at = bytes[..6].iter().fold(0, |at, byte| at << 8 | u64::from(*byte));
    Some(Maker { pid, at: from_millis(at) })
}

/// Whether workers over HTTP have signatures for the leases of a session: all sessions of this version of kvqueue.
#[cfg(feature = "http")]
pub(crate) fn has_signed_leases(session: SessionId) -> bool {
    session.0[6] >> 4 == VERSION && maker(session).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::base::clock;

    #[test]
    fn session_ids_are_unique_and_contain_the_process_id() {
        let before = clock::now();
        let ids: Vec<_> = (0..10_000).map(|_| session_id()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in ids {
            let maker = maker(id).unwrap();
            assert_eq!(maker.pid, std::process::id());
            assert!((before..=clock::now()).contains(&maker.at), "{maker:?}, {before:?}");
        }
    }

    #[test]
    #[cfg(feature = "http")]
    fn only_sessions_of_this_version_need_signed_leases() {
        let mut id = session_id();
        assert!(has_signed_leases(id));
        id.0[6] = UNSIGNED << 4 | (id.0[6] & 0x0f);
        assert!(!has_signed_leases(id) && maker(id).map(|maker| maker.pid) == Some(std::process::id()));
        assert!(!has_signed_leases(SessionId::new()));
    }

    #[test]
    fn foreign_session_ids_yield_no_process_id() {
        assert_eq!(maker(SessionId(Uuid::now_v7().into_bytes())), None);
        assert_eq!(maker(with_pid(Uuid::now_v7(), 1 << PID_BITS)), None);
        assert_eq!(maker(SessionId([0; 16])), None);
    }

    proptest! {
        #[test]
        fn process_numbers_round_trip(pid in 0..1_u32 << PID_BITS) {
            prop_assert_eq!(maker(with_pid(Uuid::now_v7(), pid)).map(|maker| maker.pid), Some(pid));
        }
    }
}
