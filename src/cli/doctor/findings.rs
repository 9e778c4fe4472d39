//! The findings of the doctor, and how they are printed.

use std::io;

use fdb_embedded::doctor::{Finding, Severity};
use serde_json::{Value, json};

use crate::{cli::output, database::OpenError};

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// What: a word that programs can go by.
    pub(super) about: &'static str,
    pub(super) severity: Severity,
    pub(super) text: String,
    /// The fix.
    pub(super) advice: Option<String>,
}

/// The findings so far, in their order.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Found>,
    printed: usize,
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        let Finding { about, severity, text, advice } = finding;
        Self { about, severity, text, advice: advice.map(Into::into) }
    }
}

impl Findings {
    pub(super) fn fine(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(Found { about, severity: Severity::Fine, text: text.into(), advice: None });
    }

    pub(super) fn note(&mut self, about: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        let advice = Some(advice.into());
        self.add(Found { about, severity: Severity::Note, text: text.into(), advice });
    }

    pub(super) fn problem(
        &mut self,
        about: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let advice = Some(advice.into());
        self.add(Found { about, severity: Severity::Problem, text: text.into(), advice });
    }

    pub(super) fn add(&mut self, found: Found) {
        self.found.push(found);
    }

    /// True if nothing has to be done.
    pub(super) fn are_healthy(&self) -> bool {
        self.found.iter().all(|found| found.severity != Severity::Problem)
    }

    /// Prints what has not been printed yet.
    pub(super) fn print(&mut self, json: bool) -> io::Result<()> {
        for found in &self.found[self.printed..] {
            output::line(json, found.line().as_bytes(), &found.object())?;
        }
        self.printed = self.found.len();
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> String {
        self.found.iter().map(|found| found.line() + "\n").collect()
    }
}

impl Found {
    /// A database that cannot be opened. The error says what to do.
    pub(super) fn unopened(error: &OpenError) -> Self {
        Self { about: "cluster", severity: Severity::Problem, text: error.to_string(), advice: None }
    }

    fn line(&self) -> String {
        let Self { about, severity, text, advice } = self;
        let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{about:<10}{severity:<9}{text}{advice}")
    }

    fn object(&self) -> Value {
        let verdict = self.severity.to_string().to_lowercase();
        let mut object = json!({"about": self.about, "verdict": verdict, "text": self.text});
        if let Some(advice) = &self.advice {
            object["advice"] = json!(advice);
        }
        object
    }
}
