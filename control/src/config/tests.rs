//! The settings file and the environment, right and wrong.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use super::*;

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn the_environment_wins_over_the_file_over_the_defaults() {
    let file = "[limits]\naccount_calls = 3\npool_calls = 4\n";
    let config = Config::load(
        Some(file),
        &env(&[
            ("SIDETONE_LIMITS__ACCOUNT_CALLS", "5"),
            ("DATABASE_URL", "sqlite:/x/y.db"),
            ("PATH", "/bin"),
        ]),
    )
    .unwrap();
    assert_eq!(
        (
            config.limits.account_calls,
            config.limits.pool_calls,
            config.limits.node_calls
        ),
        (5, 4, 1000)
    );
    assert_eq!(config.database.url.expose(), "sqlite:/x/y.db");
    assert_eq!(
        config.server.listen,
        SocketAddr::from(([127, 0, 0, 1], 8080))
    );
}

#[test]
fn a_wrong_value_names_its_key_and_all_are_told() {
    let wrong = |file: Option<&str>, pairs: &[(&str, &str)]| {
        Config::load(file, &env(pairs)).unwrap_err().to_string()
    };
    let text = wrong(
        Some("[server]\nlisten = \"nowhere\"\n[colour]\nx = 1\n"),
        &[
            ("SIDETONE_LIMITS__NODE_CALLS", "many"),
            ("SIDETONE_ENGINE__VAD", "ears"),
            ("SIDETONE_MASTER_KEY", "short"),
        ],
    );
    for key in [
        "server.listen",
        "colour.x",
        "limits.node_calls",
        "engine.vad",
        "SIDETONE_MASTER_KEY",
    ] {
        assert!(text.contains(key), "{key} in {text}");
    }
    assert!(wrong(None, &[("SIDETONE_LIMITS__TYPO", "1")]).contains("limits.typo"));
    assert!(wrong(Some("not toml"), &[]).contains("TOML"));
}

#[test]
fn redis_and_the_node_are_read_and_checked() {
    let good = Config::load(
        None,
        &env(&[
            ("REDIS_URL", "redis://:swordfish@127.0.0.1:6379/2"),
            ("SIDETONE_CLUSTER__NODE", "a-1"),
            ("SIDETONE_CLUSTER__ADDRESS", "http://10.0.0.1:8080/"),
        ]),
    )
    .unwrap();
    assert!(good.redis_url.is_some() && !format!("{good:?}").contains("swordfish"));
    assert_eq!(
        (good.cluster.node.as_str(), good.cluster.address.as_str()),
        ("a-1", "http://10.0.0.1:8080")
    );
    assert!(!Config::defaults().unwrap().cluster.node.is_empty());
    let encrypted = [("REDIS_URL", "rediss://:swordfish@redis.example.com:6380")];
    assert!(
        Config::load(None, &env(&encrypted))
            .unwrap()
            .redis_url
            .is_some()
    );
    for (name, value, key) in [
        ("REDIS_URL", "http://127.0.0.1", "redis.url"),
        ("REDIS_URL", "redis://127.0.0.1:port", "redis.url"),
        // A certificate that nobody checks is no use.
        ("REDIS_URL", "rediss://127.0.0.1/#insecure", "redis.url"),
        ("SIDETONE_CLUSTER__NODE", "a:b", "cluster.node"),
        ("SIDETONE_CLUSTER__ADDRESS", "10.0.0.1", "cluster.address"),
    ] {
        let error = Config::load(None, &env(&[(name, value)])).unwrap_err();
        assert!(error.to_string().contains(key), "{value}: {error}");
    }
}

#[test]
fn trusted_proxies_are_addresses_and_ranges() {
    let load = |file: &str| Config::load(Some(file), &BTreeMap::new());
    assert_eq!(
        Config::defaults().unwrap().server.trusted_proxies,
        Proxies::default()
    );
    let named = Proxies::parse(&["10.0.0.0/8", "2001:db8::1"]).unwrap();
    for text in [
        "\"10.0.0.0/8, 2001:db8::1\"",
        "[\"10.0.0.0/8\", \"2001:db8::1\"]",
    ] {
        let config = load(&format!("[server]\ntrusted_proxies = {text}")).unwrap();
        assert_eq!(config.server.trusted_proxies, named);
    }
    for wrong in [
        "\"*\"",
        "\"10.0.0.0/8 ::1\"",
        "[\"proxy.example.com\"]",
        "[10]",
        "true",
    ] {
        let error = load(&format!("[server]\ntrusted_proxies = {wrong}")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("server.trusted_proxies: "), "{error}");
    }
}

#[test]
fn the_collector_and_the_log_are_read_and_checked() {
    let good = Config::load(
        None,
        &env(&[
            ("SIDETONE_TELEMETRY__ENDPOINT", "http://collector:4318/"),
            (
                "SIDETONE_TELEMETRY__HEADERS",
                "authorization=Bearer swordfish, x-team = a",
            ),
            ("SIDETONE_LOG__FORMAT", "json"),
        ]),
    )
    .unwrap();
    assert_eq!(good.telemetry.endpoint, "http://collector:4318");
    let headers: Vec<(&str, &str)> = good
        .telemetry
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose().as_str()))
        .collect();
    assert_eq!(
        headers,
        [("authorization", "Bearer swordfish"), ("x-team", "a")]
    );
    assert_eq!(good.log.format, LogFormat::Json);
    assert!(!format!("{good:?}").contains("swordfish"));
    for (name, value, key) in [
        (
            "SIDETONE_TELEMETRY__ENDPOINT",
            "collector:4318",
            "telemetry.endpoint",
        ),
        (
            "SIDETONE_TELEMETRY__HEADERS",
            "swordfish",
            "telemetry.headers",
        ),
        (
            "SIDETONE_TELEMETRY__HEADERS",
            "a b=swordfish",
            "telemetry.headers",
        ),
        (
            "SIDETONE_TELEMETRY__SAMPLE_PERCENT",
            "101",
            "telemetry.sample_percent",
        ),
        ("SIDETONE_LOG__FORMAT", "xml", "log.format"),
    ] {
        let error = Config::load(None, &env(&[(name, value)])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(key) && !text.contains("swordfish"), "{text}");
    }
}

#[test]
fn browser_audio_is_read_and_checked() {
    let load = |pairs: &[(&str, &str)]| Config::load(None, &env(pairs));
    let defaults = Config::defaults().unwrap().webrtc;
    assert!(defaults.listen.is_none() && defaults.turn.is_none());
    assert!(defaults.public_addresses.is_empty() && defaults.stun_urls.is_empty());
    let set = load(&[
        ("SIDETONE_WEBRTC__LISTEN", "0.0.0.0:5004"),
        (
            "SIDETONE_WEBRTC__PUBLIC_ADDRESSES",
            "192.0.2.7, [2001:db8::7]:6000",
        ),
        ("SIDETONE_WEBRTC__STUN_URLS", "stun:stun.example.com"),
        (
            "SIDETONE_WEBRTC__TURN_URLS",
            "turn:turn.example.com:3478?transport=udp,turns:turn.example.com",
        ),
        ("SIDETONE_WEBRTC__TURN_SECRET", "swordfish"),
    ]);
    let set = set.unwrap().webrtc;
    assert!(!format!("{set:?}").contains("swordfish"));
    assert_eq!(set.listen, Some(([0, 0, 0, 0], 5004).into()));
    let public: Vec<String> = set
        .public_addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(public, ["192.0.2.7:0", "[2001:db8::7]:6000"]);
    let turn = set.turn.unwrap();
    assert_eq!((turn.urls.len(), turn.ttl_seconds), (2, 7200));
    for (name, value, key) in [
        ("SIDETONE_WEBRTC__LISTEN", "5004", "webrtc.listen"),
        (
            "SIDETONE_WEBRTC__PUBLIC_ADDRESSES",
            "example.com",
            "webrtc.public_addresses",
        ),
        (
            "SIDETONE_WEBRTC__STUN_URLS",
            "https://x",
            "webrtc.stun_urls",
        ),
        ("SIDETONE_WEBRTC__TURN_URLS", "stun:x", "webrtc.turn_urls"),
        ("SIDETONE_WEBRTC__TURN_URLS", "turn:x", "webrtc.turn_secret"),
        (
            "SIDETONE_WEBRTC__TURN_TTL_SECONDS",
            "5",
            "webrtc.turn_ttl_seconds",
        ),
    ] {
        let error = load(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(key), "{name}={value}: {error}");
    }
}

#[test]
fn secrets_do_not_show() {
    let config = Config::load(
        None,
        &env(&[
            ("SIDETONE_ADMIN_TOKEN", "swordfish"),
            ("DATABASE_URL", "postgres://u:swordfish@db.example/sidetone"),
        ]),
    )
    .unwrap();
    assert!(!format!("{config:?}").contains("swordfish"));
}

#[test]
fn the_database_is_a_file_or_a_server() {
    let load = |url: &str| Config::load(None, &env(&[("DATABASE_URL", url)]));
    for url in [
        "sqlite:x.db",
        "postgres://u@h/d?sslmode=verify-full&sslrootcert=ca.pem",
        "postgresql://u:p@h:5433/d",
    ] {
        assert_eq!(load(url).unwrap().database.url.expose(), url);
    }
    for url in [
        "mysql://h/d",
        "sqlite:",
        "postgres://u:swordfish@h/d?sslmode=maybe",
        "postgres://u:swordfish@h:port/d",
    ] {
        let error = load(url).unwrap_err().to_string();
        assert!(error.starts_with("database.url: "), "{url}: {error}");
        assert!(!error.contains("swordfish"), "{url}: {error}");
    }
    let defaults = Config::defaults().unwrap().database.pool;
    assert_eq!(defaults, crate::db::Settings::default());
}

#[test]
fn telephones_are_told_one_address_of_each_family_that_is_listened_on() {
    let load = |listen: &str, public: &str| {
        let text = format!(
            "[sip]\nlisten = \"{listen}\"\npublic_address = \"{public}\"\nsources = \"8.8.8.8\""
        );
        let config = Config::load(Some(&text), &BTreeMap::new());
        config
            .map(|config| config.sip)
            .map_err(|error| error.to_string())
    };
    let told = |listen: &str, public: &str, listener: &str| -> Vec<String> {
        let sip = load(listen, public).unwrap();
        let told = sip.public(listener.parse().unwrap());
        told.map(|ip| ip.to_string()).collect()
    };
    let both = "203.0.113.5, 2001:db8::5";
    let two = "10.0.0.1:5060, udp:[fd00::1]:5060";
    assert!(told(two, "", "10.0.0.1").is_empty());
    assert_eq!(told(two, both, "10.0.0.1"), ["203.0.113.5"]);
    assert_eq!(told(two, both, "fd00::1"), ["2001:db8::5"]);
    assert_eq!(
        told("[::]:5060", both, "::"),
        ["203.0.113.5", "2001:db8::5"]
    );
    assert_eq!(told("[::]:5060", "203.0.113.5", "::"), ["203.0.113.5"]);
    for (listen, public, why) in [
        (
            "10.0.0.1:5060",
            "voice.example.com",
            "must be an IP address",
        ),
        (
            "10.0.0.1:5060",
            "203.0.113.5, 203.0.113.6",
            "must be an IP address",
        ),
        ("10.0.0.1:5060", "2001:db8::5", "must be of a family"),
        ("[fd00::1]:5060", both, "must be of a family"),
        ("0.0.0.0:5060", "", "must be set"),
        ("[::]:5060", "", "must be set"),
    ] {
        let error = load(listen, public).unwrap_err();
        assert!(
            error.contains(&format!("sip.public_address: {why}")),
            "{error}"
        );
    }
}

#[test]
fn calls_over_tls_need_a_certificate_its_key_and_perhaps_a_name() {
    let load = |sip: &str| Config::load(Some(&format!("[sip]\n{sip}")), &BTreeMap::new());
    let wrong = |sip: &str| load(sip).unwrap_err().to_string();
    let listen = "listen = \"tls:127.0.0.1:5061\"\n";
    assert!(wrong(listen).contains("sip.tls_certificate: must be set with sip.tls_key"));
    let half = format!("{listen}tls_key = \"key.pem\"\n");
    assert!(wrong(&half).contains("sip.tls_certificate: is missing beside sip.tls_key"));
    let whole = format!("{half}tls_certificate = \"cert.pem\"\n");
    let sip = load(&whole).unwrap().sip;
    assert_eq!(
        sip.tls.map(|files| files.certificate),
        Some("cert.pem".into())
    );
    assert_eq!(sip.tls_name, None);
    let name = |name: &str| format!("{whole}tls_name = \"{name}\"\n");
    assert!(
        load(&name("sip.example.com"))
            .unwrap()
            .sip
            .tls_name
            .is_some()
    );
    for bad in ["192.0.2.1", "sip example"] {
        assert!(wrong(&name(bad)).contains("sip.tls_name: must be a host name"));
    }
}
