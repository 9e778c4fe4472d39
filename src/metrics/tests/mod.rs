//! What Prometheus gets to read, and whether it is right.

mod counted;
mod packaging;
mod page;
mod sample;
mod written;
