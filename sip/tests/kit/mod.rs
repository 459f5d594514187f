//! What tests with a real peer share: loopback, and who is trusted there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use sip::event::Command;
use sip::message::{Host, Transport};
use sip::shell::Sip;
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};

pub(crate) fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// A carrier on loopback.
pub(crate) fn trunk_to(port: u16, transport: Transport) -> Trunk {
    Trunk {
        id: TrunkId(1),
        tenant: Tenant::default(),
        host: Some(Host::Ip(loopback())),
        port: Some(port),
        transport,
        allowed: vec![Net::parse("127.0.0.1").unwrap()],
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        outbound: Outbound::Host,
        register: None,
        registrar_realms: RegistrarRealms::Unknown,
        keep_alive: None,
    }
}

pub(crate) fn trust_loopback(sip: &Sip, port: u16, transport: Transport) {
    sip.command(Command::SetTrunk(Box::new(trunk_to(port, transport))))
        .unwrap();
    // The command and the next datagram reach the thread over two ways.
    std::thread::sleep(Duration::from_millis(100));
}

/// A request that is in order.
pub(crate) fn request(method: &str, from: SocketAddr) -> String {
    format!(
        "{method} sip:service@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{method};rport\r\n\
         From: <sip:probe@127.0.0.1>;tag=1\r\nTo: <sip:service@127.0.0.1>\r\nCall-ID: probe\r\n\
         CSeq: 1 {method}\r\nMax-Forwards: 70\r\nContact: <sip:probe@{from}>\r\nContent-Length: 0\r\n\r\n"
    )
}

pub(crate) fn free_port() -> u16 {
    UdpSocket::bind((loopback(), 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
