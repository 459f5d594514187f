//! Threads of the engine that end by a fault: what becomes of their calls, and of those that come later.

use super::*;

/// The first of the engine's threads that is over.
fn fallen(bed: &Bed) -> (String, bool) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some((name, how)) = bed.engine.fallen() {
            return (name, how.is_err());
        }
        assert!(Instant::now() < until, "no thread is over");
        std::thread::yield_now();
    }
}

#[test]
fn a_media_thread_that_dies_takes_its_calls_along_and_what_was_recorded_stays() {
    let bed = Bed::new(2);
    let mut calls = ["first", "second"].map(|name| {
        let mut call = bed.call_with(config(name), false, 8).unwrap();
        for _ in 0..40 {
            call.read_to("audio").unwrap();
        }
        call
    });
    assert!(bed.engine.fallen().is_none());
    // It comes to the thread of the first call: both have one.
    let broken = bed.call_with(config(faults::MEDIA), false, 1).unwrap();
    assert_eq!(fallen(&bed), ("media-0".to_owned(), true));
    let [first, second] = &mut calls;
    let file = first.recorded().unwrap();
    assert!(file.samples > 4_000 && file.broken.is_none(), "{file:?}");
    assert_eq!(std::fs::read_dir(bed.spool()).unwrap().count(), 5);
    // Nothing more is told of either.
    for call in [&*first, &broken] {
        let news = std::iter::from_fn(|| call.news.recv().ok());
        assert!(news.count() == 0 || call.news.recv().is_err());
    }
    assert!(first.handle.is_over() && !first.handle.end(EndRequest::Api));
    assert_eq!(bed.engine.live_calls(), 1);
    second.read_to("audio").unwrap();
    second.handle.end(EndRequest::Api);
    second.recorded().unwrap();
}

#[test]
fn calls_that_wait_for_a_thread_that_dies_are_over_and_later_ones_go_to_others() {
    let bed = Bed::new(2);
    // The listener of the first call keeps its thread busy until it is let go, so that all behind it waits.
    let (let_go, held) = unbounded::<()>();
    let busy = Mutex::new(Some(held));
    let (started, has_started) = unbounded();
    let _client = TcpStream::connect(bed.listener.local_addr().unwrap()).unwrap();
    let (socket, _) = bed.listener.accept().unwrap();
    let tell = Arc::new(move |_| {
        if let Some(held) = busy.lock().unwrap().take() {
            let _ = started.send(());
            let _ = held.recv();
        }
    });
    let first = bed.place(socket, config("busy"), (false, 1), tell).unwrap();
    has_started.recv_timeout(Duration::from_secs(20)).unwrap();
    // A call to each thread in turn, as long as the busy one takes none: those of the other run.
    let mut calls = Vec::new();
    for session in [
        "runs",
        faults::MEDIA,
        "runs-too",
        "waits",
        "runs-as-well",
        "waits-too",
    ] {
        calls.push((session, bed.call_with(config(session), false, 30).unwrap()));
    }
    assert_eq!(bed.engine.live_calls(), 7);
    let_go.send(()).unwrap();
    let name = fallen(&bed);
    assert_eq!(name, ("media-0".to_owned(), true));
    assert!(first.is_over());
    for (session, call) in &mut calls {
        let runs = session.starts_with("runs");
        if runs {
            call.read_to("audio").unwrap();
        } else {
            // Whoever follows it sees its news end.
            while call.news.recv_timeout(Duration::from_secs(20)).is_ok() {}
        }
        assert_eq!(call.handle.is_over(), !runs, "{session}");
        assert_eq!(call.handle.end(EndRequest::Api), runs, "{session}");
        if runs {
            assert_eq!(call.ended().reason, EndReason::EndedByApi);
            call.recorded().unwrap();
        }
    }
    assert_eq!(bed.engine.live_calls(), 0);
    // The dead thread has the fewest calls, and is given none.
    let mut later = Vec::new();
    for number in 1..=4 {
        let mut call = bed
            .call_with(config(&format!("later-{number}")), false, 30)
            .unwrap();
        call.read_to("audio").unwrap();
        later.push(call);
        assert_eq!(bed.engine.live_calls(), number);
    }
    // With the last one nobody takes calls, and who asks is told why.
    let broken = bed.call_with(config(faults::MEDIA), false, 1).unwrap();
    assert_eq!(fallen(&bed), ("media-1".to_owned(), true));
    assert!(broken.handle.is_over());
    let refused = bed.call_with(config("refused"), false, 1).err();
    assert_eq!(refused, Some(Refused::NoThread));
    assert_eq!(bed.engine.live_calls(), 0);
    bed.engine.shutdown(Duration::from_secs(5));
}

#[test]
fn a_thread_of_the_disk_that_dies_is_told_and_calls_go_on() {
    for (session, name) in [(faults::DISK, "disk"), (faults::FINISH, "finish")] {
        let bed = Bed::new(1);
        let mut first = bed.call("first");
        first.read_to("audio").unwrap();
        let mut broken = bed.call_with(config(session), false, 1).unwrap();
        broken.read_to("audio").unwrap();
        broken.handle.end(EndRequest::Api);
        assert_eq!(broken.ended().reason, EndReason::EndedByApi);
        // The one ends with the other, and may be found first.
        let mut found = fallen(&bed);
        if found.0 != name {
            found = fallen(&bed);
        }
        assert_eq!(found, (name.to_owned(), true));
        first.read_to("audio").unwrap();
        bed.engine.shutdown(Duration::from_secs(5));
        first.ended();
        assert!(bed.engine.fallen().is_none(), "an engine that was stopped");
    }
}
