//! Passing a call on: REFER and the NOTIFYs that tell how it went (RFC 3515).

use super::{Call, Out, Purpose, ServerId, State};
use crate::event::Event;
use crate::message::{Body, Method, Name, NameAddr, Request, Response};

/// Both directions; one of each at a time.
#[derive(Debug, Default)]
pub(super) struct Refers {
    /// Their REFER, until our user answers it.
    asked: Option<(ServerId, Request)>,
    /// We accepted one and owe its progress.
    owed: bool,
    /// We sent one and await its progress.
    awaited: bool,
}

/// How long a subscription that a REFER made may last, seconds: longer than any call rings.
const LASTS: u32 = 300;

impl Call {
    pub(super) fn refer(&mut self, target: &str, replaces: Option<&str>) {
        let call = self.id;
        let Some(dialog) = self.dialog.as_mut().filter(|_| self.state == State::Up) else {
            return;
        };
        if self.refers.awaited {
            return self.event(Event::ReferProgress { call, code: 491 });
        }
        let mut request = dialog.request(Method::Refer);
        let mut to = format!("<{target}");
        if let Some(replaces) = replaces {
            to.push(if target.contains('?') { '&' } else { '?' });
            to.push_str("Replaces=");
            to.push_str(&escape(replaces));
        }
        to.push('>');
        if NameAddr::parse(&to).is_none() {
            return self.event(Event::ReferProgress { call, code: 400 });
        }
        request.headers.push(Name::ReferTo, to);
        request
            .headers
            .push(Name::ReferredBy, self.contact.as_str());
        self.add_abilities_to(&mut request);
        self.refers.awaited = true;
        self.out.push_back(Out::Request(Purpose::Refer, request));
    }

    pub(super) fn refer_answered(&mut self, response: &Response) {
        // A NOTIFY may have come first and told all.
        if response.code < 200 || !self.refers.awaited {
            return;
        }
        let call = self.id;
        if response.code < 300 {
            self.event(Event::ReferProgress { call, code: 100 });
        } else {
            self.refers.awaited = false;
            let code = response.code;
            self.event(Event::ReferProgress { call, code });
        }
    }

    /// NOTIFY: a status line in a `message/sipfrag` (RFC 3515 2.4.5).
    pub(super) fn notify_came(&mut self, server: ServerId, request: &Request) {
        let package = request.headers.get(&Name::Event).unwrap_or_default();
        let package = package.split(';').next().unwrap_or_default().trim();
        if !package.eq_ignore_ascii_case("refer") {
            return self.respond(server, request, 489);
        }
        if !self.refers.awaited {
            return self.respond(server, request, 481);
        }
        self.respond(server, request, 200);
        let state = request
            .headers
            .get(&Name::SubscriptionState)
            .unwrap_or_default();
        let over = state.to_ascii_lowercase().starts_with("terminated");
        let code = request
            .body()
            .filter(|body| body.is("message/sipfrag"))
            .and_then(|body| status_of(&body.bytes));
        let code = match (code, over) {
            (Some(code), _) => code,
            // It ended without saying how.
            (None, true) => 487,
            (None, false) => return,
        };
        let call = self.id;
        if over || code >= 200 {
            self.refers.awaited = false;
            let code = if code < 200 { 487 } else { code };
            return self.event(Event::ReferProgress { call, code });
        }
        self.event(Event::ReferProgress { call, code });
    }

    pub(super) fn refer_came(&mut self, server: ServerId, request: &Request) {
        let target = request
            .headers
            .get(&Name::ReferTo)
            .and_then(NameAddr::parse);
        match target {
            _ if self.state != State::Up => self.respond(server, request, 481),
            None => self.respond(server, request, 400),
            Some(_) if self.refers.asked.is_some() || self.refers.owed => {
                self.respond(server, request, 491);
            }
            Some(target) => {
                self.refers.asked = Some((server, request.clone()));
                let call = self.id;
                self.event(Event::Referred {
                    call,
                    target: target.uri,
                });
            }
        }
    }

    pub(super) fn answer_refer(&mut self, code: u16) {
        if !(200..300).contains(&code) {
            return self.refuse_refer(code);
        }
        if let Some((server, request)) = self.refers.asked.take() {
            let mut response = Response::to(&request.headers, 202, "");
            response.headers.push(Name::Contact, self.contact.as_str());
            self.out.push_back(Out::Respond(server, response));
            self.refers.owed = true;
            self.notify_refer(100);
        }
    }

    pub(super) fn refuse_refer(&mut self, code: u16) {
        if let Some((server, request)) = self.refers.asked.take() {
            let code = if (300..700).contains(&code) {
                code
            } else {
                603
            };
            self.respond(server, &request, code);
        }
    }

    pub(super) fn notify_refer(&mut self, code: u16) {
        if !self.refers.owed || !(100..700).contains(&code) {
            return;
        }
        let Some(dialog) = self.dialog.as_mut().filter(|_| self.state == State::Up) else {
            return;
        };
        let mut notify = dialog.request(Method::Notify);
        notify.headers.push(Name::Event, "refer");
        let state = if code < 200 {
            format!("active;expires={LASTS}")
        } else {
            self.refers.owed = false;
            "terminated;reason=noresource".to_owned()
        };
        notify.headers.push(Name::SubscriptionState, state);
        notify.headers.push(Name::Contact, self.contact.as_str());
        let line = format!("SIP/2.0 {code} {}\r\n", crate::message::usual_reason(code));
        notify.set_body(Some(Body::new("message/sipfrag;version=2.0", line)));
        self.out.push_back(Out::Request(Purpose::Notify, notify));
    }
}

fn status_of(fragment: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(fragment);
    let mut words = text.lines().next()?.split(' ');
    if !words.next()?.eq_ignore_ascii_case("SIP/2.0") {
        return None;
    }
    words
        .next()?
        .parse()
        .ok()
        .filter(|code| (100..700).contains(code))
}

/// A header value in a URI (RFC 3261 19.1.1).
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
