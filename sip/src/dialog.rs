//! Dialogs (RFC 3261 12): what both sides of a call remember of each other.

use crate::message::{CSeq, Headers, Method, Name, NameAddr, Request, Response, Uri};

/// Hops that a request of ours may take (RFC 3261 8.1.1.6).
pub const MAX_FORWARDS: &str = "70";

/// What proves who we are.
pub(crate) const CREDENTIALS: [Name; 2] = [Name::Authorization, Name::ProxyAuthorization];

/// One dialog, early or confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialog {
    pub call_id: String,
    pub local_tag: String,
    /// Empty for a peer of RFC 2543 that sends none.
    pub remote_tag: String,
    /// From of our requests, with our tag.
    local: NameAddr,
    /// To of our requests.
    remote: NameAddr,
    local_seq: u32,
    remote_seq: Option<u32>,
    target: Uri,
    routes: Vec<NameAddr>,
}

/// A request of the dialog that comes out of order: 500 (RFC 3261 12.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl Dialog {
    /// The dialog that our answer to `request` makes (12.1.1). `None` when the request says not where
    /// its sender can be reached.
    pub fn as_server(request: &Request, local_tag: &str) -> Option<Self> {
        let from = request.from()?;
        Some(Self {
            call_id: request.call_id().to_owned(),
            local_tag: local_tag.to_owned(),
            remote_tag: from.tag().unwrap_or_default().to_owned(),
            local: request.to()?.with_tag(local_tag),
            remote: from,
            local_seq: 0,
            remote_seq: Some(request.cseq()?.number),
            target: request.contact()?.uri,
            routes: routes(&request.headers).collect(),
        })
    }

    /// The dialog that `response` to our `request` makes (12.1.2).
    pub fn as_client(request: &Request, response: &Response) -> Option<Self> {
        let from = request.from()?;
        let to = response.headers.get(&Name::To).and_then(NameAddr::parse)?;
        let mut routes: Vec<NameAddr> = routes(&response.headers).collect();
        routes.reverse();
        Some(Self {
            call_id: request.call_id().to_owned(),
            local_tag: from.tag()?.to_owned(),
            remote_tag: to.tag().unwrap_or_default().to_owned(),
            local: from,
            remote: to,
            local_seq: request.cseq()?.number,
            remote_seq: None,
            // Without a Contact (a 1xx may lack one) the peer stays where the request went.
            target: response
                .contact()
                .map_or_else(|| request.uri.clone(), |contact| contact.uri),
            routes,
        })
    }

    /// The next request of ours in this dialog, without Via and Contact.
    pub fn request(&mut self, method: Method) -> Request {
        self.local_seq += 1;
        self.build(method, self.local_seq)
    }

    /// The ACK of a 2xx to that INVITE: it bears the INVITE's number and credentials (13.2.2.4), for nobody
    /// can ask for them. `None` for a request without a number.
    pub fn ack(&self, invite: &Request) -> Option<Request> {
        let mut ack = self.build(Method::Ack, invite.cseq()?.number);
        for name in CREDENTIALS {
            ack.headers.copy(&name, &invite.headers);
        }
        Some(ack)
    }

    /// Takes the next sequence number, for a request that is sent again with credentials.
    pub fn next_seq(&mut self) -> u32 {
        self.local_seq += 1;
        self.local_seq
    }

    fn build(&self, method: Method, number: u32) -> Request {
        let (uri, routes, strict) = self.way();
        let mut request = Request::new(method.clone(), uri);
        request.strict = strict;
        let headers = &mut request.headers;
        for route in routes {
            headers.push(Name::Route, route.to_string());
        }
        headers.push(Name::MaxForwards, MAX_FORWARDS);
        headers.push(Name::From, self.local.to_string());
        headers.push(Name::To, self.remote.to_string());
        headers.push(Name::CallId, self.call_id.as_str());
        headers.push(Name::CSeq, CSeq { number, method }.to_string());
        request
    }

    /// The Request-URI and the Route fields (12.2.1.1): a first route without `lr` is a strict
    /// router, which wants to be the Request-URI itself. The last says whether it is one.
    fn way(&self) -> (Uri, Vec<NameAddr>, bool) {
        let Some(first) = self.routes.first() else {
            return (self.target.clone(), Vec::new(), false);
        };
        match &first.uri {
            Uri::Sip(strict) if !strict.is_loose_router() => {
                let mut uri = strict.clone();
                uri.params.remove("method");
                uri.headers = None;
                let mut routes = self.routes[1..].to_vec();
                routes.push(NameAddr::new(self.target.clone()));
                (Uri::Sip(uri), routes, true)
            }
            _ => (self.target.clone(), self.routes.clone(), false),
        }
    }

    /// Whether `request` may be served now; remembers its number. ACK carries its INVITE's.
    pub fn receive(&mut self, request: &Request) -> Result<(), Stale> {
        let number = request.cseq().ok_or(Stale)?.number;
        if request.method == Method::Ack {
            return Ok(());
        }
        if self.remote_seq.is_some_and(|last| number <= last) {
            return Err(Stale);
        }
        self.remote_seq = Some(number);
        Ok(())
    }

    /// A target refresh: the Contact of a re-INVITE, an UPDATE or of a 2xx to one of ours (12.2.1.2).
    pub fn refresh(&mut self, contact: Option<NameAddr>) {
        if let Some(contact) = contact {
            self.target = contact.uri;
        }
    }

    /// Takes the route set and target of the final response, which rule over those of earlier ones
    /// (13.2.2.4).
    pub fn confirm(&mut self, response: &Response) {
        let mut found: Vec<NameAddr> = routes(&response.headers).collect();
        found.reverse();
        self.routes = found;
        self.refresh(response.contact());
    }

    /// Whether a message with these tags is of this dialog.
    pub fn is_with(&self, remote_tag: &str) -> bool {
        self.remote_tag == remote_tag
    }

    /// The other side as its From or To named it, without a tag.
    pub fn remote(&self) -> &NameAddr {
        &self.remote
    }
}

fn routes(headers: &Headers) -> impl Iterator<Item = NameAddr> {
    headers.list(&Name::RecordRoute).filter_map(NameAddr::parse)
}

/// Where a request goes first: its topmost Route, or its Request-URI (8.1.2). A strict router stands
/// in the Request-URI already, before routers that are loose. A route of another scheme leads nowhere, and no request
/// goes past it.
pub fn next_hop(request: &Request) -> Uri {
    let mut routes = request.headers.list(&Name::Route);
    let route = match request.strict {
        true => None,
        false => routes.next().and_then(NameAddr::parse),
    };
    match route.map(|route| route.uri) {
        Some(Uri::Sip(router)) if router.is_loose_router() => Uri::Sip(router),
        Some(Uri::Other(other)) => Uri::Other(other),
        _ => request.uri.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::message::parse::{Framing, parse};

    fn request(text: &str) -> Request {
        let text = text.replace('\n', "\r\n");
        match parse(text.as_bytes(), Framing::Datagram) {
            Ok(Some(Message::Request(request))) => request,
            other => unreachable!("{other:?}"),
        }
    }

    fn invite(record_routes: &str) -> Request {
        request(&format!(
            "INVITE sip:agent@192.0.2.1 SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\n\
             {record_routes}From: <sip:caller@example.com>;tag=far\nTo: <sip:agent@example.org>\n\
             Call-ID: one\nCSeq: 7 INVITE\nMax-Forwards: 70\n\
             Contact: <sip:caller@192.0.2.9:5070>\n\n"
        ))
    }

    fn routes_of(request: &Request) -> Vec<&str> {
        request.headers.all(&Name::Route).collect()
    }

    #[test]
    fn without_routes_a_request_goes_to_the_contact() {
        let mut dialog = Dialog::as_server(&invite(""), "near").unwrap();
        let bye = dialog.request(Method::Bye);
        assert_eq!(bye.uri.to_string(), "sip:caller@192.0.2.9:5070");
        assert!(routes_of(&bye).is_empty());
        assert_eq!(bye.headers.get(&Name::CSeq), Some("1 BYE"));
        assert_eq!(
            bye.headers.get(&Name::From),
            Some("<sip:agent@example.org>;tag=near")
        );
        assert_eq!(
            bye.headers.get(&Name::To),
            Some("<sip:caller@example.com>;tag=far")
        );
    }

    #[test]
    fn loose_routers_stand_in_route_in_the_order_that_the_server_saw() {
        let mut dialog = Dialog::as_server(
            &invite("Record-Route: <sip:p2.example.com;lr>, <sip:p1.example.com;lr>\n"),
            "near",
        )
        .unwrap();
        let bye = dialog.request(Method::Bye);
        assert_eq!(bye.uri.to_string(), "sip:caller@192.0.2.9:5070");
        assert_eq!(
            routes_of(&bye),
            ["<sip:p2.example.com;lr>", "<sip:p1.example.com;lr>"]
        );
        assert_eq!(next_hop(&bye).to_string(), "sip:p2.example.com;lr");
    }

    #[test]
    fn a_strict_router_becomes_the_request_uri() {
        let mut dialog = Dialog::as_server(
            &invite(
                "Record-Route: <sip:strict.example.com>\nRecord-Route: <sip:p1.example.com;lr>\n",
            ),
            "near",
        )
        .unwrap();
        let bye = dialog.request(Method::Bye);
        assert_eq!(bye.uri.to_string(), "sip:strict.example.com");
        assert_eq!(
            routes_of(&bye),
            ["<sip:p1.example.com;lr>", "<sip:caller@192.0.2.9:5070>"]
        );
        assert_eq!(next_hop(&bye).to_string(), "sip:strict.example.com");
    }

    #[test]
    fn a_client_sees_the_routes_the_other_way_round() {
        let sent = invite("");
        let mut response = Response::to(&sent.headers, 200, "");
        response.set_to_tag("there");
        for route in ["<sip:p2.example.com;lr>", "<sip:p1.example.com;lr>"] {
            response.headers.push(Name::RecordRoute, route);
        }
        response
            .headers
            .push(Name::Contact, "<sip:callee@192.0.2.77>");
        let mut dialog = Dialog::as_client(&sent, &response).unwrap();
        let bye = dialog.request(Method::Bye);
        assert_eq!(
            routes_of(&bye),
            ["<sip:p1.example.com;lr>", "<sip:p2.example.com;lr>"]
        );
        assert_eq!(bye.uri.to_string(), "sip:callee@192.0.2.77");
        assert_eq!(bye.headers.get(&Name::CSeq), Some("8 BYE"));
        let ack = dialog.ack(&sent).unwrap();
        assert_eq!(ack.headers.get(&Name::CSeq), Some("7 ACK"));
    }

    #[test]
    fn an_old_number_is_stale_and_a_gap_is_not() {
        let mut dialog = Dialog::as_server(&invite(""), "near").unwrap();
        let numbered = |number: u32| {
            let mut bye = invite("");
            bye.method = Method::Bye;
            bye.headers.set(Name::CSeq, format!("{number} BYE"));
            bye
        };
        assert_eq!(dialog.receive(&numbered(6)), Err(Stale));
        assert_eq!(dialog.receive(&numbered(7)), Err(Stale));
        assert_eq!(dialog.receive(&numbered(20)), Ok(()));
        assert_eq!(dialog.receive(&numbered(19)), Err(Stale));
    }
}
