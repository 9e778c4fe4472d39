//! Tests of the metrics, and of the documents that name them.

mod counted;
mod packaging;
mod page;
mod sample;
mod written;
