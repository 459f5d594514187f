//! After warm-up a media thread takes nothing from the heap for a frame: socket, call, recording, tape.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by failing")]

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use benches_kit::allocated;
use benches_kit::providers::{Silent, Talking};
use media::audio::tones::noise;
use media::call::input::EndRequest;
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::shell::{CallNews, Carrier, Engine, EngineConfig, NewCall};
use media::speech::{Providers, Recogniser, UtteranceId};
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

/// Frames of the caller's voice, of which the first are warm-up.
const FRAMES: usize = 400;
const WARM_UP: usize = 150;

/// Frames at which something else happens: a reply is asked for, or ends.
const MOST_TURNS: usize = 8;

/// Messages that the caller sends again and again.
const LOOP: u64 = 25;

/// What the media thread had allocated at each frame of voice.
struct Counts {
    next: AtomicUsize,
    counts: Vec<AtomicU64>,
}

struct Listening(Arc<Counts>);

impl Recogniser for Listening {
    fn begin(&mut self, _: UtteranceId) {}
    fn audio(&mut self, _: UtteranceId, _: &[i16]) {
        let place = self.0.next.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.0.counts.get(place) {
            count.store(allocated(), Ordering::Relaxed);
        }
    }
    fn finish(&mut self, _: UtteranceId) {}
    fn cancel(&mut self, _: UtteranceId) {}
}

#[test]
fn a_frame_both_ways_over_a_socket_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let spool_dir = folder.path().to_owned();
    let engine = Engine::start(EngineConfig {
        threads: 1,
        node_calls: 4,
        spool_dir,
        min_free: 0,
        lead_ms: 60,
        webrtc: None,
        priority: 0,
    })
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let counts = Arc::new(Counts {
        next: AtomicUsize::new(0),
        counts: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
    });
    let listening = Listening(counts.clone());
    let (sender, news) = mpsc::channel();
    let call = engine
        .place(NewCall {
            config: config(),
            carrier: Carrier::Socket {
                stream: listener.accept().unwrap().0,
                leftover: Vec::new(),
                held: None,
            },
            providers: Box::new(move |sink| Providers {
                stt: Box::new(listening),
                llm: Box::new(Silent),
                tts: Box::new(Talking { sink, seconds: 15 }),
            }),
            on_event: Arc::new(move |event| {
                let _ = sender.send(event);
            }),
        })
        .unwrap();
    let messages: Vec<String> = (0..LOOP).map(message).collect();
    let mut ws = WebSocket::from_raw_socket(client, Role::Client, None);
    let mut next = messages.iter().cycle();
    // The agent's frames, which come every 20 ms, keep the caller's time.
    while counts.next.load(Ordering::Relaxed) < FRAMES {
        if let Message::Text(text) = ws.read().unwrap()
            && text.contains(r#""audio":"#)
        {
            ws.send(Message::text(next.next().unwrap().clone()))
                .unwrap();
        }
    }
    call.end(EndRequest::Api);
    let recorded = news.iter().find_map(|event| match event {
        CallNews::Recorded(recorded) => Some(recorded),
        _ => None,
    });
    assert_eq!(recorded.unwrap().unwrap().gap_ms, 0);
    let counts: Vec<u64> = counts
        .counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect();
    // A turn of the talk may allocate, a frame may not: the count stands still but for a few frames.
    let grown: Vec<usize> = (WARM_UP + 1..FRAMES)
        .filter(|frame| counts[*frame] != counts[frame - 1])
        .collect();
    assert!(grown.len() <= MOST_TURNS, "allocates at frames {grown:?}");
}

/// 20 ms of the caller: loud noise with a short stop each half second, which the detector takes for a
/// voice.
fn message(at: u64) -> String {
    let samples = noise(at, if at < 4 { -50.0 } else { -20.0 }, 320);
    let bytes: Vec<u8> = samples.into_iter().flat_map(i16::to_le_bytes).collect();
    let audio = base64_simd::STANDARD.encode_to_string(bytes);
    format!(r#"{{"type":"audio","audio":"{audio}"}}"#)
}

fn config() -> CallConfig {
    CallConfig {
        session_id: "steady".to_owned(),
        agent_id: "agent".to_owned(),
        direction: Direction::Inbound,
        protocol: Protocol::Native,
        audio_format: AudioFormat::Pcm16000,
        agent: AgentConfig {
            first_message: Some("A long story.".to_owned()),
            // Both sides speak: the caller never long enough to interrupt.
            barge_in_min_speech_secs: 600.0,
            ..AgentConfig::default()
        },
        recording: true,
        events: OptionalEvents::default(),
        vad: VadKind::Energy,
        lead_ms: 60,
    }
}
