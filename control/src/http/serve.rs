//! The accept loop: HTTP/1.1 and HTTP/2 on one port, in TLS where the settings want it, with a bound on everything that a peer can
//! hold: connections in all and per address, the time for the headers, the silence within a body,
//! the time a reader may stall, streams and resets of HTTP/2.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

use super::auth::ClientAddress;
use super::tls::{self, Greeting};
use crate::config::Server;
use crate::config::proxies::Proxies;
use crate::supervisor;

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the first bytes, and for the headers of each request.
    pub headers: Duration,
    /// The longest silence within a body.
    pub body: Duration,
    /// For a whole body: the largest, over a slow line. A byte now and then does not hold what came before it.
    pub whole_body: Duration,
    /// The longest time that it may not read what we write.
    pub write: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let ten = Duration::from_secs(10);
        Self {
            headers: ten,
            body: ten,
            whole_body: 6 * ten,
            write: ten,
        }
    }
}

/// Requests of one HTTP/2 connection at the same time.
const MAX_STREAMS: u32 = 100;
/// Streams that a peer opened and reset before they were taken, and resets that we had to answer
/// with: beyond these the connection is closed (CVE-2023-44487 and its kin).
const MAX_RESETS: usize = 20;
/// Connections that are still at work get this long after the end was announced.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves until `stop` becomes true, then lets requests that are under way finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &Server,
    patience: Patience,
    stop: watch::Receiver<bool>,
) {
    serve_with(listener, router, settings, (patience, None), stop).await;
}

/// As [`serve`], in TLS if there is something to greet with.
pub async fn serve_with(
    listener: TcpListener,
    router: Router,
    settings: &Server,
    (patience, tls): (Patience, Option<Greeting>),
    mut stop: watch::Receiver<bool>,
) {
    let slots = Arc::new(Slots::new(
        settings.max_connections,
        settings.max_connections_per_ip,
    ));
    let proxies = Arc::new(settings.trusted_proxies.clone());
    // Its clones live in the connections: when all are gone, `closed` says so.
    let (alive, _) = watch::channel(());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Over a cap the connection is closed at once: an answer would cost what the cap saves.
                if let Some(slot) = slots.take(peer.ip()) {
                    let (router, tls) = (router.clone(), tls.clone());
                    let from = (peer, proxies.clone());
                    let (stop, alive) = (stop.clone(), alive.subscribe());
                    supervisor::detached("a connection", async move {
                        match greeted(stream, tls.as_ref(), patience).await {
                            Ok(stream) => {
                                let connection = Connection::new(stream, slot, patience.write);
                                run(connection, from, router, patience, stop, alive).await;
                            }
                            Err(error) => tracing::debug!(%peer, %error, "no TLS handshake"),
                        }
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: give others time to close some.
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if timeout(LAST_ANSWERS, alive.closed()).await.is_err() {
        tracing::warn!("some connections were still busy at the end");
    }
}

/// The handshake, where there is one, within the time for headers.
async fn greeted(
    stream: TcpStream,
    tls: Option<&Greeting>,
    patience: Patience,
) -> io::Result<Stream> {
    // Answers are written whole, so waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    match tls {
        None => Ok(Stream::Plain(stream)),
        Some(tls) => match timeout(patience.headers, tls.greet(stream)).await {
            Ok(greeted) => Ok(Stream::Tls(Box::new(greeted?))),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        },
    }
}

async fn run(
    mut connection: Connection,
    (peer, proxies): (SocketAddr, Arc<Proxies>),
    router: Router,
    patience: Patience,
    mut stop: watch::Receiver<bool>,
    _alive: watch::Receiver<()>,
) {
    let Ok(Ok(is_h2)) = timeout(patience.headers, connection.sniff()).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(|body| axum::body::Body::new(Impatient::new(body, patience)));
        let client = proxies.client(peer.ip(), request.headers());
        request.extensions_mut().insert(ClientAddress(client));
        router.clone().oneshot(request)
    });
    let io = TokioIo::new(connection);
    let result = if is_h2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_pending_accept_reset_streams(MAX_RESETS)
            .max_local_error_reset_streams(MAX_RESETS)
            .max_header_list_size(64 * 1024)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10));
        let mut serving = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            result = serving.as_mut() => result,
            () = told(&mut stop) => { serving.as_mut().graceful_shutdown(); serving.await }
        }
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(patience.headers)
            // Wider than what `envelope` takes, so that it can answer 431 in the usual shape.
            .max_headers(256)
            .max_buf_size(128 * 1024);
        let mut serving = std::pin::pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            result = serving.as_mut() => result,
            () = told(&mut stop) => { serving.as_mut().graceful_shutdown(); serving.await }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// Waits for the word to stop; a sender that is gone means the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.map(drop).ok();
}

/// What bytes come and go through.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that has left the HTTP server.
#[derive(Debug)]
pub struct Taken {
    /// Nonblocking.
    pub stream: std::net::TcpStream,
    /// What was read of it already.
    pub leftover: Vec<u8>,
    /// To be kept until `stream` is closed: the connection counts among those of its address as long.
    pub slot: Option<Slot>,
}

/// One connection as the HTTP server sees it.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Bytes that were read to tell the protocols apart.
    prefix: Vec<u8>,
    /// Since when the peer does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    slot: Slot,
}

impl Connection {
    const fn new(stream: Stream, slot: Slot, patience: Duration) -> Self {
        Self {
            stream,
            prefix: Vec::new(),
            stalled: None,
            patience,
            slot,
        }
    }

    /// Reads until it is clear which protocol this is: true for HTTP/2 (RFC 9113 section 3.4).
    async fn sniff(&mut self) -> io::Result<bool> {
        while PREFACE.starts_with(&self.prefix) && self.prefix.len() < PREFACE.len() {
            let mut bytes = [0; 24];
            let room = PREFACE.len() - self.prefix.len();
            let read = match &mut self.stream {
                Stream::Plain(stream) => stream.read(&mut bytes[..room]).await?,
                Stream::Tls(stream) => stream.read(&mut bytes[..room]).await?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.prefix.extend_from_slice(&bytes[..read]);
        }
        Ok(self.prefix == PREFACE)
    }

    /// A raw socket (nonblocking) that carries what this connection does, and bytes of it that nobody
    /// has consumed.
    pub async fn into_plain(self) -> io::Result<Taken> {
        let (stream, slot) = match self.stream {
            Stream::Plain(stream) => (stream.into_std()?, Some(self.slot)),
            // The task that carries its bytes has the slot: the connection closes with it.
            Stream::Tls(stream) => (tls::plain_end(*stream, self.slot).await?, None),
        };
        Ok(Taken {
            stream,
            leftover: self.prefix,
            slot,
        })
    }

    fn write_result(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let patience = self.patience;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let count = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix[..count]);
            self.prefix.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.write_result(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.write_result(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A request body that fails after its patience without a byte, or without the last one.
struct Impatient {
    inner: Incoming,
    idle: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    ends: Instant,
}

impl Impatient {
    fn new(inner: Incoming, patience: Patience) -> Self {
        Self {
            inner,
            idle: None,
            patience: patience.body,
            ends: Instant::now() + patience.whole_body,
        }
    }
}

impl Body for Impatient {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let until = (Instant::now() + self.patience).min(self.ends);
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(idle) = &mut self.idle {
                    idle.as_mut().reset(until);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let idle = self
                    .idle
                    .get_or_insert_with(|| Box::pin(sleep_until(until)));
                ready!(idle.as_mut().poll(cx));
                Poll::Ready(Some(Err("no byte of the body came in time".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// How many connections there are, in all and per address.
#[derive(Debug)]
struct Slots {
    max: usize,
    max_per_ip: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    /// Has an entry only for addresses with a connection, so `max` bounds it.
    by_ip: HashMap<IpAddr, usize>,
}

/// The place of one connection among those that there may be, in all and from its address; free again when
/// dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    ip: IpAddr,
}

impl Slots {
    fn new(max: usize, max_per_ip: usize) -> Self {
        Self {
            max,
            max_per_ip,
            held: Mutex::default(),
        }
    }

    fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Slot> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of_ip = held.by_ip.get(&ip).copied().unwrap_or(0);
        if held.all >= self.max || of_ip >= self.max_per_ip {
            return None;
        }
        held.all += 1;
        held.by_ip.insert(ip, of_ip + 1);
        Some(Slot {
            slots: Arc::clone(self),
            ip,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut held = self
            .slots
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        held.all = held.all.saturating_sub(1);
        if let Some(count) = held.by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                held.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
pub(super) mod tests;
