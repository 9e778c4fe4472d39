//! Reports of failures that no call returns, and the last failure that ended an engine.

use std::sync::OnceLock;

use baton::Mutex;

/// The target of [`report`].
static REPORT: OnceLock<fn(&str)> = OnceLock::new();

/// Sends reports of failures that no call returns to `report`, instead of standard error. `report`
/// runs on the engine's threads, so it must not block. Only the first call counts.
pub fn report_to(report: fn(&str)) {
    let _ = REPORT.set(report);
}

/// The last failure that ended an engine of this process.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// The reason for which an embedded database of this process last failed: the file and the
/// operating system's error. Clients only get error 1510. `None` if none failed here; if another
/// process hosts the database, that process has the reason.
#[must_use]
pub fn last_failure() -> Option<String> {
    FAILURE.lock().clone()
}

/// Records a failure for [`last_failure`].
pub fn keep_failure(message: String) {
    *FAILURE.lock() = Some(message);
}

/// Reports a failure that no call returns.
pub fn report(message: &str) {
    use std::io::Write;
    match REPORT.get() {
        Some(report) => report(message),
        // Ignores errors of standard error.
        None => drop(writeln!(std::io::stderr().lock(), "fdb-embedded: {message}")),
    }
}
