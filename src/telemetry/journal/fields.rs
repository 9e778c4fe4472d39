//! Fields of events and spans, as texts.

use std::{error::Error, fmt::Debug};

use tracing::field::{Field, Visit};

use crate::causes::with_causes;

/// Names and values in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    /// Those of a span around it, as far as it says nothing else.
    pub(super) fn add(&mut self, others: &Fields) {
        for (name, value) in &others.0 {
            if !self.0.iter().any(|(known, _)| known == name) {
                self.0.push((name, value.clone()));
            }
        }
    }

    /// Takes one out.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    fn set(&mut self, field: &Field, value: String) {
        match self.0.iter_mut().find(|(known, _)| *known == field.name()) {
            Some((_, known)) => *known = value,
            None => self.0.push((field.name(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        self.set(field, with_causes(error));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format!("{value:?}"));
    }
}
