//! Handles the items of the queue `mails`, four at a time, until the queue is empty or it is interrupted.

use std::{env, error::Error, str};

use kvqueue::{Item, Worker, database::Store, queue::Queue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "embedded:courier-data".to_owned());
    let store = Store::open(&url)?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };

    Worker::new(Queue::new(b"", b"mails")?)
        .with_consumers(4)
        .with_shutdown(interrupted)
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
