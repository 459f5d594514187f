//! The console's pages of the account in a real browser: keys and the webhook secret, which are shown once; whose key
//! the tab has, and what is not saved yet; the theme; the documents of the API.

use kit::client::Client;
use kit::server::Server;
use kit::stage;
use serde_json::{Value, json};

use super::browser::{click, console, dialog_gone, go, load, set, shown, submit};
use super::devtools::Browser;

#[tokio::test]
async fn a_key_is_shown_once_rotated_and_revoked() {
    let server = Server::scripted().await;
    let client = server.client();
    let mut page = console(&server).await;
    go(&mut page, "#/keys").await;
    click(&mut page, "#new-key").await;
    submit(&mut page).await;
    page.until(
        "document.querySelector('dialog [data-field=name] .wrong')?.hidden === false",
        10,
    )
    .await;
    page.eval("document.querySelector('#key-name').value = 'reporting'")
        .await;
    submit(&mut page).await;
    let first = secret(&mut page, &server).await;
    status(&mut page, "reporting", "Active").await;
    client.with_key(&first).get("/agents").await.expect(200);

    click(&mut page, "[aria-label=\"Rotate reporting\"]").await;
    submit(&mut page).await;
    let second = secret(&mut page, &server).await;
    client.with_key(&first).get("/agents").await.expect(401);
    client.with_key(&second).get("/agents").await.expect(200);

    go(&mut page, "#/keys").await;
    let revoke = "[aria-label=\"Revoke reporting\"]";
    page.eval(&format!("document.querySelector('{revoke}').focus()"))
        .await;
    click(&mut page, revoke).await;
    submit(&mut page).await;
    dialog_gone(&mut page).await;
    // The button is gone: whoever uses the keyboard goes on at the head of the page.
    page.until("document.activeElement.textContent === 'Keys'", 5)
        .await;
    status(&mut page, "reporting", "Revoked").await;
    client.with_key(&second).get("/agents").await.expect(401);
    let again = "document.querySelector('[aria-label=\"Rotate reporting\"]')";
    assert_eq!(page.eval(again).await, json!(null));

    // The secret that signs webhooks is shown in the same way.
    go(&mut page, "#/usage").await;
    click(&mut page, "#rotate").await;
    submit(&mut page).await;
    let one = secret(&mut page, &server).await;
    go(&mut page, "#/usage").await;
    click(&mut page, "#rotate").await;
    submit(&mut page).await;
    let other = secret(&mut page, &server).await;
    assert!(one.starts_with("whsec_") && other.starts_with("whsec_"));
    assert_ne!(one, other);

    page.troubles
        .retain(|trouble| !trouble.contains("status of 422"));
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// What the dialog shows once: it is neither on the page behind it nor there when the page is opened again.
async fn secret(page: &mut Browser, server: &Server) -> String {
    let shows = "document.querySelector('dialog[open] .secret code')";
    page.until(shows, 10).await;
    let secret = page.eval(&format!("{shows}.textContent")).await;
    let secret = secret.as_str().unwrap().to_owned();
    click(page, ".secret button").await;
    page.until(
        "/^Copied|^The browser/.test(document.querySelector('.secret [role=status]').textContent)",
        5,
    )
    .await;
    page.press("Escape", 27, "").await;
    dialog_gone(page).await;
    let there = format!("document.documentElement.outerHTML.includes('{secret}')");
    assert_eq!(page.eval(&there).await, false);
    let hash = page.eval("location.hash").await;
    load(page, server, hash.as_str().unwrap()).await;
    assert_eq!(page.eval(&there).await, false);
    secret
}

async fn status(page: &mut Browser, name: &str, status: &str) {
    let says = format!(
        "[...document.querySelectorAll('tbody tr')].some((row) => row.querySelector('.lead').textContent === '{name}' && row.querySelector('.badge').textContent === '{status}')"
    );
    page.until(&says, 10).await;
}

/// One question is asked, not several.
const ASKED: &str = "document.querySelectorAll('dialog[open]').length === 1";
const NAME: &str = "document.querySelector('#f-name').value";
const KEPT: &str = "sessionStorage.getItem('sidetone.key')";

#[tokio::test]
async fn what_is_typed_survives_a_way_back_a_save_and_a_link() {
    let server = Server::scripted().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"name": "Reception"})).await;
    let form = format!("#/agents/{agent}");
    let mut page = console(&server).await;
    go_back(&mut page, &form).await;
    save_once(&mut page, &client).await;
    open_links(&mut page, &server).await;
    // The key that was kept and is none any more.
    page.troubles
        .retain(|trouble| !trouble.contains("status of 401"));
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// The way back asks, once, and loses no entry of the tab's history; what was opened on a page goes with it.
async fn go_back(page: &mut Browser, form: &str) {
    go(page, "#/agents").await;
    // A link to the page that is shown is no step.
    click(page, ".tabs [data-tab=agents]").await;
    go(page, form).await;
    set(page, "name", "'Changed'").await;
    page.eval("window.steps = 0; addEventListener('popstate', () => { steps += 1; })")
        .await;
    // Back, and forth again: two steps each.
    for steps in [2, 4] {
        page.eval("history.back()").await;
        page.until(&format!("steps === {steps} && {ASKED}"), 5)
            .await;
    }
    page.press("Escape", 27, "").await;
    dialog_gone(page).await;
    assert_eq!(page.eval("location.hash").await, form);
    assert_eq!(page.eval(NAME).await, "Changed");
    page.eval("history.back()").await;
    page.until(&format!("steps === 6 && {ASKED}"), 5).await;
    page.screenshot("leave-unsaved").await;
    submit(page).await;
    page.until(&shown("#/agents"), 10).await;
    page.eval("history.back()").await;
    page.until(&shown("#/"), 10).await;
    page.eval("history.go(2)").await;
    page.until(&shown(form), 10).await;
    assert_eq!(page.eval(NAME).await, "Reception");

    go(page, "#/keys").await;
    click(page, "#new-key").await;
    page.until(ASKED, 5).await;
    page.eval("history.back()").await;
    page.until(&shown(form), 10).await;
    dialog_gone(page).await;
}

/// Holds what is saved until `release()`, and counts it.
const HOLD: &str = "(() => {
    const real = window.fetch;
    window.sent = 0;
    window.fetch = async (address, more) => {
        if (more?.method !== 'POST' && more?.method !== 'PATCH') return real(address, more);
        sent += 1;
        await new Promise((done) => { window.release = done; });
        return real(address, more);
    };
    window.unheld = () => { window.fetch = real; };
})()";

/// What one sees while a form is saved is there afterwards, and nothing is made twice.
async fn save_once(page: &mut Browser, client: &Client) {
    page.eval(HOLD).await;
    set(page, "name", "'Bar'").await;
    page.eval("document.querySelector('#save').click()").await;
    page.until("sent === 1", 5).await;
    page.eval("document.querySelector('#f-name').focus()").await;
    page.insert(" and kitchen").await;
    let seen = page.eval(NAME).await;
    page.screenshot("agent-saving").await;
    page.eval("release()").await;
    status_of_form(page, "All is saved").await;
    assert_eq!(page.eval(NAME).await, seen);
    page.eval("document.querySelector('#f-name').focus()").await;
    page.insert(" and kitchen").await;
    status_of_form(page, "1 change").await;
    page.eval("document.querySelector('.bar button').click()")
        .await;
    status_of_form(page, "All is saved").await;

    let before = client.get("/agents").await.expect(200).body["total"].as_u64();
    go(page, "#/agents/new").await;
    let voice = "[...document.querySelector('#f-voice_id').options].find((one) => one.value).value";
    for (name, value) in [
        ("voice_id", voice),
        ("system_prompt", "'You answer.'"),
        ("name", "'Door'"),
    ] {
        set(page, name, value).await;
    }
    page.eval("sent = 0; document.querySelector('#save').click()")
        .await;
    set(page, "name", "'Door 2'").await;
    page.eval("document.querySelector('#save').click()").await;
    assert_eq!(page.eval("sent").await, 1);
    page.eval("release(); unheld()").await;
    page.until("/^#\\/agents\\/[0-9a-f-]{36}$/.test(location.hash)", 10)
        .await;
    let made = page.eval("location.hash").await;
    page.until(&shown(made.as_str().unwrap()), 10).await;
    let after = client.get("/agents").await.expect(200).body["total"].as_u64();
    assert_eq!(after, before.map(|before| before + 1));
}

async fn status_of_form(page: &mut Browser, expected: &str) {
    let says =
        format!("document.querySelector('.bar [role=status]')?.textContent === '{expected}'");
    page.until(&says, 10).await;
}

/// A link with a key takes the place of no other one unasked. The key is the tab's own, and gone with the sign-out.
async fn open_links(page: &mut Browser, server: &Server) {
    let made = server
        .client()
        .post("/api-keys", &json!({"name": "another"}))
        .await;
    let other = made.expect(201).text("key");
    let hash = page.eval("location.hash").await;
    set(page, "name", "'Changed'").await;
    let link = format!("location.hash = '#key={other}'");
    page.eval(&link).await;
    page.until(ASKED, 5).await;
    page.screenshot("another-key").await;
    // The key is in the address no more.
    assert_eq!(page.eval("location.hash").await, hash);
    page.press("Escape", 27, "").await;
    dialog_gone(page).await;
    assert_eq!(page.eval(NAME).await, "Changed");
    assert_eq!(page.eval(KEPT).await, server.key);
    page.eval(&link).await;
    page.until(ASKED, 5).await;
    submit(page).await;
    page.until(&shown("#/"), 10).await;
    assert_eq!(page.eval(KEPT).await, other);

    // The same where the link opens the console; a key that is none any more is in nobody's way.
    open(page, server, &server.key).await;
    page.until(ASKED, 10).await;
    assert_eq!(page.eval(KEPT).await, other);
    page.eval("sessionStorage.setItem('sidetone.key', 'st_live_of_before')")
        .await;
    open(page, server, &server.key).await;
    assert_eq!(page.eval(KEPT).await, server.key);
    assert_eq!(
        page.eval("document.querySelector('dialog')").await,
        Value::Null
    );

    let everything = "Object.values(localStorage).join()";
    assert!(
        !page
            .eval(everything)
            .await
            .to_string()
            .contains(&server.key)
    );
    click(page, "#sign-out").await;
    page.until("document.querySelector('.door')", 5).await;
    assert_eq!(page.eval("sessionStorage.length").await, 0);
}

/// As a link from elsewhere does.
async fn open(page: &mut Browser, server: &Server, key: &str) {
    page.goto(&format!("{}/docs", server.url)).await;
    page.goto(&format!("{}/#key={key}", server.url)).await;
    page.until(&shown("#/"), 20).await;
}

#[tokio::test]
async fn a_theme_is_chosen_and_kept() {
    let server = Server::scripted().await;
    let mut page = console(&server).await;
    let ground = "getComputedStyle(document.body).backgroundColor";
    let bright = page.eval(ground).await;
    page.screen(1280, 800, true).await;
    let dark = page.eval(ground).await;
    assert_ne!(bright, dark);
    // Against the system's colours, and then as they are.
    for (system, theme, expected) in [
        (true, "light", &bright),
        (false, "dark", &dark),
        (true, "system", &dark),
    ] {
        page.screen(1280, 800, system).await;
        click(&mut page, "#theme").await;
        let label = format!("document.querySelector('#theme')?.ariaLabel === 'Theme: {theme}'");
        page.until(&label, 5).await;
        assert_eq!(page.eval(ground).await, *expected, "{theme}");
        load(&mut page, &server, "#/keys").await;
        page.until(&label, 5).await;
        assert_eq!(page.eval(ground).await, *expected, "{theme}, opened again");
    }
    assert_eq!(page.troubles, Vec::<String>::new());
}

#[tokio::test]
async fn the_documents_of_the_api_list_every_route() {
    let server = Server::scripted().await;
    let mut page = console(&server).await;
    page.goto(&format!("{}/docs", server.url)).await;
    let all = "fetch('/api/v1/openapi.json').then((answer) => answer.json()).then(({ paths }) => Object.values(paths).flatMap(Object.keys).length)";
    let all = page.eval(all).await;
    assert!(all.as_u64() > Some(50), "{all}");
    page.until(
        &format!("document.querySelectorAll('details').length === {all}"),
        10,
    )
    .await;
    assert_eq!(page.troubles, Vec::<String>::new());
}
