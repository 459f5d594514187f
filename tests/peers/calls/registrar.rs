//! A trunk that registers with Kamailio, as a small carrier or a PBX has it.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::kamailio::Kamailio;
use crate::stage;
use crate::trunks::{
    ANSWERED, NUMBER, ack, caller, calls, goodbye, invite, line, scenario, server, until, well,
};

/// Asks for the password, keeps whom it knows for 20 seconds, and calls who registered.
const ROUTES: &str = r#"
    if (is_method("REGISTER")) {
        if (!pv_www_authenticate("sip.acme.example", "secret7", "0")) {
            www_challenge("sip.acme.example", "0");
            exit;
        }
        if (save("location")) { xlog("L_ERR", "SAVED $fU\n"); }
        exit;
    }
    record_route();
    if (!lookup("location")) {
        sl_send_reply("404", "Nobody Registered");
        exit;
    }
    t_relay();
"#;

const MODULES: &str = r#"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "auth.so"
modparam("registrar", "max_expires", 20)
"#;

async fn saved(registrar: &Kamailio, times: usize) {
    let patience = Instant::now() + Duration::from_secs(40);
    while registrar.told("SAVED line7") < times {
        assert!(Instant::now() < patience, "{}", registrar.log());
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_trunk_stays_registered_with_kamailio_over_its_restart_and_receives_a_call() {
    let _together = stage::together().await;
    let mut registrar = Kamailio::start(MODULES, ROUTES).await;
    let (server, _) = server().await;
    let client = server.client();
    let trunk = json!({"name": "registers", "type": "inbound", "auth_mode": "register",
        "auth_username": "line7", "auth_password": "secret7", "realm": "sip.acme.example",
        "allow_md5_without_qop": true,
        "outbound_address": registrar.address.to_string()});
    let (trunk, ..) = line(&client, trunk, json!({})).await;
    let path = format!("/sip-trunks/{trunk}");
    let registered = until(&client, &path, |trunk| {
        trunk["registration"]["status"] == "registered"
    });
    registered.await;
    saved(&registrar, 1).await;
    // Refreshed before the 20 seconds are over, and again with a registrar that has forgotten everything.
    saved(&registrar, 2).await;
    registrar.restart().await;
    saved(&registrar, 1).await;

    // The requests inside the call go the way that the answer told, through the proxy to our Contact.
    let routed = |step: String| {
        let step = step.replace(
            "sip:[service]@[remote_ip]:[remote_port] SIP",
            "[next_url] SIP",
        );
        step.replace("[call_id]", "[call_id]\n      [routes]")
    };
    let answered = ANSWERED.replace("\"200\"/>", "\"200\" rrs=\"true\"/>");
    let file = server.data.join("through.xml");
    let steps = [
        invite(NUMBER, ""),
        answered,
        routed(ack(NUMBER, "")),
        routed(goodbye(NUMBER)),
    ];
    std::fs::write(&file, scenario(&steps)).unwrap();
    let call = caller(
        &server,
        registrar.address,
        "line7",
        &["-sf", file.to_str().unwrap()],
    );
    assert!(well(call).await, "{}; {}", server.log(), registrar.log());
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(
        (&call["status"], &call["to_number"], &call["trunk_id"]),
        (&json!("completed"), &json!(NUMBER), &json!(trunk))
    );
}
