//! Errors in a line.

use std::{error::Error, iter::successors};

/// An error's text, and the text of each of its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<_> = chain(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// The text of the first of an error's causes, for places that know what failed.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().unwrap_or(error).to_string()
}

/// The error and its causes, the first one last.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}
