//! What is kept of a trunk's registration.

use std::time::Duration;

use control::db::Db;
use control::ids::{AccountId, TrunkId};
use control::sip_trunks::store::{self, Failure, Registration, Standing, Trunk};
use control::sip_trunks::{
    AuthMode, DialFormat, MediaEncryption, RegistrationStatus, Status, Transport, TrunkType,
};
use control::time::Clock;

const CLAIM: Duration = Duration::from_secs(15);

/// A trunk that registers, and which this node registers.
async fn registering(db: &Db, clock: &Clock, node: &str) -> (AccountId, TrunkId) {
    let account = control::accounts::ensure(db, clock, "a").await.unwrap();
    let (id, now) = (TrunkId::new(clock), clock.now());
    let trunk = Trunk {
        id,
        account,
        name: "carrier".to_owned(),
        kind: TrunkType::Inbound,
        numbers: Vec::new(),
        allowed_addresses: Vec::new(),
        auth_mode: AuthMode::Register,
        auth_username: Some("acme".to_owned()),
        password_sealed: None,
        allow_md5_without_qop: false,
        follow_redirects: false,
        outbound_address: Some("sip.carrier.example".to_owned()),
        realm: None,
        register_expires: None,
        outbound_auth: None,
        outbound_from_user: None,
        transport: Transport::Udp,
        media_encryption: MediaEncryption::Allow,
        outbound_dial_format: DialFormat::E164,
        destinations: None,
        max_concurrent_calls: 10,
        calls_per_hour_limit: None,
        is_default_outbound: false,
        status: Status::Active,
        registration: Some(Registration {
            status: RegistrationStatus::Unregistered,
            expires_at: None,
            last_error: None,
            last_failure: None,
            realms: None,
        }),
        refused_challenge: None,
        refused_message: None,
        created_at: now,
        updated_at: now,
    };
    let mut tx = db.begin_write().await.unwrap();
    assert!(store::insert(&mut tx, account, &trunk).await.unwrap());
    tx.commit().await.unwrap();
    let claimed = store::claim_registrations(db, node, clock.shared(), CLAIM).await;
    assert_eq!(claimed.unwrap(), [id]);
    (account, id)
}

#[tokio::test]
async fn the_realms_of_a_registrar_are_kept_and_every_node_learns_of_new_ones() {
    for place in crate::both().await {
        let (db, clock) = (&place.db, Clock::system());
        let (account, id) = registering(db, &clock, "one").await;
        let heard = |realms: &[&str]| Standing {
            outcome: Ok(clock.now().plus(CLAIM)),
            realms: Some(realms.iter().map(|realm| (*realm).to_owned()).collect()),
        };
        let failed = || Failure {
            at: clock.now(),
            code: Some(503),
            reason: "Busy".to_owned(),
        };
        let written = async |node: &str, standing: Standing| {
            let before = store::version(db).await.unwrap();
            let written = store::registered(db, account, id, node, standing).await;
            let told = store::version(db).await.unwrap() != before;
            let trunk = store::get(db, account, id).await.unwrap().unwrap();
            (written.unwrap(), told, trunk.registration.unwrap().realms)
        };
        let kept = |realms: &[&str]| heard(realms).realms;
        let engine = db.engine();
        assert_eq!(
            written("one", Err(failed()).into()).await,
            (true, false, None),
            "{engine:?}"
        );
        // What a name may have in it comes back as it went in.
        let odd = ["a\"b\\c", "\u{0}\u{7f}", "日本", ""];
        for (realms, told) in [
            (&["acme"][..], true),
            (&["acme"], false),
            (&["acme", "far"], true),
            (&[], true),
            (&[], false),
            (&odd, true),
            (&odd, false),
        ] {
            let now = written("one", heard(realms)).await;
            assert_eq!(now, (true, told, kept(realms)), "{engine:?} {realms:?}");
        }
        // Neither a word without them takes them away, nor one of another node or of a realm that is none.
        let endless = "x".repeat(256);
        for (node, standing, is_ours) in [
            ("one", Err(failed()).into(), true),
            ("another", heard(&["evil"]), false),
            ("one", heard(&["acme", &endless]), true),
        ] {
            let now = written(node, standing).await;
            assert_eq!(now, (is_ours, false, kept(&odd)), "{engine:?} {node}");
        }
        // A trunk that begins to register again has heard nobody.
        let mut tx = db.begin_write().await.unwrap();
        store::unregister(&mut tx, account, id).await.unwrap();
        tx.commit().await.unwrap();
        let trunk = store::get(db, account, id).await.unwrap().unwrap();
        assert_eq!(trunk.registration.unwrap().realms, None, "{engine:?}");
    }
}
