use super::*;
use baton::thread;
use std::sync::Arc;
use std::time::Duration;

fn frame(frame: &mut Vec<u8>) {
    frame.extend_from_slice(&[7; 50_000]);
}

#[test]
fn drain_waits_for_frames_handed_to_the_writer() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outbox = Arc::new(Outbox::of_host(ours));
    // More than a socket takes at once, and nobody writes yet.
    for _ in 0..100 {
        outbox.push(frame).unwrap();
        outbox.hand_to_writer();
    }
    let (writer, closer) = (Arc::clone(&outbox), Arc::clone(&outbox));
    let writer = thread::spawn(move || writer.run_writer());
    let closer = thread::spawn(move || {
        closer.drain(baton::now() + Duration::from_secs(60));
        closer.close();
    });
    let mut frames = Frames::new(&theirs);
    let mut received = 0;
    while frames.next().unwrap().is_some() {
        received += 1;
    }
    assert_eq!(received, 100);
    closer.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn drain_stops_at_its_deadline_if_the_peer_does_not_read() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let outbox = Arc::new(Outbox::of_host(ours));
    (0..100).for_each(|_| outbox.push(frame).unwrap());
    let writer = Arc::clone(&outbox);
    let writer = thread::spawn(move || writer.run_writer());
    outbox.drain(baton::now() + Duration::from_millis(50));
    outbox.close();
    writer.join().unwrap();
}

#[test]
fn a_frame_takes_memory_as_it_arrives() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut frames = Frames::new(&ours);
    let length = u32::try_from(MAX_FRAME).unwrap().to_le_bytes();
    send(&theirs, &length, SendFlags::empty()).unwrap();
    send(&theirs, &[7; 10], SendFlags::empty()).unwrap();
    assert_eq!(frames.next().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(frames.buffer.capacity(), READ_CHUNK);
    // The rest comes, and then a small one.
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let rest = thread::spawn(move || {
        send(&theirs, &vec![7; MAX_FRAME - 10], SendFlags::empty()).unwrap();
        send(&theirs, &[1, 0, 0, 0, 8], SendFlags::empty()).unwrap();
    });
    assert!(frames.next().unwrap().is_some_and(|frame| frame.len() == MAX_FRAME && frame.ends_with(&[7])));
    assert_eq!(frames.next().unwrap(), Some(&[8][..]));
    assert_eq!(frames.buffer.capacity(), READ_CHUNK);
    rest.join().unwrap();
}

#[test]
fn read_deadline_covers_the_whole_frame() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    // For half a minute, a byte every 50 ms.
    let drip = thread::spawn(move || {
        let mut bytes = [&[88, 2, 0, 0][..], &[7; 600]].concat().into_iter();
        while bytes.next().is_some_and(|byte| send(&theirs, &[byte], SendFlags::empty()).is_ok()) {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let began = baton::now();
    let late = Frames::new(&ours).next_by(began + Duration::from_millis(300)).map(drop).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::WouldBlock);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert_eq!(ours.read_timeout().unwrap(), None);
    drop(ours);
    drip.join().unwrap();
}

#[test]
fn a_frame_over_the_limit_is_refused_before_sending() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outbox = Outbox::of_host(ours);
    let long = outbox.push(|frame| frame.resize(frame.len() + MAX_FRAME + 1, 0));
    assert_eq!(long, Err(PushError::TooLong));
    outbox.push(|frame| frame.push(1)).unwrap();
    outbox.flush();
    assert_eq!(Frames::new(&theirs).next().unwrap(), Some(&[1][..]));
}

#[test]
fn waiting_for_the_outbox_flushes_unsent_frames() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outbox = Arc::new(Outbox::of_host(ours));
    (0..20).for_each(|_| outbox.push(frame).unwrap());
    let (writer, waiting) = (Arc::clone(&outbox), Arc::clone(&outbox));
    let writer = thread::spawn(move || writer.run_writer());
    let waiting = thread::spawn(move || waiting.wait_below(1, 1));
    theirs.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut frames = Frames::new(&theirs);
    (0..20).for_each(|_| assert!(frames.next().unwrap().is_some()));
    waiting.join().unwrap();
    outbox.close();
    writer.join().unwrap();
}

#[test]
fn outstanding_answers_block_the_reader_until_answered_or_closed() {
    for ends_by_answer in [true, false] {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let outbox = Arc::new(Outbox::of_host(ours));
        outbox.add_in_flight(10);
        outbox.wait_below(1, 11);
        let waiting = Arc::clone(&outbox);
        let waiting = thread::spawn(move || waiting.wait_below(1, 10));
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        if ends_by_answer {
            outbox.remove_in_flight(10);
        } else {
            outbox.stop_reading();
        }
        waiting.join().unwrap();
    }
}
