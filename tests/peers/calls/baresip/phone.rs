//! baresip as a caller, and as one who is called: a process that is told what to do over its control port and tells what
//! happens.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kit::ports::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// No single step takes longer on loopback, beside other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// How it calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account<'a> {
    /// The codec that it offers, as its accounts name it.
    pub(super) codec: &'a str,
    /// `udp`, `tcp` or `tls`.
    pub(super) transport: &'a str,
    /// `srtp-mand` demands encryption.
    pub(super) encryption: Option<&'a str>,
    /// The file of authorities that are trusted.
    pub(super) authority: Option<&'a Path>,
    /// The number under which it takes calls at once, and the file with its certificate and key.
    pub(super) answers: Option<(&'a str, &'a Path)>,
}

/// A telephone with one line.
pub(super) struct Phone {
    folder: TempDir,
    /// Where it is called over UDP and TCP, and over TLS.
    pub(super) sip: SocketAddr,
    pub(super) tls: SocketAddr,
    control: TcpStream,
    received: Vec<u8>,
    /// What it told that nobody has waited for yet.
    told: Vec<Value>,
    _process: Child,
}

impl Phone {
    /// A telephone that says `sound` (16 kHz) as soon as a call is up. Its ports are drawn, and it takes one
    /// beside them for TLS: when another process is faster, others are drawn.
    pub(super) async fn start(account: Account<'_>, sound: &[i16]) -> Self {
        for _ in 0..4 {
            match Self::try_start(account, sound).await {
                Ok(phone) => return phone,
                Err(log) => assert!(log.contains("Address already in use"), "{log}"),
            }
        }
        panic!("four times another process had one of the ports that were drawn");
    }

    /// The log of a telephone that ended before it could be told anything.
    async fn try_start(account: Account<'_>, sound: &[i16]) -> Result<Self, String> {
        let folder = TempDir::new().unwrap();
        let (control, sip) = (free_port(), free_port());
        write(folder.path(), account, (control, sip), sound);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut process = Command::new("baresip")
            .arg("-f")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("baresip is missing: run `bash scripts/setup.sh test`");
        let until = Instant::now() + PATIENCE;
        let control = loop {
            match TcpStream::connect(("127.0.0.1", control)).await {
                Ok(stream) => break stream,
                Err(error) => {
                    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
                    if process.try_wait().unwrap().is_some() {
                        return Err(log);
                    }
                    assert!(Instant::now() < until, "{error}: {log}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        };
        Ok(Self {
            folder,
            sip: SocketAddr::from(([127, 0, 0, 1], sip)),
            tls: SocketAddr::from(([127, 0, 0, 1], sip + 1)),
            control,
            received: Vec::new(),
            told: Vec::new(),
            _process: process,
        })
    }

    /// Gives a command: a netstring with JSON.
    pub(super) async fn tell(&mut self, command: &str, params: &str) {
        let text = json!({"command": command, "params": params, "token": command}).to_string();
        let netstring = format!("{}:{text},", text.len());
        self.control.write_all(netstring.as_bytes()).await.unwrap();
    }

    /// Reads on until an event of this type.
    pub(super) async fn until(&mut self, kind: &str) -> Value {
        let hit = |told: &Value| told["type"] == kind;
        if let Some(at) = self.told.iter().position(hit) {
            return self.told.remove(at);
        }
        loop {
            let told = timeout(PATIENCE, self.next())
                .await
                .unwrap_or_else(|_| panic!("no {kind}, but {:?}; {}", self.told, self.log()));
            if hit(&told) {
                return told;
            }
            self.told.push(told);
        }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some(colon) = self.received.iter().position(|byte| *byte == b':') {
                let length = std::str::from_utf8(&self.received[..colon]).unwrap();
                let end = colon + 1 + length.parse::<usize>().unwrap();
                if self.received.len() > end {
                    let told = serde_json::from_slice(&self.received[colon + 1..end]).unwrap();
                    self.received.drain(..=end);
                    return told;
                }
            }
            let mut buffer = [0; 4_096];
            let read = self.control.read(&mut buffer).await.unwrap();
            assert!(read > 0, "baresip is gone: {}", self.log());
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// What it heard in its call, once that is over: mono, and the rate of the codec.
    pub(super) fn heard(&self) -> (Vec<i16>, u32) {
        let dump = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with("-dec.wav"))
            .unwrap_or_else(|| panic!("no sound was kept: {}", self.log()));
        let reader = hound::WavReader::open(dump).unwrap();
        let spec = reader.spec();
        let samples = reader.into_samples().map(Result::unwrap);
        (
            samples.step_by(spec.channels.into()).collect(),
            spec.sample_rate,
        )
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// Writes its settings, its account and the sound that it says.
fn write(folder: &Path, account: Account<'_>, (control, sip): (u16, u16), sound: &[i16]) {
    let said = folder.join("said.wav");
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut wav = hound::WavWriter::create(&said, spec).unwrap();
    for sample in sound {
        wav.write_sample(*sample).unwrap();
    }
    wav.finalize().unwrap();
    let mut config = format!(
        "module_path {modules}\nsip_listen 127.0.0.1:{sip}\nnet_interface 127.0.0.1\nctrl_tcp_listen 127.0.0.1:{control}\n\
         audio_source aufile,{said}\nausrc_srate 16000\nausrc_channels 1\nsnd_path {folder}\n\
         rtcp_mux yes\n",
        modules = modules().display(),
        said = said.display(),
        folder = folder.display(),
    );
    if let Some(authority) = account.authority {
        writeln!(config, "sip_cafile {}", authority.display()).unwrap();
    }
    if let Some((_, certificate)) = account.answers {
        writeln!(config, "sip_certificate {}", certificate.display()).unwrap();
    }
    for module in ["g711", "g722", "opus", "aufile", "sndfile", "srtp"] {
        writeln!(config, "module {module}.so").unwrap();
    }
    for module in ["account", "menu", "ctrl_tcp"] {
        writeln!(config, "module_app {module}.so").unwrap();
    }
    std::fs::write(folder.join("config"), config).unwrap();
    let Account {
        codec, transport, ..
    } = account;
    let encryption = account
        .encryption
        .map_or(String::new(), |kind| format!(";mediaenc={kind}"));
    let (user, answers) = match account.answers {
        Some((number, _)) => (number, ";answermode=auto"),
        None => ("caller", ""),
    };
    let line = format!(
        "<sip:{user}@127.0.0.1;transport={transport}>;regint=0;audio_codecs={codec}{encryption}{answers}\n"
    );
    std::fs::write(folder.join("accounts"), line).unwrap();
    std::fs::write(folder.join("contacts"), "").unwrap();
}

/// Where the system keeps its modules.
fn modules() -> PathBuf {
    let places = ["/usr/lib/baresip/modules", "/usr/local/lib/baresip/modules"].map(PathBuf::from);
    let multiarch = std::fs::read_dir("/usr/lib").unwrap();
    let multiarch = multiarch.map(|entry| entry.unwrap().path().join("baresip/modules"));
    let found = places
        .into_iter()
        .chain(multiarch)
        .find(|place| place.is_dir());
    found.expect("baresip has modules")
}
