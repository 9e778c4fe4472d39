//! Tests of the metrics, and of the documents that name them.

mod counted;
mod documents;
mod sample;
mod written;
