//! Handles the items of the queue `mails`, four at a time, until the queue is empty or it gets INT or TERM.

use std::{env, error::Error, str};

use kvqueue::{Item, Worker, database::Store, queue::Queue};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::open(&env::args().nth(1).unwrap_or_else(|| "embedded:courier-data".to_owned()))?;
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stopped = async move {
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    };

    Worker::new(Queue::new(b"", b"mails")?)
        .with_consumers(4)
        .with_shutdown(stopped)
        .until_empty()
        .run(&store.db, send)
        .await?;
    Ok(())
}

/// An error fails the attempt. The item is tried again after a pause, and is a dead letter after the last attempt.
async fn send(item: Item) -> Result<(), str::Utf8Error> {
    let to = str::from_utf8(&item.payload)?;
    println!("to {to}, attempt {}", item.attempt);
    Ok(())
}
