//! In which realms a trunk's carrier asks for credentials, and with which status code.
//!
//! A callee behind the carrier's proxy answers from the carrier's own address. The realm of a challenge (RFC 3261 22.1)
//! and its status code tell the two apart, as far as they can be told:
//!
//! - A configured realm is the only one that is answered.
//! - The first challenge to a REGISTER names the registrar's realms. No callee sees a REGISTER, so calls that go to the
//!   registrar's host are bound to these realms too, whatever an INVITE named before. Where another endpoint registers
//!   the trunk, the user tells which they are.
//! - A carrier may ask for calls in another realm than its registrar does. An INVITE that opens a call may name one that
//!   is written as the trunk's own host or domain is; the first that is answered rules out the other names.
//! - While a registrar was not heard that is to be heard, calls are given no credentials.
//! - Without a registrar's realms, the first challenge to an INVITE that opens a call names them, unless somebody rings
//!   already. A carrier that took calls unasked may begin to ask in this way. Whether that one is the carrier or a
//!   callee who asks at once cannot be told: only a realm that is known keeps the callee out.
//! - The first challenge to an opening INVITE names the status code as well: a proxy asks with 407, a callee with 401
//!   (22.2 and 22.3), so a callee who copies the realm of a proxy is found out.
//! - A challenge to a request within a dialog names nothing.
//!
//! One answer may hold the challenges of several servers (22.3). All of its realms are remembered, and answered one
//! after the other as they are asked for.

use super::choice::{Withheld, header_of, realms_given};
use super::{Challenge, Credentials, MOST_ASKED};
use crate::message::{Request, Response};
use crate::trunk::RegistrarRealms;

/// What was challenged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenged {
    Register,
    /// The INVITE that opens a call, which has reached nobody yet.
    OpeningInvite,
    InDialog,
}

/// The realms and codes of a trunk's carrier, as far as it has asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Realms {
    /// Calls go to another host than REGISTER: the registrar's realms are not theirs.
    apart: bool,
    /// How the trunk's host and domain are written.
    names: Vec<String>,
    /// Those of the first challenge to a REGISTER of this endpoint; none, where one was taken unasked.
    registrar: Option<Vec<String>>,
    /// The registrar's, as the user tells.
    told: RegistrarRealms,
    /// Those of challenges to opening INVITEs, each with the code that it came with.
    calls: Vec<(String, u16)>,
}

impl Realms {
    pub(crate) fn new(apart: bool, names: Vec<String>) -> Self {
        Self {
            apart,
            names,
            ..Self::default()
        }
    }

    /// Takes over what the user tells of the registrar. Who does not register hears it from nobody else.
    pub(crate) fn tell(&mut self, told: RegistrarRealms, registers: bool) {
        if !registers && matches!(told, RegistrarRealms::Known(_)) {
            self.registrar = None;
        }
        self.told = told;
    }

    /// The registrar took a REGISTER: one that asked for nothing before has no realm.
    pub(crate) fn registered(&mut self) {
        if self.of_registrar().is_none() {
            self.registrar = Some(Vec::new());
        }
    }

    /// The registrar's realms, as far as they are known here. `None`: it was not heard.
    pub(crate) fn of_registrar(&self) -> Option<&[String]> {
        match (&self.registrar, &self.told) {
            (Some(own), _) if !own.is_empty() => Some(own),
            (_, RegistrarRealms::Known(told)) => Some(told),
            (own, _) => own.as_deref(),
        }
    }

    /// The challenge in `response`, which came from a host of the trunk, that these credentials answer.
    pub(crate) fn choose(
        &self,
        challenged: Challenged,
        request: &Request,
        response: &Response,
        credentials: &Credentials,
    ) -> Result<Challenge, Withheld> {
        if credentials.realm.is_none() && self.is_awaited(challenged) {
            return Err(Withheld::Unregistered);
        }
        let known = self.known(challenged);
        let given = realms_given(request, response.code);
        let header = header_of(response.code);
        let values = response.headers.all(&header);
        let chosen = Challenge::choose(values, credentials, &known, &given)?;
        if challenged == Challenged::InDialog && known.is_empty() && credentials.realm.is_none() {
            return Err(Withheld::NoRealm(chosen.realm));
        }
        match self.code_in(&chosen.realm) {
            Some(usual) if challenged != Challenged::Register && usual != response.code => {
                Err(Withheld::Code {
                    asked: response.code,
                    usual,
                })
            }
            _ => Ok(chosen),
        }
    }

    /// Remembers what the answer says of the carrier in which `chosen` stood.
    pub(crate) fn learn(
        &mut self,
        challenged: Challenged,
        response: &Response,
        chosen: &Challenge,
    ) {
        match challenged {
            Challenged::Register if self.asked_to_register().is_empty() => {
                self.registrar = Some(realms_of(response, chosen));
            }
            Challenged::OpeningInvite => {
                let mut fresh = realms_of(response, chosen);
                let known = self.known(challenged);
                fresh.retain(|realm| known.is_empty() || known.contains(&realm.as_str()));
                fresh.retain(|realm| self.code_in(realm).is_none());
                let code = response.code;
                self.calls
                    .extend(fresh.into_iter().map(|realm| (realm, code)));
            }
            Challenged::Register | Challenged::InDialog => {}
        }
    }

    /// The realms of the registrar that a REGISTER of this endpoint was challenged in.
    fn asked_to_register(&self) -> &[String] {
        self.registrar.as_deref().unwrap_or_default()
    }

    /// Whether what calls are bound to is still to be heard of the registrar.
    fn is_awaited(&self, challenged: Challenged) -> bool {
        challenged != Challenged::Register
            && !self.apart
            && self.told == RegistrarRealms::Awaited
            && self.of_registrar().is_none()
    }

    fn known(&self, challenged: Challenged) -> Vec<&str> {
        let registrar = match challenged {
            Challenged::Register => self.asked_to_register(),
            _ if self.apart => &[],
            _ => self.of_registrar().unwrap_or_default(),
        };
        let registrar = registrar.iter().map(String::as_str);
        let calls = self.calls.iter().map(|(realm, _)| realm.as_str());
        if challenged == Challenged::Register {
            return registrar.collect();
        }
        if registrar.len() == 0 {
            return calls.collect();
        }
        let mut known: Vec<&str> = registrar.collect();
        let bound: Vec<&str> = calls
            .filter(|realm| known.contains(realm) || self.names.iter().any(|own| own == realm))
            .collect();
        if bound.is_empty() && challenged == Challenged::OpeningInvite {
            known.extend(self.names.iter().map(String::as_str));
        }
        known.extend(bound);
        known
    }

    fn code_in(&self, realm: &str) -> Option<u16> {
        let mut calls = self.calls.iter();
        let (_, code) = calls.find(|(own, _)| own == realm)?;
        Some(*code)
    }
}

/// The realms of an answer, that of `chosen` first: no more than the servers whose challenges one request can answer.
fn realms_of(response: &Response, chosen: &Challenge) -> Vec<String> {
    let mut realms = vec![chosen.realm.clone()];
    let header = header_of(response.code);
    let values = response.headers.all(&header);
    for challenge in values.filter_map(Challenge::parse) {
        if realms.len() < MOST_ASKED && !realms.contains(&challenge.realm) {
            realms.push(challenge.realm);
        }
    }
    realms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Method, Name, Uri};

    fn invite() -> Request {
        Request::new(
            Method::Invite,
            Uri::parse("sip:+15550100@192.0.2.1").unwrap(),
        )
    }

    /// An answer that asks in these realms.
    fn asks(code: u16, realms: &[&str]) -> Response {
        let mut response = Response::to(&invite().headers, code, "");
        for realm in realms {
            let value = format!("Digest realm=\"{realm}\", nonce=\"n\", qop=\"auth\"");
            response.headers.push(header_of(code), value);
        }
        response
    }

    /// The realm that is answered, and learnt from.
    fn answered(
        realms: &mut Realms,
        challenged: Challenged,
        code: u16,
        asked: &[&str],
    ) -> Result<String, Withheld> {
        let response = asks(code, asked);
        let of = Credentials::new("u", "p");
        let chosen = realms.choose(challenged, &invite(), &response, &of)?;
        realms.learn(challenged, &response, &chosen);
        Ok(chosen.realm)
    }

    fn in_realm(realm: &str) -> Result<String, Withheld> {
        Ok(realm.to_owned())
    }

    fn not_in(realm: &str) -> Result<String, Withheld> {
        Err(Withheld::Realm(realm.to_owned()))
    }

    const COPIED: Result<String, Withheld> = Err(Withheld::Code {
        asked: 401,
        usual: 407,
    });

    #[test]
    fn the_registrars_realm_goes_before_that_of_an_invite() {
        use Challenged::{InDialog, OpeningInvite, Register};
        let mut realms = Realms::default();
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["call"]),
            in_realm("call")
        );
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["other"]),
            not_in("other")
        );
        // The registrar has a realm of its own, and then calls are bound to it.
        assert_eq!(
            answered(&mut realms, Register, 401, &["reg"]),
            in_realm("reg")
        );
        assert_eq!(
            answered(&mut realms, Register, 401, &["call"]),
            not_in("call")
        );
        for challenged in [OpeningInvite, InDialog] {
            assert_eq!(
                answered(&mut realms, challenged, 407, &["call"]),
                not_in("call")
            );
            assert_eq!(
                answered(&mut realms, challenged, 407, &["reg"]),
                in_realm("reg")
            );
        }
        // Unless they go to another host.
        let mut apart = Realms::new(true, Vec::new());
        assert_eq!(
            answered(&mut apart, Register, 401, &["reg"]),
            in_realm("reg")
        );
        assert_eq!(
            answered(&mut apart, OpeningInvite, 407, &["call"]),
            in_realm("call")
        );
        assert_eq!(answered(&mut apart, InDialog, 407, &["reg"]), not_in("reg"));
        assert_eq!(
            answered(&mut apart, Register, 401, &["call"]),
            not_in("call")
        );
    }

    #[test]
    fn the_code_that_came_with_a_realm_of_calls_stays() {
        use Challenged::{InDialog, OpeningInvite, Register};
        for (usual, other) in [(407, 401), (401, 407)] {
            let mut realms = Realms::default();
            assert_eq!(
                answered(&mut realms, OpeningInvite, usual, &["r"]),
                in_realm("r")
            );
            for challenged in [OpeningInvite, InDialog] {
                let copied = Err(Withheld::Code {
                    asked: other,
                    usual,
                });
                assert_eq!(answered(&mut realms, challenged, other, &["r"]), copied);
                assert_eq!(
                    answered(&mut realms, challenged, usual, &["r"]),
                    in_realm("r")
                );
            }
            // A registrar is no proxy, and asks as it will.
            for code in [401, 407] {
                assert_eq!(answered(&mut realms, Register, code, &["r"]), in_realm("r"));
            }
            // A realm that the registrar named has the code of the first INVITE.
            let mut realms = Realms::default();
            assert_eq!(answered(&mut realms, Register, 401, &["r"]), in_realm("r"));
            assert_eq!(
                answered(&mut realms, OpeningInvite, usual, &["r"]),
                in_realm("r")
            );
            assert!(answered(&mut realms, InDialog, other, &["r"]).is_err());
        }
    }

    #[test]
    fn a_request_in_a_dialog_teaches_neither_realm_nor_code() {
        use Challenged::{InDialog, OpeningInvite, Register};
        let mut realms = Realms::default();
        let unknown = Err(Withheld::NoRealm("r".to_owned()));
        assert_eq!(answered(&mut realms, InDialog, 401, &["r"]), unknown);
        assert_eq!(realms, Realms::default());
        assert_eq!(answered(&mut realms, Register, 401, &["r"]), in_realm("r"));
        assert_eq!(answered(&mut realms, InDialog, 401, &["r"]), in_realm("r"));
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["r"]),
            in_realm("r")
        );
        assert_eq!(answered(&mut realms, InDialog, 401, &["r"]), COPIED);
    }

    /// A carrier that asks in two realms at once, then in the second of them alone.
    #[test]
    fn all_realms_of_the_answer_that_teaches_are_the_trunks() {
        use Challenged::{InDialog, OpeningInvite, Register};
        for (challenged, code) in [(OpeningInvite, 407), (Register, 401)] {
            let mut realms = Realms::default();
            assert_eq!(
                answered(&mut realms, challenged, code, &["a", "b"]),
                in_realm("a")
            );
            for (asked, chosen) in [
                (["b", "evil"], "b"),
                (["evil", "b"], "b"),
                (["b", "a"], "b"),
            ] {
                assert_eq!(
                    answered(&mut realms, challenged, code, &asked),
                    in_realm(chosen)
                );
                assert_eq!(
                    answered(&mut realms, InDialog, code, &asked),
                    in_realm(chosen)
                );
            }
            assert_eq!(
                answered(&mut realms, challenged, code, &["evil"]),
                not_in("evil")
            );
        }
        // Who asks in many fills no memory.
        let many: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut realms = Realms::default();
        for challenged in [Register, OpeningInvite] {
            assert_eq!(answered(&mut realms, challenged, 401, &many), in_realm("0"));
        }
        assert_eq!(
            (realms.asked_to_register().len(), realms.calls.len()),
            (MOST_ASKED, MOST_ASKED)
        );
    }

    /// The answer asks for both again, as only one was given.
    #[test]
    fn the_realm_is_answered_that_has_no_credentials_yet() {
        let mut request = invite();
        let first =
            "Digest username=\"u\", realm=\"a\", nonce=\"n\", uri=\"sip:x\", response=\"0\"";
        request.headers.push(Name::ProxyAuthorization, first);
        let of = Credentials::new("u", "p");
        let realms = Realms::default();
        let mut response = asks(407, &["a", "b"]);
        let chosen = |response: &Response| {
            let chosen = realms.choose(Challenged::OpeningInvite, &request, response, &of);
            chosen.map(|challenge| challenge.realm)
        };
        assert_eq!(chosen(&response), in_realm("b"));
        // Credentials in the other header answer another server.
        assert_eq!(chosen(&asks(401, &["a", "b"])), in_realm("a"));
        // A stale nonce is none.
        let stale = "Digest realm=\"a\", nonce=\"m\", stale=true";
        response.headers.remove(&Name::ProxyAuthenticate);
        response
            .headers
            .push(Name::ProxyAuthenticate, format!("{stale}, qop=\"auth\""));
        let other = "Digest realm=\"b\", nonce=\"n\", qop=\"auth\"";
        response.headers.push(Name::ProxyAuthenticate, other);
        assert_eq!(chosen(&response), in_realm("a"));
    }

    fn told(realms: &[&str]) -> RegistrarRealms {
        RegistrarRealms::Known(realms.iter().map(|realm| (*realm).to_owned()).collect())
    }

    #[test]
    fn realms_that_are_told_bind_calls_and_a_register_of_ones_own_names_others() {
        use Challenged::{InDialog, OpeningInvite, Register};
        let mut realms = Realms::default();
        realms.tell(told(&["r", "far"]), false);
        for challenged in [OpeningInvite, InDialog] {
            assert_eq!(
                answered(&mut realms, challenged, 407, &["evil"]),
                not_in("evil")
            );
            assert_eq!(
                answered(&mut realms, challenged, 407, &["evil", "r"]),
                in_realm("r")
            );
            assert_eq!(
                answered(&mut realms, challenged, 407, &["far"]),
                in_realm("far")
            );
        }
        assert_eq!(answered(&mut realms, OpeningInvite, 401, &["r"]), COPIED);
        // The registration has a realm of another name since.
        realms.tell(told(&["new"]), false);
        assert_eq!(answered(&mut realms, InDialog, 407, &["r"]), not_in("r"));
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["new"]),
            in_realm("new")
        );
        // Now this one registers, and hears for itself.
        realms.tell(told(&["new"]), true);
        assert_eq!(
            answered(&mut realms, Register, 401, &["own"]),
            in_realm("own")
        );
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["new"]),
            not_in("new")
        );
        assert_eq!(realms.of_registrar(), Some(["own".to_owned()].as_slice()));
        // And then another does again.
        realms.tell(told(&["new"]), false);
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["own"]),
            not_in("own")
        );
        // Who tells nothing makes nothing forgotten.
        let mut realms = Realms::default();
        assert_eq!(answered(&mut realms, Register, 401, &["r"]), in_realm("r"));
        for told in [RegistrarRealms::Unknown, RegistrarRealms::Awaited] {
            realms.tell(told, false);
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &["evil"]),
                not_in("evil")
            );
        }
    }

    #[test]
    fn until_the_registrar_is_heard_calls_are_given_nothing() {
        use Challenged::{InDialog, OpeningInvite, Register};
        let awaiting = |apart| {
            let mut realms = Realms::new(apart, vec!["carrier.example".to_owned()]);
            realms.tell(RegistrarRealms::Awaited, true);
            realms
        };
        let mut realms = awaiting(false);
        for challenged in [OpeningInvite, InDialog] {
            for realm in ["r", "carrier.example"] {
                let withheld = answered(&mut realms, challenged, 407, &[realm]);
                assert_eq!(withheld, Err(Withheld::Unregistered));
            }
        }
        assert_eq!(realms, awaiting(false), "it learns nothing");
        assert_eq!(answered(&mut realms, Register, 401, &["r"]), in_realm("r"));
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["evil"]),
            not_in("evil")
        );
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["r"]),
            in_realm("r")
        );
        // One that asks for nothing has no realm: the first INVITE names one.
        let mut unasked = awaiting(false);
        unasked.registered();
        assert_eq!(unasked.of_registrar(), Some([].as_slice()));
        let mut told_of_none = awaiting(false);
        told_of_none.tell(told(&[]), false);
        // Calls to another host have nothing to do with the registrar.
        for mut realms in [unasked, told_of_none, awaiting(true)] {
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &["call"]),
                in_realm("call")
            );
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &["evil"]),
                not_in("evil")
            );
        }
        // A registrar that took this REGISTER unasked has asked before, as is told.
        let mut asked = Realms::default();
        asked.tell(told(&["r"]), true);
        asked.registered();
        assert_eq!(asked.of_registrar(), Some(["r".to_owned()].as_slice()));
        // Whose realm is configured waits for nobody.
        let of = Credentials {
            realm: Some("ours".to_owned()),
            ..Credentials::new("u", "p")
        };
        let response = asks(407, &["ours"]);
        let chosen = awaiting(false).choose(OpeningInvite, &invite(), &response, &of);
        assert_eq!(chosen.map(|challenge| challenge.realm), in_realm("ours"));
    }

    /// A carrier that has one realm for REGISTER and another, its domain, for INVITE.
    #[test]
    fn calls_may_name_the_realm_that_is_the_trunks_own_name() {
        use Challenged::{InDialog, OpeningInvite, Register};
        let names = ["carrier.example", "192.0.2.1"].map(str::to_owned);
        let registered = || {
            let mut realms = Realms::new(false, names.to_vec());
            assert_eq!(answered(&mut realms, Register, 401, &["r"]), in_realm("r"));
            realms
        };
        for name in ["carrier.example", "192.0.2.1"] {
            let mut realms = registered();
            for other in ["evil", "CARRIER.example", "carrier.example.evil"] {
                assert_eq!(
                    answered(&mut realms, OpeningInvite, 407, &[other]),
                    not_in(other)
                );
            }
            // Within a call a callee may be who asks, and anybody knows the trunk's names.
            for code in [401, 407] {
                assert_eq!(answered(&mut realms, InDialog, code, &[name]), not_in(name));
                let registrars = answered(&mut realms, InDialog, code, &[name, "r"]);
                assert_eq!(registrars, in_realm("r"));
            }
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &[name]),
                in_realm(name)
            );
            for challenged in [OpeningInvite, InDialog] {
                assert_eq!(
                    answered(&mut realms, challenged, 407, &[name]),
                    in_realm(name)
                );
                let copied = Err(Withheld::Code {
                    asked: 401,
                    usual: 407,
                });
                assert_eq!(answered(&mut realms, challenged, 401, &[name]), copied);
            }
            // The registrar's stays a realm of calls.
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &["r"]),
                in_realm("r")
            );
        }
        // Once the carrier has asked in one, no other name is a realm; nor is one ever of a REGISTER.
        for first in ["r", "192.0.2.1"] {
            let mut realms = registered();
            assert_eq!(
                answered(&mut realms, OpeningInvite, 407, &[first]),
                in_realm(first)
            );
            for challenged in [OpeningInvite, InDialog, Register] {
                assert_eq!(
                    answered(&mut realms, challenged, 407, &["carrier.example"]),
                    not_in("carrier.example")
                );
            }
        }
        // Without a registrar the first realm is the carrier's, whatever it is called.
        let mut realms = Realms::new(false, names.to_vec());
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["call"]),
            in_realm("call")
        );
        assert_eq!(
            answered(&mut realms, OpeningInvite, 407, &["carrier.example"]),
            not_in("carrier.example")
        );
    }

    #[test]
    fn a_configured_realm_is_the_only_one() {
        let of = Credentials {
            realm: Some("ours".to_owned()),
            ..Credentials::new("u", "p")
        };
        for challenged in [
            Challenged::Register,
            Challenged::OpeningInvite,
            Challenged::InDialog,
        ] {
            let mut realms = Realms::default();
            let mut chosen = |code: u16, asked: &[&str]| -> Result<String, Withheld> {
                let response = asks(code, asked);
                let chosen = realms.choose(challenged, &invite(), &response, &of)?;
                realms.learn(challenged, &response, &chosen);
                Ok(chosen.realm)
            };
            assert_eq!(chosen(407, &["other"]), not_in("other"));
            assert_eq!(chosen(407, &["other", "ours"]), in_realm("ours"));
            assert_eq!(chosen(407, &["other"]), not_in("other"));
            let copied = chosen(401, &["ours"]);
            match challenged {
                Challenged::OpeningInvite => assert_eq!(copied, COPIED),
                _ => assert_eq!(copied, in_realm("ours")),
            }
        }
    }
}
