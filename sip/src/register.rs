//! A registration with a carrier (RFC 3261 10.2): made, refreshed before it lapses, and tried again
//! more and more slowly when it fails.

use std::time::Duration;

use crate::auth::{Challenge, Credentials, Retry};
use crate::call::{is_made_up, is_own_overload};
use crate::ids::Ids;
use crate::message::{CSeq, Host, Method, Name, NameAddr, Request, Response, SipUri, Uri, scan};
use crate::time::Time;

/// The first wait after a failure and the longest (RFC 5626 4.5 proposes these).
const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(1_800);

/// The shortest wait before a registration is refreshed, whatever was granted: a registrar that says 0 is
/// not asked twice a second.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);

/// A connection that is lost within this time of a registration over it is one that the registrar closes after each.
const STEADY: Duration = Duration::from_secs(60);

/// How soon it is made anew when a connection that lasted is lost, at most: part of it is drawn, for those of all
/// trunks are lost at once.
const SOON: Duration = Duration::from_secs(5);

/// The longest registration that is asked for when the registrar finds ours too brief.
const LONGEST_EXPIRES: u32 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A REGISTER is under way.
    Asking,
    /// Registered since then; when the next REGISTER is due.
    Registered {
        since: Time,
        refresh: Time,
    },
    Waiting {
        retry: Time,
    },
    /// The last REGISTER, with `Expires: 0`, is under way.
    Leaving,
    Over,
}

/// What a registration asks for.
#[derive(Debug)]
pub(crate) enum Out {
    /// Send this to the registrar.
    Request(Request),
    Registered {
        expires: u32,
    },
    Failed {
        /// `None`: the registrar said nothing.
        code: Option<u16>,
        reason: String,
        retry_in: Duration,
    },
    Wait(Time),
    Over,
}

#[derive(Debug)]
pub(crate) struct Registration {
    state: State,
    registrar: Host,
    port: Option<u16>,
    record: Uri,
    contact: String,
    expires: u32,
    credentials: Option<Credentials>,
    retry: Retry,
    call_id: String,
    tag: String,
    number: u32,
    failures: u32,
    ids: Ids,
    out: std::collections::VecDeque<Out>,
}

/// What a registration is made of.
#[derive(Clone)]
pub(crate) struct Settings {
    pub registrar: Host,
    pub port: Option<u16>,
    /// The user of the address of record and the domain it is in.
    pub user: String,
    pub domain: Host,
    /// Our Contact, with its brackets.
    pub contact: String,
    pub expires: u32,
    pub credentials: Option<Credentials>,
}

impl Registration {
    pub(crate) fn new(settings: Settings, mut ids: Ids) -> Self {
        let mut this = Self {
            state: State::Asking,
            record: record(&settings),
            registrar: settings.registrar,
            port: settings.port,
            contact: settings.contact,
            expires: settings.expires,
            credentials: settings.credentials,
            retry: Retry::default(),
            call_id: ids.call_id(),
            tag: ids.tag(),
            number: 0,
            failures: 0,
            ids,
            out: std::collections::VecDeque::new(),
        };
        this.ask(this.expires);
        this
    }

    /// Whether what it registers is the binding of those settings: the same Contact for the same address of
    /// record with the same registrar.
    pub(crate) fn is_of(&self, settings: &Settings) -> bool {
        self.registrar == settings.registrar
            && self.port == settings.port
            && self.record == record(settings)
            && self.contact == settings.contact
    }

    /// Takes over other credentials and another lifetime, and registers now.
    pub(crate) fn renew(&mut self, settings: Settings) {
        self.expires = settings.expires;
        self.credentials = settings.credentials;
        self.retry.start_over();
        self.again();
    }

    /// Registers now.
    pub(crate) fn again(&mut self) {
        if matches!(self.state, State::Registered { .. } | State::Waiting { .. }) {
            self.state = State::Asking;
            self.ask(self.expires);
        }
    }

    /// Takes the binding back, if there is one.
    pub(crate) fn leave(&mut self) {
        match self.state {
            State::Waiting { .. } => self.end(),
            State::Over | State::Leaving => {}
            State::Asking | State::Registered { .. } => {
                self.state = State::Leaving;
                self.ask(0);
            }
        }
    }

    pub(crate) fn timeout(&mut self, now: Time) {
        match self.state {
            State::Registered { refresh: at, .. } | State::Waiting { retry: at } if at <= now => {
                self.again();
            }
            _ => {}
        }
    }

    /// The connection that it was made over is gone, and with it the registrar's way to us where a NAT or a firewall
    /// stands between: it is made anew soon (RFC 5626 section 4.5).
    pub(crate) fn flow_lost(&mut self, now: Time) {
        if let State::Registered { since, refresh } = self.state
            && now.since(since) >= STEADY
        {
            let soon = now + self.ids.between(SOON / 5, SOON);
            let refresh = refresh.min(soon);
            self.state = State::Registered { since, refresh };
        }
    }

    /// What answers the challenges of the registrar.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The answer to `request`, with the challenge of it that is to be answered; 408 and 503 when there was none.
    pub(crate) fn response(
        &mut self,
        now: Time,
        request: &Request,
        response: &Response,
        challenge: Option<Challenge>,
    ) {
        // The answer to an older REGISTER says nothing any more.
        if response.code < 200 || request.cseq().is_none_or(|cseq| cseq.number != self.number) {
            return;
        }
        let code = response.code;
        if let Some(challenge) = challenge
            && let Some(credentials) = &self.credentials
            && let Some(mut again) =
                self.retry
                    .answer(request, code, challenge, credentials, &mut self.ids)
        {
            self.number += 1;
            again.headers.set(Name::CSeq, self.cseq());
            self.out.push_back(Out::Request(again));
            return;
        }
        match (self.state, response.code) {
            (State::Asking, 200..=299) => self.registered(now, response),
            (State::Asking, 423) if self.lengthen(response) => self.ask(self.expires),
            (State::Asking, code) => self.failed(now, code, response),
            (State::Leaving, _) => self.end(),
            _ => {}
        }
    }

    pub(crate) fn poll(&mut self) -> Out {
        self.out.pop_front().unwrap_or(match self.state {
            State::Registered { refresh: at, .. } | State::Waiting { retry: at } => Out::Wait(at),
            _ => Out::Wait(Time::NEVER),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over && self.out.is_empty()
    }

    fn end(&mut self) {
        self.state = State::Over;
        self.out.push_back(Out::Over);
    }

    fn registered(&mut self, now: Time, response: &Response) {
        self.failures = 0;
        self.retry.start_over();
        let expires = self.granted(response).max(1);
        // Early enough for a REGISTER that is lost and asked for credentials: at 85 to 90 per cent,
        // and 32 s before the end where that leaves half the time.
        let whole = Duration::from_secs(u64::from(expires));
        let share = whole.mul_f64(0.85) + self.ids.between(Duration::ZERO, whole.mul_f64(0.05));
        let early = whole.saturating_sub(Duration::from_secs(32));
        let wait = if early >= whole / 2 {
            share.min(early)
        } else {
            share.min(whole / 2)
        };
        self.state = State::Registered {
            since: now,
            refresh: now + wait.max(SHORTEST_WAIT),
        };
        self.out.push_back(Out::Registered { expires });
    }

    /// What the registrar granted our Contact: its `expires`, else the Expires header, else what was
    /// asked for (10.2.4). Many write another address into our Contact, such as the one they see us at:
    /// where only one binding is told, it is ours.
    fn granted(&self, response: &Response) -> u32 {
        let ours = NameAddr::parse(&self.contact).map(|contact| contact.uri);
        let is_ours = |told: &NameAddr| {
            ours.as_ref()
                .is_some_and(|ours| same_place(ours, &told.uri))
        };
        let told: Vec<NameAddr> = response
            .headers
            .list(&Name::Contact)
            .filter_map(NameAddr::parse)
            .collect();
        let binding = match told.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|told| is_ours(told)),
        };
        let binding = binding.and_then(|binding| binding.params.get("expires"));
        binding
            .as_deref()
            .or(response.headers.get(&Name::Expires))
            .and_then(scan::number)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .map_or(self.expires, |seconds| seconds.min(LONGEST_EXPIRES))
    }

    /// Takes over the registrar's minimum.
    fn lengthen(&mut self, response: &Response) -> bool {
        let least = response
            .headers
            .get(&Name::MinExpires)
            .and_then(scan::number)
            .and_then(|seconds| u32::try_from(seconds).ok());
        match least {
            Some(least) if least > self.expires && least <= LONGEST_EXPIRES => {
                self.expires = least;
                true
            }
            _ => false,
        }
    }

    fn failed(&mut self, now: Time, code: u16, response: &Response) {
        let doubled = FIRST_WAIT * 2_u32.saturating_pow(self.failures.min(10));
        let most = doubled.min(LONGEST_WAIT);
        // The registrar was not asked: it did not fail.
        let overloaded = is_own_overload(response);
        self.failures += u32::from(!overloaded);
        self.retry.start_over();
        let asked = response
            .headers
            .get(&Name::RetryAfter)
            .and_then(|value| scan::number(value.split([' ', ';', '(']).next()?))
            .map_or(Duration::ZERO, |seconds| {
                Duration::from_secs(seconds).min(LONGEST_WAIT)
            });
        // Half of it is drawn, so that all that failed at once do not come back at once.
        let wait = self.ids.between(most / 2, most).max(asked);
        self.state = State::Waiting { retry: now + wait };
        let (code, reason) = match (is_made_up(response), code) {
            (false, code) => (Some(code), response.reason.as_str()),
            (true, _) if overloaded => (None, response.reason.as_str()),
            (true, 408) => (None, "no answer"),
            (true, _) => (None, "cannot be reached"),
        };
        self.out.push_back(Out::Failed {
            code,
            reason: reason.to_owned(),
            retry_in: wait,
        });
    }

    fn cseq(&self) -> String {
        CSeq {
            number: self.number,
            method: Method::Register,
        }
        .to_string()
    }

    fn ask(&mut self, expires: u32) {
        self.number += 1;
        // The Request-URI of a REGISTER has no user (10.2).
        let uri = Uri::Sip(SipUri::new(None, self.registrar.clone(), self.port));
        let mut request = Request::new(Method::Register, uri);
        let headers = &mut request.headers;
        let record = NameAddr::new(self.record.clone());
        headers.push(Name::MaxForwards, crate::dialog::MAX_FORWARDS);
        headers.push(Name::From, record.clone().with_tag(&self.tag).to_string());
        headers.push(Name::To, record.to_string());
        headers.push(Name::CallId, self.call_id.as_str());
        headers.push(Name::CSeq, self.cseq());
        headers.push(Name::Contact, self.contact.as_str());
        headers.push(Name::Expires, expires.to_string());
        self.out.push_back(Out::Request(request));
    }
}

/// The address of record.
fn record(settings: &Settings) -> Uri {
    let domain = settings.domain.clone();
    Uri::Sip(SipUri::new(Some(&settings.user), domain, None))
}

/// Registrars give our Contact back, but may add parameters.
fn same_place(one: &Uri, two: &Uri) -> bool {
    match (one, two) {
        (Uri::Sip(one), Uri::Sip(two)) => {
            one.user() == two.user() && one.host == two.host && one.port == two.port
        }
        _ => one == two,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::header::AuthValue;
    use std::fmt::Write as _;

    fn registration(expires: u32) -> Registration {
        Registration::new(
            Settings {
                registrar: Host::parse("carrier.example").unwrap(),
                port: None,
                user: "alice".to_owned(),
                domain: Host::parse("carrier.example").unwrap(),
                contact: "<sip:alice@192.0.2.1:5060>".to_owned(),
                expires,
                credentials: Some(Credentials::new("alice", "secret")),
            },
            Ids::from_number(3),
        )
    }

    /// All that is asked for, with seconds; the last REGISTER and the next deadline.
    fn drain(this: &mut Registration, log: &mut String) -> (Option<Request>, Time) {
        let mut last = None;
        loop {
            match this.poll() {
                Out::Wait(at) => return (last, at),
                Out::Request(request) => {
                    let auth = request.headers.has(&Name::Authorization);
                    let expires = request.headers.get(&Name::Expires).unwrap_or_default();
                    let seq = request.cseq().unwrap().number;
                    let with = if auth { " with credentials" } else { "" };
                    _ = write!(log, "REGISTER {seq} for {expires}{with}; ");
                    last = Some(request);
                }
                Out::Registered { expires } => _ = write!(log, "registered {expires}; "),
                Out::Failed {
                    code: Some(code), ..
                } => _ = write!(log, "failed {code}; "),
                Out::Failed { reason, .. } => _ = write!(log, "failed: {reason}; "),
                Out::Over => log.push_str("over; "),
            }
        }
    }

    /// A response, with the challenge of it that is answered.
    fn hear(this: &mut Registration, now: Time, request: &Request, response: &Response) {
        let values = response.headers.all(&Name::WwwAuthenticate);
        let credentials = Credentials::new("alice", "secret");
        let challenge = Challenge::choose(values, &credentials, &[], &[]).ok();
        this.response(now, request, response, challenge);
    }

    fn answer(request: &Request, code: u16, fields: &[(Name, &str)]) -> Response {
        let mut response = Response::to(&request.headers, code, "");
        response.headers.push(Name::Via, "SIP/2.0/UDP 192.0.2.1");
        for (name, value) in fields {
            response.headers.push(name.clone(), *value);
        }
        response
    }

    #[test]
    fn a_challenge_is_answered_once_and_the_binding_refreshed() {
        let mut this = registration(3_600);
        let mut log = String::new();
        let now = Time::from_secs(10);
        let first = drain(&mut this, &mut log).0.unwrap();
        let challenge = "Digest realm=\"r\", nonce=\"n\", qop=\"auth\"";
        let asked = answer(&first, 401, &[(Name::WwwAuthenticate, challenge)]);
        hear(&mut this, now, &first, &asked);
        let second = drain(&mut this, &mut log).0.unwrap();
        let contact = "<sip:other@192.0.2.5>;expires=5, <sip:alice@192.0.2.1:5060;x=y>;expires=120";
        hear(
            &mut this,
            now,
            &second,
            &answer(&second, 200, &[(Name::Contact, contact)]),
        );
        let (_, at) = drain(&mut this, &mut log);
        let wait = at.since(now).as_secs();
        assert!(
            (60..=108).contains(&wait),
            "refreshed after {wait} s of 120"
        );
        this.timeout(at);
        let third = drain(&mut this, &mut log).0.unwrap();
        // The same challenge to credentials that were just given: they are wrong.
        hear(
            &mut this,
            at,
            &third,
            &answer(&third, 401, &[(Name::WwwAuthenticate, challenge)]),
        );
        let fourth = drain(&mut this, &mut log).0.unwrap();
        hear(
            &mut this,
            at,
            &fourth,
            &answer(&fourth, 401, &[(Name::WwwAuthenticate, challenge)]),
        );
        drain(&mut this, &mut log);
        assert_eq!(
            log,
            "REGISTER 1 for 3600; REGISTER 2 for 3600 with credentials; registered 120; \
             REGISTER 3 for 3600; REGISTER 4 for 3600 with credentials; failed 401; "
        );
        let count = |request: &Request| {
            let given = request.headers.get(&Name::Authorization).unwrap();
            let given = AuthValue::parse(given).unwrap();
            given.get("nc").unwrap().to_owned()
        };
        // It asks with the same nonce.
        assert_eq!([count(&second), count(&fourth)], ["00000001", "00000002"]);
        assert_eq!(third.call_id(), first.call_id());
        assert_eq!(first.uri.to_string(), "sip:carrier.example");
    }

    #[test]
    fn failures_wait_longer_and_longer_up_to_half_an_hour() {
        let mut this = registration(120);
        let mut log = String::new();
        let mut now = Time::default();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let request = drain(&mut this, &mut log).0.unwrap();
            hear(&mut this, now, &request, &answer(&request, 503, &[]));
            let (_, at) = drain(&mut this, &mut log);
            waits.push(at.since(now).as_secs());
            now = at;
            this.timeout(now);
        }
        for (index, wait) in waits.iter().enumerate() {
            let most = (30 << index).min(1_800);
            assert!((most / 2..=most).contains(wait), "wait {index}: {wait} s");
        }
        // A registrar that names a time is believed.
        let request = drain(&mut this, &mut log).0.unwrap();
        this.failures = 0;
        hear(
            &mut this,
            now,
            &request,
            &answer(&request, 503, &[(Name::RetryAfter, "400 (later)")]),
        );
        assert_eq!(drain(&mut this, &mut log).1.since(now).as_secs(), 400);
    }

    #[test]
    fn a_brief_interval_is_made_longer_and_leaving_asks_for_zero() {
        let mut this = registration(60);
        let mut log = String::new();
        let now = Time::default();
        let first = drain(&mut this, &mut log).0.unwrap();
        hear(
            &mut this,
            now,
            &first,
            &answer(&first, 423, &[(Name::MinExpires, "300")]),
        );
        let second = drain(&mut this, &mut log).0.unwrap();
        // An answer to the first comes late: it changes nothing.
        hear(&mut this, now, &first, &answer(&first, 200, &[]));
        hear(&mut this, now, &second, &answer(&second, 200, &[]));
        drain(&mut this, &mut log);
        this.leave();
        let last = drain(&mut this, &mut log).0.unwrap();
        hear(&mut this, now, &last, &answer(&last, 200, &[]));
        drain(&mut this, &mut log);
        assert!(this.is_over());
        assert_eq!(
            log,
            "REGISTER 1 for 60; REGISTER 2 for 300; registered 300; REGISTER 3 for 0; over; "
        );
    }

    #[test]
    fn a_contact_that_the_registrar_rewrote_is_ours_when_it_is_the_only_one() {
        for (contact, expires, granted) in [
            ("<sip:alice@203.0.113.7:61002>;expires=60", None, 60),
            ("<sip:alice@203.0.113.7:61002>;expires=60", Some("90"), 60),
            ("<sip:alice@203.0.113.7:61002>", Some("90"), 90),
            // Of several it is not known which is ours.
            (
                "<sip:alice@203.0.113.7>;expires=60, <sip:alice@203.0.113.8>;expires=70",
                None,
                3_600,
            ),
        ] {
            let mut this = registration(3_600);
            let mut log = String::new();
            let request = drain(&mut this, &mut log).0.unwrap();
            let mut fields = vec![(Name::Contact, contact)];
            fields.extend(expires.map(|expires| (Name::Expires, expires)));
            hear(
                &mut this,
                Time::default(),
                &request,
                &answer(&request, 200, &fields),
            );
            let (_, at) = drain(&mut this, &mut log);
            assert_eq!(
                log,
                format!("REGISTER 1 for 3600; registered {granted}; "),
                "{contact}"
            );
            assert!(at.as_secs() < granted);
        }
    }

    #[test]
    fn a_registrar_that_grants_next_to_nothing_is_not_asked_each_moment() {
        for granted in ["0", "1", "5"] {
            let mut this = registration(3_600);
            let mut log = String::new();
            let request = drain(&mut this, &mut log).0.unwrap();
            let response = answer(&request, 200, &[(Name::Expires, granted)]);
            hear(&mut this, Time::default(), &request, &response);
            let (_, at) = drain(&mut this, &mut log);
            assert!(at >= Time::from_secs(10), "{granted}: {at:?}");
        }
    }

    #[test]
    fn what_no_registrar_said_has_no_code() {
        let mut this = registration(120);
        let mut log = String::new();
        let mut now = Time::default();
        for code in [408, 503] {
            let request = drain(&mut this, &mut log).0.unwrap();
            hear(
                &mut this,
                now,
                &request,
                &crate::call::make_up(&request, code),
            );
            now = drain(&mut this, &mut log).1;
            this.timeout(now);
        }
        let request = drain(&mut this, &mut log).0.unwrap();
        hear(&mut this, now, &request, &answer(&request, 503, &[]));
        drain(&mut this, &mut log);
        assert_eq!(
            log,
            "REGISTER 1 for 120; failed: no answer; REGISTER 2 for 120; failed: cannot be reached; \
             REGISTER 3 for 120; failed 503; "
        );
    }

    #[test]
    fn an_early_timeout_changes_nothing() {
        let mut this = registration(120);
        let mut log = String::new();
        let request = drain(&mut this, &mut log).0.unwrap();
        hear(
            &mut this,
            Time::default(),
            &request,
            &answer(&request, 200, &[]),
        );
        let at = drain(&mut this, &mut log).1;
        this.timeout(Time::from_micros(at.as_micros() - 1));
        assert_eq!(drain(&mut this, &mut log).1, at);
        assert_eq!(log, "REGISTER 1 for 120; registered 120; ");
    }
}
