//! A small HTTP/1.1 server whose answers can stall, break off and lie.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    /// The value of `authorization`, or nothing.
    pub key: String,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Asked {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<Step>,
    cut: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// The head goes out only after this.
    Hold(Duration),
}

impl Answer {
    pub fn ok(content_type: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            steps: Vec::new(),
            cut: false,
        }
    }

    /// A refusal with an error's body.
    pub fn status(status: u16) -> Self {
        let error = serde_json::json!({"error": {"message": "not now", "type": "x"}});
        Self::status_of(status, &error.to_string())
    }

    /// A refusal with this body.
    pub fn status_of(status: u16, body: &str) -> Self {
        Self {
            status,
            ..Self::ok("application/json")
        }
        .send(body)
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn send(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Send(bytes.into()));
        self
    }

    #[must_use]
    pub fn wait(mut self, time: Duration) -> Self {
        self.steps.push(Step::Wait(time));
        self
    }

    /// Answers nothing at all before this has passed.
    #[must_use]
    pub fn hold(mut self, time: Duration) -> Self {
        self.steps.insert(0, Step::Hold(time));
        self
    }

    /// Breaks the connection at its end instead of ending the body.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }
}

type Reply = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

/// A provider that answers requests.
pub struct HttpProvider {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    asked: Vec<Asked>,
    /// When clients went away in the middle of an answer.
    dropped: Vec<Instant>,
}

impl HttpProvider {
    /// A server that answers every request as `reply` says. `GET` of anything (a connection being
    /// warmed up) is answered with an empty list and not told.
    pub async fn start(reply: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let reply: Reply = Arc::new(reply);
        let server = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&reply), Arc::clone(&seen)));
                }
            }
        });
        Self {
            address,
            seen,
            server,
        }
    }

    /// The base URL, as it is configured.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.seen).asked.clone()
    }

    /// When clients went away in the middle of an answer, in order.
    pub fn dropped(&self) -> Vec<Instant> {
        lock(&self.seen).dropped.clone()
    }
}

impl Drop for HttpProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, for as many requests as come on it.
async fn serve(mut stream: TcpStream, reply: Reply, seen: Arc<Mutex<Seen>>) {
    let mut buffer = Vec::new();
    // Answers in pieces must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    while let Some(asked) = request(&mut stream, &mut buffer).await {
        let answer = if asked.path.starts_with("GET ") {
            Answer::ok("application/json").send(r#"{"object":"list","data":[]}"#)
        } else {
            lock(&seen).asked.push(asked.clone());
            reply(&asked)
        };
        if !answered(&mut stream, &answer).await {
            lock(&seen).dropped.push(Instant::now());
            return;
        }
        if answer.cut {
            return;
        }
    }
}

/// Reads one request: its head, and a body of `content-length` (or chunks, put together).
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Asked> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let at = Instant::now();
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end);
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let mut words = head.split_whitespace();
    let (method, path) = (words.next()?, words.next()?);
    let path = if method == "GET" {
        format!("GET {path}")
    } else {
        path.to_owned()
    };
    let mut body = Vec::new();
    if field("transfer-encoding").is_some() {
        loop {
            let line = line(stream, buffer).await?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            while buffer.len() < size + 2 {
                if stream.read_buf(buffer).await.ok()? == 0 {
                    return None;
                }
            }
            body.extend(buffer.drain(..size));
            buffer.drain(..2);
            if size == 0 {
                break;
            }
        }
    } else {
        let length = field("content-length").map_or(0, |text| text.parse().unwrap_or(0));
        while buffer.len() < length {
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        }
        body.extend(buffer.drain(..length));
    }
    Some(Asked {
        path,
        key: field("authorization").unwrap_or_default(),
        body,
        at,
    })
}

async fn line(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = buffer.windows(2).position(|w| w == b"\r\n") {
            let line = String::from_utf8_lossy(&buffer[..at]).into_owned();
            buffer.drain(..at + 2);
            return Some(line);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Writes the answer, chunked. `false`: the client went away first.
async fn answered(stream: &mut TcpStream, answer: &Answer) -> bool {
    let mut head = format!(
        "HTTP/1.1 {} Reason\r\ntransfer-encoding: chunked\r\n",
        answer.status
    );
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut head = Some(head);
    for step in &answer.steps {
        let time = match step {
            Step::Hold(time) => *time,
            Step::Wait(_) | Step::Send(_) => {
                if let Some(head) = head.take()
                    && stream.write_all(head.as_bytes()).await.is_err()
                {
                    return false;
                }
                match step {
                    Step::Wait(time) => *time,
                    Step::Hold(_) => Duration::ZERO,
                    Step::Send(bytes) => {
                        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                        chunk.extend(bytes);
                        chunk.extend(b"\r\n");
                        if !bytes.is_empty() && stream.write_all(&chunk).await.is_err() {
                            return false;
                        }
                        continue;
                    }
                }
            }
        };
        if left(stream, time).await {
            return false;
        }
    }
    if let Some(head) = head
        && stream.write_all(head.as_bytes()).await.is_err()
    {
        return false;
    }
    if answer.cut {
        // What was sent arrives before the end does.
        sleep(Duration::from_millis(20)).await;
        return true;
    }
    stream.write_all(b"0\r\n\r\n").await.is_ok()
}

/// Waits; whether the client went away meanwhile.
async fn left(stream: &TcpStream, time: Duration) -> bool {
    let gone = async {
        loop {
            if stream.readable().await.is_err() {
                return;
            }
            let mut byte = [0; 1];
            match stream.peek(&mut byte).await {
                Ok(0) | Err(_) => return,
                // A client that sends its next request already stays.
                Ok(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(time, gone).await.is_ok()
}
