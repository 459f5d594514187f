//! Kamailio between the telephone and the server: a proxy that stays in the way of every request of a call
//! (Record-Route), as a carrier's session border does.

use std::net::SocketAddr;

use crate::kamailio::Kamailio;

/// Passes calls on to this server.
pub(super) async fn proxy_to(target: SocketAddr) -> Kamailio {
    let routes = format!("    record_route();\n    $du = \"sip:{target}\";\n    t_relay();");
    Kamailio::start("", &routes).await
}
