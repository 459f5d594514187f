//! Digest, against the examples of the RFCs and against itself.

use core::net::Ipv4Addr;

use super::*;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

fn credentials(username: &str, password: &str) -> Credentials {
    Credentials::new(username, password)
}

/// RFC 7616 3.9.1, whose URI is of HTTP: the algorithm is the same.
#[test]
fn the_examples_of_rfc_7616() {
    for (algorithm, expected) in [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        (
            "SHA-256",
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
        ),
    ] {
        let challenge = Challenge::parse(&format!(
            "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, \
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
             opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
        ))
        .unwrap();
        let answer = challenge.answer(
            &credentials("Mufasa", "Circle of Life"),
            "GET",
            "/dir/index.html",
            1,
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        );
        assert_eq!(answer.get("response"), Some(expected), "{algorithm}");
        assert_eq!(answer.get("nc"), Some("00000001"));
    }
}

/// RFC 2617 3.5 without qop is the scheme of RFC 2069 (its errata 749 gives the response).
#[test]
fn a_challenge_without_qop_gets_no_count() {
    let challenge = Challenge::parse(
        "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
         opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"",
    )
    .unwrap();
    let answer = challenge.answer(
        &credentials("Mufasa", "CircleOfLife"),
        "GET",
        "/dir/index.html",
        1,
        "x",
    );
    assert_eq!(
        answer.get("response"),
        Some("1949323746fe6a43ef61f9606e7febea")
    );
    assert_eq!(answer.get("nc"), None);
}

/// What is answered of these challenges, and whether without qop.
fn chosen(
    values: &[&str],
    of: &Credentials,
    realm: Option<&str>,
) -> Result<(Algorithm, bool), Withheld> {
    let chosen = Challenge::choose(values.iter().copied(), of, realm.as_slice(), &[]);
    chosen.map(|challenge| (challenge.algorithm, challenge.qop))
}

#[test]
fn the_first_known_algorithm_is_taken_and_md5_last() {
    let challenge = |algorithm: &str, qop: &str| {
        format!("Digest realm=\"a\", nonce=\"n\", algorithm={algorithm}{qop}")
    };
    let (with, without) = (", qop=\"auth\"", "");
    let of = credentials("u", "p");
    for (offered, expected) in [
        (
            vec![("SHA-3", with), ("SHA-512-256", with), ("SHA-256", with)],
            (Algorithm::Sha512_256, true),
        ),
        (
            vec![("MD5", with), ("SHA-256", with)],
            (Algorithm::Sha256, true),
        ),
        (
            vec![("MD5", without), ("SHA-256", without)],
            (Algorithm::Sha256, false),
        ),
        (
            vec![("MD5", without), ("MD5-sess", with)],
            (Algorithm::Md5, true),
        ),
    ] {
        let offered: Vec<String> = offered
            .into_iter()
            .map(|(algorithm, qop)| challenge(algorithm, qop))
            .collect();
        let offered: Vec<&str> = offered.iter().map(String::as_str).collect();
        assert_eq!(chosen(&offered, &of, None), Ok(expected), "{offered:?}");
    }
    assert_eq!(Challenge::parse("Basic realm=\"a\""), None);
    assert_eq!(
        Challenge::parse("Digest realm=\"a\", nonce=\"n\", qop=\"auth-int\""),
        None
    );
    let unknown = chosen(&["Basic realm=\"a\""], &of, None);
    assert_eq!(unknown, Err(Withheld::Unknown));
}

/// Also in the form with a client's nonce, which without qop says nothing of it; and where no algorithm is named.
#[test]
fn md5_without_qop_is_answered_where_it_is_allowed() {
    let allowing = Credentials {
        md5_without_qop: true,
        ..credentials("u", "p")
    };
    for algorithm in ["", ", algorithm=MD5", ", algorithm=md5-SESS"] {
        let value = format!("Digest realm=\"a\", nonce=\"n\"{algorithm}");
        let refused = chosen(&[&value], &credentials("u", "p"), None);
        assert_eq!(refused, Err(Withheld::Md5WithoutQop), "{value}");
        let answered = chosen(&[&value], &allowing, None);
        assert_eq!(answered, Ok((Algorithm::Md5, false)), "{value}");
    }
}

#[test]
fn a_challenge_is_answered_in_the_trunks_realm_alone() {
    let [ours, evil] = ["carrier", "evil"]
        .map(|realm| format!("Digest realm=\"{realm}\", nonce=\"n\", qop=\"auth\""));
    let better = format!("{evil}, algorithm=SHA-256");
    let of = credentials("u", "p");
    let configured = Credentials {
        realm: Some("carrier".to_owned()),
        ..of.clone()
    };
    let md5 = Ok((Algorithm::Md5, true));
    let both = [better.as_str(), ours.as_str()];
    for (own, seen) in [(&of, Some("carrier")), (&configured, None)] {
        // A stronger one of another realm changes nothing.
        assert_eq!(chosen(&both, own, seen), md5);
        let refused = chosen(&[&better, &evil], own, seen);
        assert_eq!(refused, Err(Withheld::Realm("evil".to_owned())));
    }
    // Realms are compared as they are written (RFC 7616 3.3).
    assert!(chosen(&[&ours], &of, Some("Carrier")).is_err());
    // Where none is known it is that of the first, and the second cannot change it.
    assert_eq!(chosen(&[&ours, &better], &of, None), md5);
}

struct Server {
    authenticator: Authenticator,
    uri: Uri,
}

impl Server {
    fn new() -> Self {
        Self {
            authenticator: Authenticator::new("sidetone", Ids::from_number(1)),
            uri: Uri::parse("sip:+15550100@192.0.2.1").unwrap(),
        }
    }

    fn challenge(&mut self, now: Time, which: usize) -> Challenge {
        let value = self.authenticator.challenge(now, SOURCE, false)[which].to_string();
        Challenge::parse(&value).unwrap()
    }

    fn verify(&mut self, now: Time, source: IpAddr, value: &str) -> Verdict<u8> {
        self.verify_of(now, source, value, &[(1, "secret")])
    }

    /// Those are the passwords of the user.
    fn verify_of(
        &mut self,
        now: Time,
        source: IpAddr,
        value: &str,
        passwords: &[(u8, &'static str)],
    ) -> Verdict<u8> {
        let (uri, most) = (self.uri.clone(), passwords.len());
        let of = |user: &str| match user {
            "carrier" => passwords.to_vec(),
            _ => Vec::new(),
        };
        self.authenticator
            .verify(now, source, "INVITE", &uri, Some(value), most, of)
    }

    fn answer(&self, challenge: &Challenge, user: &str, password: &str, count: u32) -> String {
        challenge
            .answer(
                &credentials(user, password),
                "INVITE",
                &self.uri.to_string(),
                count,
                "cn",
            )
            .to_string()
    }
}

#[test]
fn both_algorithms_of_the_server_can_be_answered() {
    for which in [0, 1] {
        let mut server = Server::new();
        let now = Time::from_secs(100);
        let challenge = server.challenge(now, which);
        let answer = server.answer(&challenge, "carrier", "secret", 1);
        assert_eq!(server.verify(now, SOURCE, &answer), Verdict::Known(1));
    }
}

/// Two accounts call their carrier's user the same.
#[test]
fn of_those_with_one_name_the_password_decides() {
    let mut server = Server::new();
    let now = Time::from_secs(100);
    let challenge = server.challenge(now, 0);
    let mut count = 0;
    let mut of = |password: &str, passwords: &[(u8, &'static str)]| {
        count += 1;
        let answer = server.answer(&challenge, "carrier", password, count);
        server.verify_of(now, SOURCE, &answer, passwords)
    };
    let three = [(1, "one"), (2, "two"), (3, "two")];
    assert_eq!(of("one", &three), Verdict::Known(1));
    assert_eq!(of("one", &[three[1], three[0]]), Verdict::Known(1));
    assert_eq!(of("two", &three[..2]), Verdict::Known(2));
    assert!(matches!(of("two", &three), Verdict::Ambiguous(both) if both.len() == 2));
    assert_eq!(of("three", &three), Verdict::Refused);
    // A right answer that is used up is stale whomever it is of.
    let answer = server.answer(&challenge, "carrier", "two", 1);
    let verdict = server.verify_of(now, SOURCE, &answer, &three);
    assert_eq!(verdict, Verdict::Stale);
}

#[test]
fn a_count_is_good_once() {
    let mut server = Server::new();
    let now = Time::from_secs(100);
    let challenge = server.challenge(now, 0);
    let first = server.answer(&challenge, "carrier", "secret", 1);
    let second = server.answer(&challenge, "carrier", "secret", 2);
    assert!(matches!(
        server.verify(now, SOURCE, &first),
        Verdict::Known(_)
    ));
    assert_eq!(server.verify(now, SOURCE, &first), Verdict::Stale);
    assert!(matches!(
        server.verify(now, SOURCE, &second),
        Verdict::Known(_)
    ));
    assert_eq!(server.verify(now, SOURCE, &first), Verdict::Stale);
}

#[test]
fn an_old_nonce_is_stale_and_a_foreign_one_refused() {
    let mut server = Server::new();
    let challenge = server.challenge(Time::from_secs(100), 0);
    let answer = server.answer(&challenge, "carrier", "secret", 1);
    let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
    assert_eq!(
        server.verify(Time::from_secs(401), SOURCE, &answer),
        Verdict::Stale
    );
    assert_eq!(
        server.verify(Time::from_secs(101), other, &answer),
        Verdict::Refused
    );
    let made_up = Challenge {
        nonce: "0000000005f5e10000000000000000000123456789abcdef0123456789abcdef".to_owned(),
        ..challenge
    };
    let answer = server.answer(&made_up, "carrier", "secret", 1);
    assert_eq!(
        server.verify(Time::from_secs(101), SOURCE, &answer),
        Verdict::Refused
    );
}

#[test]
fn an_unknown_user_and_a_wrong_password_look_alike() {
    let mut server = Server::new();
    let now = Time::from_secs(100);
    let challenge = server.challenge(now, 0);
    for (user, password) in [("carrier", "wrong"), ("nobody", "secret")] {
        let answer = server.answer(&challenge, user, password, 1);
        assert_eq!(server.verify(now, SOURCE, &answer), Verdict::Refused);
    }
    // Even with an old nonce: only a right password is told that its nonce is old.
    let answer = server.answer(&challenge, "carrier", "wrong", 1);
    assert_eq!(
        server.verify(Time::from_secs(999), SOURCE, &answer),
        Verdict::Refused
    );
}

#[test]
fn credentials_of_another_request_are_refused() {
    let mut server = Server::new();
    let now = Time::from_secs(100);
    let challenge = server.challenge(now, 0);
    let answer = challenge
        .answer(
            &credentials("carrier", "secret"),
            "INVITE",
            "sip:+15550199@192.0.2.1",
            1,
            "cn",
        )
        .to_string();
    assert_eq!(server.verify(now, SOURCE, &answer), Verdict::Refused);
    for junk in [
        "",
        "Digest",
        "Digest x",
        "Basic abc=",
        "Digest username=\"carrier\"",
    ] {
        assert_eq!(server.verify(now, SOURCE, junk), Verdict::Refused);
    }
}

#[test]
fn a_forgotten_nonce_cannot_be_used_again() {
    let mut server = Server::new();
    let first = server.challenge(Time::from_micros(1), 0);
    let replay = server.answer(&first, "carrier", "secret", 1);
    assert!(matches!(
        server.verify(Time::from_secs(1), SOURCE, &replay),
        Verdict::Known(_)
    ));
    for number in 0..u64::try_from(MOST_NONCES).unwrap() {
        let challenge = server.challenge(Time::from_micros(10 + number), 0);
        let answer = server.answer(&challenge, "carrier", "secret", 1);
        assert!(matches!(
            server.verify(Time::from_secs(1), SOURCE, &answer),
            Verdict::Known(_)
        ));
    }
    assert_eq!(
        server.verify(Time::from_secs(1), SOURCE, &replay),
        Verdict::Stale
    );
}

fn invite() -> Request {
    let uri = Uri::parse("sip:+15550100@192.0.2.1").unwrap();
    let mut request = Request::new(crate::message::Method::Invite, uri);
    request.headers.push(Name::Via, "SIP/2.0/UDP 192.0.2.9");
    request
}

/// The request again after a challenge with this nonce, and what it says of itself there.
fn asked(retry: &mut Retry, ids: &mut Ids, request: &Request, code: u16, nonce: &str) -> Request {
    let realm = if code == 401 { "server" } else { "proxy" };
    let challenge = format!("Digest realm=\"{realm}\", nonce=\"{nonce}\", qop=\"auth\"");
    let challenge = Challenge::parse(&challenge).unwrap();
    let of = credentials("carrier", "secret");
    retry.answer(request, code, challenge, &of, ids).unwrap()
}

fn given(request: &Request, name: &Name) -> AuthValue {
    let all: Vec<&str> = request.headers.all(name).collect();
    assert_eq!(all.len(), 1, "{name:?}");
    AuthValue::parse(all[0]).unwrap()
}

/// RFC 7616 3.4: the count of requests that were sent with this nonce.
#[test]
fn a_nonce_that_comes_again_is_counted_on() {
    let (mut retry, mut ids) = (Retry::default(), Ids::from_number(1));
    let request = invite();
    let mut counts = Vec::new();
    for nonce in ["n", "n", "n", "other", "other"] {
        let again = asked(&mut retry, &mut ids, &request, 401, nonce);
        retry.start_over();
        let given = given(&again, &Name::Authorization);
        let count = given.get("nc").unwrap();
        let expected = response(&Parts {
            algorithm: Algorithm::Md5,
            session: false,
            username: "carrier",
            realm: "server",
            password: "secret",
            nonce,
            qop: Some((count, given.get("cnonce").unwrap(), "auth")),
            cnonce: "",
            method: "INVITE",
            uri: "sip:+15550100@192.0.2.1",
        });
        assert_eq!(given.get("response"), Some(expected.as_str()));
        assert_eq!(given.get("nonce"), Some(nonce));
        counts.push(count.to_owned());
    }
    assert_eq!(
        counts,
        ["00000001", "00000002", "00000003", "00000001", "00000002"]
    );
}

/// A server that counts takes each answer, however often it asks with the same nonce.
#[test]
fn a_server_that_counts_takes_what_is_asked_for_again() {
    let mut server = Server::new();
    let now = Time::from_secs(100);
    let challenge = server.authenticator.challenge(now, SOURCE, false)[0].to_string();
    let (mut retry, mut ids) = (Retry::default(), Ids::from_number(1));
    for _ in 0..30 {
        let request = invite();
        let challenge = Challenge::parse(&challenge).unwrap();
        let of = credentials("carrier", "secret");
        let again = retry.answer(&request, 401, challenge, &of, &mut ids);
        let again = again.unwrap();
        let value = again.headers.get(&Name::Authorization).unwrap();
        assert!(matches!(
            server.verify(now, SOURCE, value),
            Verdict::Known(_)
        ));
        retry.start_over();
    }
}

/// A proxy asks, then the server behind it: the request that answers the second is one more under the
/// proxy's nonce.
#[test]
fn a_request_with_two_credentials_counts_on_both() {
    let (mut retry, mut ids) = (Retry::default(), Ids::from_number(1));
    let first = asked(&mut retry, &mut ids, &invite(), 407, "p");
    let second = asked(&mut retry, &mut ids, &first, 401, "s");
    let to_proxy = [&first, &second].map(|request| given(request, &Name::ProxyAuthorization));
    assert_eq!(
        to_proxy.map(|value| value.get("nc").map(str::to_owned)),
        ["00000001", "00000002"].map(|count| Some(count.to_owned()))
    );
    assert_eq!(
        given(&second, &Name::Authorization).get("nc"),
        Some("00000001")
    );
    assert!(!second.headers.has(&Name::Via));
    // A request that bears none, such as a BYE, answers the one who asks.
    let third = asked(&mut retry, &mut ids, &invite(), 401, "s");
    assert_eq!(
        given(&third, &Name::Authorization).get("nc"),
        Some("00000002")
    );
    assert!(!third.headers.has(&Name::ProxyAuthorization));
}

/// Two proxies on the way: whoever asks second does not make us forget the first.
#[test]
fn two_proxies_are_both_answered() {
    let (mut retry, mut ids) = (Retry::default(), Ids::from_number(1));
    let mut request = invite();
    for (answered, realm) in ["near", "far"].into_iter().enumerate() {
        let challenge = format!("Digest realm=\"{realm}\", nonce=\"{realm}\", qop=\"auth\"");
        let challenge = Challenge::parse(&challenge).unwrap();
        let of = credentials("carrier", "secret");
        let again = retry.answer(&request, 407, challenge, &of, &mut ids);
        request = again.unwrap();
        let given = request.headers.all(&Name::ProxyAuthorization).count();
        assert_eq!(given, answered + 1);
    }
}
