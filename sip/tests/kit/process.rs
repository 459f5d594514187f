//! SIPp as a process, and our stack as it meets it.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sip::endpoint::Config;
use sip::event::{Command, Event};
use sip::message::{Body, Transport};
use sip::shell::{Listen, Settings, Sip};

use crate::kit::{loopback, trust_loopback};

pub(crate) const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                       m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// The number of this machine's last processor.
static LAST: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(0, |all| all.get() - 1));

/// Whether times are to be told: then our stack has the first processor for itself, and its peers share the last.
pub(crate) fn times_are_told() -> bool {
    std::env::var_os("SIDETONE_SIPP_RATE").is_some()
}

/// A program that our stack meets.
pub(crate) fn peer(program: &str) -> Process {
    if !times_are_told() {
        return Process::new(program);
    }
    let mut peer = Process::new("taskset");
    peer.args(["-c", &LAST.to_string(), program]);
    peer
}

/// Takes the first processor, where times are to be told and there are two.
pub(crate) fn take_the_first_processor() {
    if *LAST > 0 && times_are_told() {
        let own = std::process::id().to_string();
        let pinned = Process::new("taskset").args(["-apc", "0", &own]).output();
        assert!(pinned.unwrap().status.success(), "taskset fails");
    }
}

/// Our stack on a free port.
pub(crate) fn start(transport: Transport) -> Sip {
    let mut endpoint = Config::new(Vec::new());
    endpoint.session_expires = 0;
    Sip::start(Settings {
        endpoint,
        seed: [9; 32],
        listen: vec![Listen {
            transport,
            addr: SocketAddr::new(loopback(), 0),
        }],
        tls: None,
        dns: Vec::new(),
    })
    .unwrap()
}

/// What the user of our stack heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) incoming: u32,
    pub(crate) established: u32,
    pub(crate) ended: u32,
}

/// A user that answers every call at once.
pub(crate) struct Answering {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

impl Answering {
    pub(crate) fn start(sip: Sip, port: u16, transport: Transport) -> Self {
        trust_loopback(&sip, port, transport);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut heard = Heard::default();
            let answer = Body::sdp(SDP);
            loop {
                match sip.events().recv_timeout(Duration::from_millis(200)) {
                    Ok(Event::Incoming(call, _)) => {
                        heard.incoming += 1;
                        sip.command(Command::Answer(call, answer.clone())).unwrap();
                    }
                    Ok(Event::Established { .. }) => heard.established += 1,
                    Ok(Event::Ended { .. }) => heard.ended += 1,
                    Ok(_) => {}
                    Err(_) if stopped.load(Ordering::Acquire) => return heard,
                    Err(_) => {}
                }
            }
        });
        Self { stop, thread }
    }

    /// Stops once nothing has happened for a moment.
    pub(crate) fn stop(self) -> Heard {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// What SIPp says at its end.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) successful: u32,
    pub(crate) failed: u32,
    pub(crate) text: String,
}

/// A SIPp that runs, ended when this is dropped.
pub(crate) struct Sipp(Child);

impl Sipp {
    pub(crate) fn start(transport: Transport, arguments: &[&str]) -> Self {
        let way = match transport {
            Transport::Udp => "u1",
            Transport::Tcp => "t1",
            Transport::Tls => "l1",
        };
        let child = peer("sipp")
            .args(["-i", "127.0.0.1", "-t", way, "-nostdin", "-timeout", "120s"])
            .args(arguments)
            .current_dir(std::env::temp_dir())
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("sipp does not start ({error}): `scripts/setup.sh test` installs it")
            });
        Self(child)
    }

    /// Until something listens on that port of loopback.
    pub(crate) fn wait_for_port(&self, transport: Transport, port: u16) {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            let taken = match transport {
                Transport::Udp => UdpSocket::bind((loopback(), port)).is_err(),
                _ => TcpStream::connect((loopback(), port)).is_ok(),
            };
            if taken {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("sipp does not listen on {port}");
    }

    /// Waits for its end, and reads what it says.
    pub(crate) fn finish(mut self) -> Report {
        let mut text = Vec::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        self.0.wait().unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        Report {
            successful: last_number(&text, "Successful call"),
            failed: last_number(&text, "Failed call"),
            text: text.lines().rev().take(60).collect::<Vec<_>>().join("\n"),
        }
    }
}

impl Drop for Sipp {
    fn drop(&mut self) {
        // It has ended already, as a rule.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

pub(crate) fn sipp(transport: Transport, arguments: &[&str]) -> Report {
    Sipp::start(transport, arguments).finish()
}

/// The cumulative number in the last line of SIPp's table that begins so.
fn last_number(text: &str, name: &str) -> u32 {
    text.lines()
        .rev()
        .find(|line| line.trim_start().starts_with(name))
        .and_then(|line| line.rsplit('|').next()?.trim().parse().ok())
        .unwrap_or(u32::MAX)
}
