//! A wire between two programs that a test can cut, or lead elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Carries bytes between whoever connects and its target.
pub struct Relay {
    address: SocketAddr,
    target: Arc<watch::Sender<Option<SocketAddr>>>,
}

impl Relay {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let target = Arc::new(watch::Sender::new(Some(target)));
        let sender = target.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, sender.subscribe()));
            }
        });
        Self { address, target }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection; new ones lead there, or nowhere.
    pub fn point(&self, target: Option<SocketAddr>) {
        self.target.send_replace(target);
    }
}

async fn carry(mut near: TcpStream, mut target: watch::Receiver<Option<SocketAddr>>) {
    let Some(address) = *target.borrow_and_update() else {
        return;
    };
    let Ok(mut far) = TcpStream::connect(address).await else {
        return;
    };
    tokio::select! {
        // Either end may close; then the wire is gone.
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = target.changed() => {}
    }
}
