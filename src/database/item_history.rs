//! The history of ended items: which process records, and when; and what commands and HTTP share to show it.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use foundationdb::Transaction;
use kvqueue_queue::{EndedItem, ItemId, Queue, QueueError, Recorder, Recording};

use crate::{
    base::{clock, times},
    config::duration,
};

/// The name of this process in records: its machine and its process number.
pub(crate) fn this_process() -> String {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match name.trim() {
            "" => "localhost".to_owned(),
            name => name.to_owned(),
        }
    });
    format!("{host}/{}", std::process::id())
}

/// A recorder of this process.
pub(crate) fn recorder(recording: Recording) -> Recorder {
    Recorder::new(recording, Some(this_process()), SystemTime::now)
}

/// When a daemon records that has a queue in its configuration, with this setting.
pub(crate) fn configured(history: Option<Duration>) -> Recording {
    match history {
        None | Some(Duration::ZERO) => Recording::Off,
        Some(_) => Recording::On,
    }
}

/// The setting, as people write it.
pub(crate) const EXAMPLE: &str = "history = \"24h\"";

/// Reads a moment: how long ago, as in `2h`; or a time in RFC 3339.
pub(crate) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = duration::parse(text) {
        return Ok(times::before(clock::now(), ago));
    }
    times::parse(text).ok_or_else(|| {
        format!(
            "{text:?} is not a time; write it as in \"2h\", for two hours ago, or \"2030-01-31T08:00:00Z\""
        )
    })
}

/// An item in the history, with its result if there is one.
pub(crate) async fn read(
    queue: &Queue,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<(EndedItem, Option<Bytes>)>, QueueError> {
    let Some(item) = queue.ended_item(tr, id).await? else { return Ok(None) };
    let result = queue.result(tr, &item).await?;
    Ok(Some((item, result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_ago_or_times() {
        assert_eq!(moment("2023-11-14T22:13:20Z"), Ok(kvqueue_queue::from_millis(1_700_000_000_000)));
        let ago = times::between(moment("2h").unwrap(), clock::now());
        assert!((7_200..7_210).contains(&ago.as_secs()), "{ago:?}");
        for wrong in ["", "tomorrow", "2023-11-14", "1969-01-01T00:00:00Z"] {
            assert!(moment(wrong).unwrap_err().contains("is not a time"), "{wrong}");
        }
    }
}
