//! The text format of Prometheus, version 0.0.4, as far as it is written here.

use std::{fmt, fmt::Write};

use super::{
    family::Metric,
    histogram::{BOUNDS, Reading},
};

/// Where the samples of one metric go.
pub(crate) struct Samples<'a> {
    metric: &'a Metric,
    out: &'a mut String,
}

impl<'a> Samples<'a> {
    /// Begins a metric.
    pub(super) fn begin(metric: &'a Metric, out: &'a mut String) -> Self {
        let Metric { name, help, kind, .. } = metric;
        write(out, format_args!("# HELP {name} "));
        escape(help, false, out);
        write(out, format_args!(".\n# TYPE {name} {}\n", kind.as_str()));
        Self { metric, out }
    }

    /// A figure, beside the values of the metric's labels.
    pub(super) fn add(&mut self, values: &[&str], figure: impl fmt::Display) {
        self.line("", values, None, figure);
    }

    /// A histogram.
    pub(super) fn add_histogram(&mut self, values: &[&str], reading: &Reading) {
        for (bound, count) in BOUNDS.iter().zip(reading.cumulative) {
            let bound = *bound as f64 / 1e6;
            self.line("_bucket", values, Some(&bound), count);
        }
        self.line("_bucket", values, Some(&"+Inf"), reading.count);
        self.line("_sum", values, None, reading.sum.as_secs_f64());
        self.line("_count", values, None, reading.count);
    }

    fn line(
        &mut self,
        suffix: &str,
        values: &[&str],
        bound: Option<&dyn fmt::Display>,
        figure: impl fmt::Display,
    ) {
        debug_assert_eq!(values.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.out.push_str(self.metric.name);
        self.out.push_str(suffix);
        let mut before = '{';
        for (label, value) in self.metric.labels.iter().zip(values) {
            write(self.out, format_args!("{before}{label}=\""));
            escape(value, true, self.out);
            self.out.push('"');
            before = ',';
        }
        if let Some(bound) = bound {
            write(self.out, format_args!("{before}le=\"{bound}\""));
            before = ',';
        }
        let after = if before == ',' { "}" } else { "" };
        write(self.out, format_args!("{after} {figure}\n"));
    }
}

fn write(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all that is written");
}

/// A backslash and the end of a line would end what they are in, and so would a quotation mark, within them.
fn escape(text: &str, in_quotes: bool, out: &mut String) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if in_quotes => out.push_str("\\\""),
            char => out.push(char),
        }
    }
}
