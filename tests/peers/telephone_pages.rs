//! The console's pages of the telephone in a real browser: a carrier is connected, its numbers get an agent, a number
//! is suppressed and lifted, an agent calls, and all of it is taken away again.

use std::net::{SocketAddr, UdpSocket};

use kit::ports::free_udp;
use kit::server::{Server, Setup};
use serde_json::{Value, json};

use super::browser::{click, console, dialog_gone, fact, go, look_right, set, shown, submit};
use super::devtools::Browser;

const PASSWORD: &str = "correct horse battery";
const NUMBER: &str = "+4930123458";
const SUPPRESSED: &str = "+4915112345678";
/// The fields that are told to be wrong, in their order on the page.
const WRONG: &str = "[...document.querySelectorAll('.wrong')].filter((one) => !one.hidden && one.closest('[data-field]')).map((one) => one.closest('[data-field]').dataset.field).join()";

#[tokio::test]
async fn a_person_connects_a_carrier_and_its_numbers_get_an_agent() {
    // A carrier that never answers.
    let carrier = free_udp();
    let server = Setup::default()
        .scripted()
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await;
    let mut page = console(&server).await;
    for name in ["numbers", "trunks", "suppressions"] {
        go(&mut page, &format!("#/{name}")).await;
        page.until("document.querySelector('main .empty h2')", 5)
            .await;
        page.screenshot(&format!("{name}-empty")).await;
    }

    let trunk = connect(&mut page, &server, &carrier.to_string()).await;
    let number = register(&mut page, &server).await;
    route(&mut page, &server, &number).await;
    bound(&mut page, &server, &trunk).await;
    let inbound = for_calls_in(&mut page, &server).await;
    let refused = refused(&mut page, &server).await;
    let call = suppress_and_call(&mut page, &server, &trunk).await;

    // The refusals that were provoked are told by the browser, too.
    page.troubles.retain(|trouble| {
        !["status of 400", "status of 403", "status of 422"]
            .iter()
            .any(|own| trouble.contains(own))
    });
    assert_eq!(page.troubles, Vec::<String>::new());

    let pages = [
        ("numbers", "#/numbers".to_owned()),
        ("number", format!("#/numbers/{number}")),
        ("trunks", "#/trunks".to_owned()),
        ("trunk", format!("#/trunks/{trunk}")),
        ("trunk-refused", format!("#/trunks/{refused}")),
        ("trunk-change", format!("#/trunks/{inbound}/change")),
        ("trunk-new", "#/trunks/new".to_owned()),
        ("trunk-onboard", "#/trunks/onboard".to_owned()),
        ("suppressions", "#/suppressions".to_owned()),
        ("call-sip", format!("#/calls/{call}")),
    ];
    look_right(&mut page, &server, &pages).await;
    take_away(&mut page, &server, &trunk, &number).await;
}

async fn wrong(page: &mut Browser, fields: &str) {
    page.until(&format!("{WRONG} === '{fields}'"), 10).await;
}

async fn record(server: &Server, path: &str) -> Value {
    server.client().get(path).await.expect(200).body
}

fn last_of(hash: &Value) -> String {
    let hash = hash.as_str().unwrap();
    hash.rsplit('/').next().unwrap().to_owned()
}

/// What is missing, what is no public host and what does not go together is told beside its field; then the trunk and
/// its numbers are there, and its password is not.
async fn connect(page: &mut Browser, server: &Server, carrier: &str) -> String {
    click(page, "#main a[href=\"#/trunks\"]").await;
    page.until(&shown("#/trunks"), 10).await;
    click(page, "#onboard").await;
    page.until(&shown("#/trunks/onboard"), 10).await;
    set(page, "name", "'Acme Telecom'").await;
    // What is no number at all is told before anything is sent.
    set(page, "inbound", "'hangup'").await;
    no_number(page, "inbound-ring").await;
    click(page, "#save").await;
    wrong(page, "inbound.max_ring_seconds").await;
    page.screenshot("trunk-no-number").await;
    // Where it is not asked for, it is in nobody's way.
    set(page, "inbound", "''").await;
    click(page, "#save").await;
    wrong(page, "outbound_address,numbers").await;
    assert_eq!(
        page.eval("document.activeElement.id").await,
        "f-outbound_address"
    );
    set(page, "numbers", "'+4930123456\\n+4930123457'").await;
    set(page, "outbound_address", "'10.0.0.1'").await;
    click(page, "#save").await;
    wrong(page, "outbound_address").await;
    page.screenshot("trunk-wrong").await;
    set(page, "outbound_address", &json!(carrier).to_string()).await;
    click(page, "#save").await;
    wrong(page, "auth_mode").await;
    set(page, "auth_username", "'acct-4711'").await;
    set(page, "auth_password", &json!(PASSWORD).to_string()).await;
    assert_eq!(
        page.eval("document.querySelector('#f-auth_password').type")
            .await,
        "password"
    );
    click(page, "#save").await;
    page.until(
        "/^#\\/trunks\\/[0-9a-f-]{36}$/.test(location.hash) && document.querySelector('h1')?.textContent === 'Acme Telecom'",
        10,
    )
    .await;
    let trunk = last_of(&page.eval("location.hash").await);
    fact(page, "Password", "kept, never shown").await;
    let told = page
        .eval("document.documentElement.outerHTML")
        .await
        .to_string();
    assert!(!told.contains(PASSWORD));
    assert_eq!(
        page.eval("document.querySelectorAll('tbody tr').length")
            .await,
        2
    );
    click(page, "#default-trunk").await;
    page.until("document.querySelector('.head .tag')", 10).await;
    let made = record(server, &format!("/sip-trunks/{trunk}")).await;
    assert_eq!(
        (
            &made["is_default_outbound"],
            &made["has_credentials"],
            &made["type"]
        ),
        (&json!(true), &json!(true), &json!("outbound"))
    );
    trunk
}

/// Types what is no number into a field for one.
async fn no_number(page: &mut Browser, field: &str) {
    page.eval(&format!("document.querySelector('#f-{field}').focus()"))
        .await;
    page.insert("e").await;
    let is_none = format!("document.querySelector('#f-{field}').validity.badInput");
    page.until(&is_none, 5).await;
}

/// A number as people write it, with the agent that answers it; where it is to be forwarded to is asked for.
async fn register(page: &mut Browser, server: &Server) -> String {
    go(page, "#/numbers").await;
    click(page, "#new-number").await;
    page.until("document.querySelector('dialog[open] #f-phone_number')", 10)
        .await;
    submit(page).await;
    wrong(page, "phone_number").await;
    set(page, "phone_number", "'+49 (30) 123-458'").await;
    set(
        page,
        "agent_id",
        "[...document.querySelector('#f-agent_id').options].at(-1).value",
    )
    .await;
    set(page, "inbound", "'forward'").await;
    submit(page).await;
    wrong(page, "inbound.fallback_number").await;
    page.screenshot("number-wrong").await;
    set(page, "inbound-number", "'+4930111222'").await;
    submit(page).await;
    page.until(
        &format!("/^#\\/numbers\\/[0-9a-f-]{{36}}$/.test(location.hash) && document.querySelector('h1')?.textContent === '{NUMBER}'"),
        10,
    )
    .await;
    let number = last_of(&page.eval("location.hash").await);
    let made = record(server, &format!("/phone-numbers/{number}")).await;
    let rules = json!({"fallback_action": "forward", "fallback_number": "+4930111222", "max_ring_seconds": null});
    assert_eq!(
        (&made["routing_rules"], &made["outbound_enabled"]),
        (&rules, &json!(false))
    );
    assert!(made["agent_id"].is_string());
    number
}

/// A server that refuses what is changed for what the form does not show.
const REFUSES: &str = "(() => {
    const real = window.fetch;
    const fields = [
        { loc: ['body', 'routing_rules', 'fallback_number'], msg: 'No such number' },
        { loc: ['body', 'colour'], msg: 'Not known' },
    ];
    window.fetch = (address, more) => more?.method === 'PATCH'
        ? Promise.resolve(new Response(JSON.stringify({ error: 'Validation error', code: 'validation_error', fields }), { status: 422 }))
        : real(address, more);
    window.unrefused = () => { window.fetch = real; };
})()";

async fn route(page: &mut Browser, server: &Server, number: &str) {
    let path = format!("/phone-numbers/{number}");
    click(page, "#edit-routing").await;
    page.until(
        "document.querySelector('dialog[open] #f-routing_rules')?.value === 'forward'",
        10,
    )
    .await;
    set(page, "routing_rules", "'hangup'").await;
    no_number(page, "routing_rules-ring").await;
    submit(page).await;
    wrong(page, "routing_rules.max_ring_seconds").await;
    // What is refused of fields that one does not see is told above the buttons.
    page.eval(REFUSES).await;
    set(page, "routing_rules-ring", "'20'").await;
    submit(page).await;
    page.until(
        "document.querySelector('dialog [role=alert]').innerText === 'routing_rules, fallback_number: No such number. colour: Not known'",
        5,
    )
    .await;
    page.screenshot("number-strays").await;
    page.eval("unrefused()").await;
    set(page, "routing_rules-ring", "'200'").await;
    submit(page).await;
    wrong(page, "routing_rules.max_ring_seconds").await;
    set(page, "routing_rules-ring", "'45'").await;
    submit(page).await;
    dialog_gone(page).await;
    page.until(
        "document.querySelector('main').innerText.includes('Rings 45 s, then hangs up.')",
        10,
    )
    .await;
    let rules =
        json!({"fallback_action": "hangup", "fallback_number": null, "max_ring_seconds": 45});
    assert_eq!(record(server, &path).await["routing_rules"], rules);

    click(page, "#edit-number").await;
    page.until(
        "document.querySelector('dialog[open] #f-outbound_enabled')",
        10,
    )
    .await;
    page.eval("document.querySelector('#f-outbound_enabled').click()")
        .await;
    set(page, "friendly_name", "'Reception'").await;
    submit(page).await;
    dialog_gone(page).await;
    fact(page, "Places calls", "Yes").await;
    let made = record(server, &path).await;
    assert_eq!(
        (
            &made["outbound_enabled"],
            &made["friendly_name"],
            &made["routing_rules"]
        ),
        (&json!(true), &json!("Reception"), &rules)
    );
}

/// A trunk's limits; it is disabled and enabled again.
async fn bound(page: &mut Browser, server: &Server, trunk: &str) {
    go(page, &format!("#/trunks/{trunk}/change")).await;
    assert_eq!(
        page.eval("document.querySelector('#save').disabled").await,
        true
    );
    set(page, "max_concurrent_calls", "'3'").await;
    set(page, "destination_allowlist", "'allowlist'").await;
    set(page, "destination_allowlist-entries", "'49'").await;
    click(page, "#save").await;
    wrong(page, "destination_allowlist.entries").await;
    set(page, "destination_allowlist-entries", "'+49\\n+33'").await;
    click(page, "#save").await;
    page.until(&shown(&format!("#/trunks/{trunk}")), 10).await;
    fact(page, "May call", "Only +49, +33").await;
    fact(page, "Calls now", "0 of 3").await;
    click(page, "#disable-trunk").await;
    submit(page).await;
    page.until("document.querySelector('#enable-trunk')", 10)
        .await;
    let path = format!("/sip-trunks/{trunk}");
    assert_eq!(record(server, &path).await["status"], "disabled");
    click(page, "#enable-trunk").await;
    page.until("document.querySelector('#default-trunk')", 10)
        .await;
    let made = record(server, &path).await;
    assert_eq!(
        (
            &made["status"],
            &made["max_concurrent_calls"],
            &made["destination_allowlist"]
        ),
        (
            &json!("active"),
            &json!(3),
            &json!({"mode": "allowlist", "entries": ["+49", "+33"]})
        )
    );
}

/// What is asked follows from the way of access.
async fn for_calls_in(page: &mut Browser, server: &Server) -> String {
    go(page, "#/trunks/new").await;
    let asked = "[...document.querySelectorAll('#editor [data-field]')].filter((one) => one.checkVisibility()).map((one) => one.dataset.field)";
    let fields = page.eval(asked).await.to_string();
    assert!(fields.contains("auth_password") && !fields.contains("allowed_addresses"));
    set(page, "auth_mode", "'register'").await;
    let fields = page.eval(asked).await.to_string();
    assert!(fields.contains("realm") && fields.contains("outbound_address"));
    set(page, "auth_mode", "'ip_acl'").await;
    let fields = page.eval(asked).await.to_string();
    assert!(fields.contains("allowed_addresses") && !fields.contains("auth_password"));
    assert!(!fields.contains("realm"));
    set(page, "name", "'Acme Telecom, calls in'").await;
    set(page, "allowed_addresses", "'127.0.0.1\\n192.168.0.0/16'").await;
    click(page, "#save").await;
    wrong(page, "allowed_addresses").await;
    set(page, "allowed_addresses", "'127.0.0.1'").await;
    click(page, "#save").await;
    page.until(
        "/^#\\/trunks\\/[0-9a-f-]{36}$/.test(location.hash) && document.querySelector('#delete-trunk')",
        10,
    )
    .await;
    let trunk = last_of(&page.eval("location.hash").await);
    let path = format!("/sip-trunks/{trunk}");
    let made = record(server, &path).await;
    assert_eq!(
        (
            &made["type"],
            &made["auth_mode"],
            &made["allowed_addresses"]
        ),
        (&json!("inbound"), &json!("ip_acl"), &json!(["127.0.0.1"]))
    );
    // Its user name and its password are sent with the new way, together.
    go(page, &format!("#/trunks/{trunk}/change")).await;
    set(page, "auth_mode", "'digest_plus_ip_acl'").await;
    set(page, "auth_username", "'acme-in'").await;
    click(page, "#save").await;
    wrong(page, "auth_mode").await;
    set(page, "auth_password", &json!(PASSWORD).to_string()).await;
    click(page, "#save").await;
    page.until(&shown(&format!("#/trunks/{trunk}")), 10).await;
    fact(page, "User name", "acme-in").await;
    assert_eq!(
        record(server, &path).await["auth_mode"],
        "digest_plus_ip_acl"
    );
    trunk
}

/// A registrar refuses; the trunk's page says what it said, and when.
async fn refused(page: &mut Browser, server: &Server) -> String {
    let trunk = json!({"name": "Acme Telecom, registered", "type": "inbound", "auth_mode": "register",
        "auth_username": "acme", "auth_password": PASSWORD, "outbound_address": registrar().to_string()});
    let made = server.client().post("/sip-trunks", &trunk).await;
    let trunk = made.expect(201).text("id");
    go(page, &format!("#/trunks/{trunk}")).await;
    page.until(
        "[...document.querySelectorAll('.facts > div')].some((one) => one.querySelector('dt').textContent === 'Failed last' && /\\d.*403 Forbidden$/.test(one.querySelector('dd').textContent))",
        10,
    )
    .await;
    trunk
}

/// A registrar that knows nobody.
fn registrar() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut room) {
            let request = String::from_utf8_lossy(&room[..length]);
            let repeated = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
            let repeated = request
                .lines()
                .filter(|line| repeated.iter().any(|name| line.starts_with(name)));
            let lines: Vec<&str> = ["SIP/2.0 403 Forbidden"]
                .into_iter()
                .chain(repeated)
                .chain(["Content-Length: 0", "", ""])
                .collect();
            socket.send_to(lines.join("\r\n").as_bytes(), from).unwrap();
        }
    });
    address
}

/// A number on the list is not called; lifted, it is, and the call's page tells its telephone side.
async fn suppress_and_call(page: &mut Browser, server: &Server, trunk: &str) -> String {
    go(page, "#/suppressions").await;
    click(page, "#new-suppression").await;
    set(page, "phone_number", "'0151'").await;
    submit(page).await;
    wrong(page, "phone_number").await;
    set(page, "phone_number", &json!(SUPPRESSED).to_string()).await;
    set(page, "reason", "'asked by mail'").await;
    submit(page).await;
    dialog_gone(page).await;
    page.until(
        &format!("document.querySelector('tbody')?.innerText.includes('{SUPPRESSED}')"),
        10,
    )
    .await;

    // Found as people write it; the way to all of them leads there from here, too.
    page.eval("(() => { const number = document.querySelector('#by-number'); number.value = '+49 (151) 1234-5678'; number.dispatchEvent(new Event('change', { bubbles: true })); })()")
        .await;
    page.until(
        &format!("location.hash.includes('phone_number=') && !document.querySelector('[aria-busy]') && document.querySelector('tbody')?.innerText.includes('{SUPPRESSED}')"),
        10,
    )
    .await;
    click(page, ".ways a[href=\"#/suppressions\"]").await;
    page.until(&shown("#/suppressions"), 5).await;
    assert_eq!(
        page.eval("document.querySelector('#by-number').value")
            .await,
        ""
    );

    // A number of digits alone takes calls, and is nobody's to call from.
    let digits = json!({"phone_number": "4930123459", "trunk_id": trunk, "outbound_enabled": true});
    let client = server.client();
    let made = client
        .post("/phone-numbers/sip/register", &digits)
        .await
        .expect(201);
    call(page).await;
    let callers = "[...document.querySelectorAll('#f-from_number option')].map((one) => one.value).filter(Boolean).every((one) => one.startsWith('+'))";
    assert_eq!(page.eval(callers).await, true);
    client
        .delete(&format!("/phone-numbers/{}", made.text("id")))
        .await;
    page.until(
        "document.querySelector('dialog [role=alert]')?.textContent.includes('do-not-call')",
        10,
    )
    .await;
    page.press("Escape", 27, "").await;
    dialog_gone(page).await;

    go(page, "#/suppressions").await;
    click(page, &format!("[aria-label=\"Lift {SUPPRESSED}\"]")).await;
    submit(page).await;
    dialog_gone(page).await;
    page.until(
        "document.querySelector('td[data-head=Status]')?.textContent.startsWith('Lifted')",
        10,
    )
    .await;
    let list = record(server, "/suppressions").await;
    assert_eq!(list["items"][0]["status"], "released", "{list}");

    call(page).await;
    page.until(
        "/^#\\/calls\\/[0-9a-f-]{36}$/.test(location.hash) && document.querySelector('.facts')",
        10,
    )
    .await;
    let id = last_of(&page.eval("location.hash").await);
    fact(page, "From", NUMBER).await;
    fact(page, "To", SUPPRESSED).await;
    fact(page, "Trunk", "Acme Telecom").await;
    fact(page, "Channel", "SIP").await;
    // Nobody answers.
    page.until(
        "!['Queued', 'Ringing'].includes(document.querySelector('.head .badge').textContent)",
        60,
    )
    .await;
    let made = record(server, &format!("/calls/{id}")).await;
    assert_eq!(
        (&made["trunk_id"], &made["to_number"]),
        (&json!(trunk), &json!(SUPPRESSED))
    );
    assert!(made["ended_at"].is_string(), "{made}");
    id
}

/// Asks for the call, from the number that may place calls, whatever comes of it.
async fn call(page: &mut Browser) {
    go(page, "#/calls").await;
    click(page, "#place-call").await;
    page.until("document.querySelector('dialog[open] #f-to_number')", 10)
        .await;
    set(
        page,
        "agent_id",
        "[...document.querySelector('#f-agent_id').options].at(-1).value",
    )
    .await;
    set(page, "to_number", &json!(SUPPRESSED).to_string()).await;
    set(page, "from_number", &json!(NUMBER).to_string()).await;
    set(page, "ring_timeout_seconds", "'5'").await;
    submit(page).await;
}

/// The number is released; the trunk is deleted, and its other numbers stay.
async fn take_away(page: &mut Browser, server: &Server, trunk: &str, number: &str) {
    go(page, &format!("#/numbers/{number}")).await;
    click(page, "#release-number").await;
    submit(page).await;
    page.until(&shown("#/numbers"), 10).await;
    assert_eq!(
        page.eval("document.querySelectorAll('tbody tr').length")
            .await,
        2
    );
    go(page, &format!("#/trunks/{trunk}")).await;
    click(page, "#delete-trunk").await;
    submit(page).await;
    page.until(&shown("#/trunks"), 10).await;
    assert_eq!(
        page.eval("document.querySelectorAll('tbody tr').length")
            .await,
        2
    );
    let client = server.client();
    client
        .get(&format!("/phone-numbers/{number}"))
        .await
        .expect(404);
    client
        .get(&format!("/sip-trunks/{trunk}"))
        .await
        .expect(404);
    let numbers = record(server, "/phone-numbers").await;
    assert_eq!(
        (&numbers["total"], &numbers["items"][0]["trunk_id"]),
        (&json!(2), &json!(null))
    );
}
