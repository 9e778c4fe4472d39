//! A slow link between guest and host, for tests: what the two send to each other arrives later.
//!
//! On one machine an answer takes less than a tenth of a millisecond, from a cluster some milliseconds. What suffers
//! from that, such as a limit that is only used if others notice a free slot soon, shows with this delay.

use baton::thread;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::fork::CloseOnFork;

/// The environment variable with the milliseconds by which a guest's connection delays each byte, in both directions.
pub const VARIABLE: &str = "FDB_EMBEDDED_LINK_DELAY_MS";

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// Bytes, and when they are to arrive; empty ones are the end.
type Parcel = (Instant, Vec<u8>);

/// The connection, with the delay that the environment asks for.
pub fn by_environment(socket: CloseOnFork<UnixStream>) -> io::Result<CloseOnFork<UnixStream>> {
    let Some(delay) = std::env::var_os(VARIABLE) else { return Ok(socket) };
    let millis = delay.to_str().and_then(|text| text.parse().ok());
    let millis = millis.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{VARIABLE} is not a number of milliseconds"))
    })?;
    delayed(socket, Duration::from_millis(millis))
}

/// A connection that leads to `socket`, and delays what goes either way. The time is that of a longer way: it limits
/// nothing else.
fn delayed(socket: CloseOnFork<UnixStream>, delay: Duration) -> io::Result<CloseOnFork<UnixStream>> {
    let mut pair = None;
    let near = CloseOnFork::open(|| {
        let (near, far) = UnixStream::pair()?;
        pair = Some(far);
        Ok::<_, io::Error>(near)
    })?;
    let Some(far) = pair.map(CloseOnFork::from) else { return Ok(near) };
    let copy = |of: &CloseOnFork<UnixStream>| CloseOnFork::open(|| of.try_clone());
    carry(copy(&far)?, copy(&socket)?, delay)?;
    carry(socket, far, delay)?;
    Ok(near)
}

/// Starts the threads of one direction.
fn carry(from: CloseOnFork<UnixStream>, to: CloseOnFork<UnixStream>, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = channel();
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
    };
    start("fdb-delay-in", Box::new(move || take(&from, &sender, delay)))?;
    start("fdb-delay-out", Box::new(move || hand_over(&to, &receiver)))
}

fn take(mut from: &UnixStream, sender: &Sender<Parcel>, delay: Duration) {
    let mut buffer = vec![0; CHUNK];
    loop {
        // An error ends the connection, too.
        let read = from.read(&mut buffer).unwrap_or(0);
        let is_over = sender.send((baton::now() + delay, buffer[..read].to_vec())).is_err();
        if is_over || read == 0 {
            return;
        }
    }
}

fn hand_over(mut to: &UnixStream, receiver: &Receiver<Parcel>) {
    for (due, bytes) in receiver {
        thread::sleep(due.saturating_duration_since(baton::now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    // It fails only if the connection has ended already.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_later_and_in_order_and_the_end_after_them() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let delay = Duration::from_millis(30);
        let mut near: UnixStream = delayed(CloseOnFork::from(socket), delay).unwrap().try_clone().unwrap();
        let began = baton::now();
        let mut bytes = [0; 5];
        for _ in 0..2 {
            near.write_all(b"there").unwrap();
            peer.read_exact(&mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
            near.read_exact(&mut bytes).unwrap();
        }
        assert!(began.elapsed() >= 4 * delay);
        assert_eq!(&bytes, b"there");
        // Many at a time take as long as one.
        let began = baton::now();
        (0..100).for_each(|_| near.write_all(&bytes).unwrap());
        near.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert!(all.len() == 500 && began.elapsed() >= delay && began.elapsed() < 50 * delay);
        drop(peer);
        assert_eq!(near.read(&mut bytes).unwrap(), 0);
    }
}
