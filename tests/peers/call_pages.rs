//! The console's pages of calls in a real browser: the list with its filters, a call whose end comes while one looks
//! at it, and what the server does just now. No page moves as it loads.

use std::time::Duration;

use kit::client::Client;
use kit::receiver::Receiver;
use kit::server::{Server, Setup};
use kit::socket::{self, Caller};
use kit::stage;
use serde_json::{Value, json};

use super::browser::{click, console, fact, go, load, shown, submit};
use super::devtools::Browser;

/// Layout shifts whose sum is below this are taken for good by those who measure pages.
const STILL: f64 = 0.1;

#[tokio::test]
async fn no_page_moves_as_it_loads() {
    let server = Server::scripted().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    for _ in 0..2 {
        duplicate(&client, &agent).await;
    }
    let call = a_call(&client, &agent).await;
    let recorded = format!("#/calls/{}", call["id"].as_str().unwrap());
    let mut page = console(&server).await;
    let watch = "window.shifts = [];
        window.watch = new PerformanceObserver((list) => shifts.push(...list.getEntries()));
        watch.observe({ type: 'layout-shift', buffered: true });";
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        json!({"source": watch}),
    )
    .await;
    let pages = [
        "#/",
        "#/calls",
        &recorded,
        "#/agents",
        &format!("#/agents/{agent}"),
        &format!("#/talk/{agent}"),
        "#/keys",
        "#/usage",
    ];
    for (width, height) in [(1280, 800), (390, 844)] {
        // Not as a telephone: its window is sized anew at first, and what moves then does not count.
        let window =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        page.call("Emulation.setDeviceMetricsOverride", window)
            .await;
        for hash in pages {
            load(&mut page, &server, hash).await;
            if hash == recorded {
                page.until("document.querySelector('[data-drawn]')", 20)
                    .await;
            }
            let score = moved(&mut page).await;
            println!("{hash}, {width} wide: {score:.4}");
            assert!(score < STILL, "{hash}, {width} wide: {score}");
        }
    }
    // What does move is seen.
    page.eval("document.querySelector('#main').prepend(Object.assign(document.createElement('div'), { style: 'height: 400px' }))")
        .await;
    let score = moved(&mut page).await;
    assert!(score > STILL, "{score}");
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// How far the page has moved by itself since it was opened: the sum of its layout shifts.
async fn moved(page: &mut Browser) -> f64 {
    let painted = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
    let sum =
        "shifts.filter((one) => !one.hadRecentInput).reduce((sum, one) => sum + one.value, 0)";
    let told = format!(
        "document.fonts.ready.then(() => {painted}).then(() => {{ shifts.push(...watch.takeRecords()); return {sum}; }})"
    );
    page.eval(&told).await.as_f64().unwrap()
}

/// Agents and states of the calls that the list shows.
const ROWS: &str = "[...document.querySelectorAll('tbody tr')].map((row) => ['Agent', 'Status'].map((name) => row.querySelector(`[data-head=${name}]`).textContent).join()).join(' ')";

#[tokio::test]
async fn a_list_of_calls_is_filtered_and_turned() {
    let server = Server::scripted().await;
    let client = server.client();
    let bar = stage::agent(&client, json!({"name": "Bar"})).await;
    let door = stage::agent(&client, json!({"name": "Door"})).await;
    for _ in 0..26 {
        canceled(&client, &door).await;
    }
    let placed = canceled(&client, &bar).await;
    stage::session(&client, &bar).await;
    // More than one page of a list has.
    for _ in 0..100 {
        duplicate(&client, &bar).await;
    }
    // Half an hour before the end of a day that has 25 hours in Berlin.
    let db = server.database().await;
    db.query("update calls set direction = 'outbound', created_at = $1 where id = $2")
        .bind(1_792_967_400_000_000_i64)
        .bind(placed.as_str())
        .execute()
        .await
        .unwrap();
    db.close().await;

    let mut page = console(&server).await;
    page.call(
        "Emulation.setTimezoneOverride",
        json!({"timezoneId": "Europe/Berlin"}),
    )
    .await;
    go(&mut page, "#/calls").await;
    counted(&mut page, "1–25 of 28").await;
    // The newest is the one that waits.
    page.until(&format!("{ROWS}.startsWith('Bar,Queued Door,Canceled')"), 5)
        .await;
    click(&mut page, ".pager button:last-child").await;
    counted(&mut page, "26–28 of 28").await;
    rows(&mut page, "Door,Canceled Door,Canceled Bar,Canceled").await;
    let agents = client.get("/agents?limit=1").await.expect(200).body["total"].clone();
    assert!(agents.as_u64() > Some(100), "{agents}");
    // And one for all of them.
    let options = "document.querySelectorAll('#by-agent_id option').length - 1";
    assert_eq!(page.eval(options).await, agents);
    click(&mut page, ".pager button:first-child").await;
    counted(&mut page, "1–25 of 28").await;

    late_answers_are_not_shown(&mut page).await;
    choose(&mut page, "status", "queued").await;
    rows(&mut page, "Bar,Queued").await;
    choose(&mut page, "status", "canceled").await;
    counted(&mut page, "1–25 of 27").await;
    choose(&mut page, "agent_id", &bar).await;
    rows(&mut page, "Bar,Canceled").await;
    choose(&mut page, "direction", "inbound").await;
    page.until(
        "document.querySelector('.empty h2')?.textContent === 'Nothing found'",
        10,
    )
    .await;
    choose(&mut page, "direction", "outbound").await;
    rows(&mut page, "Bar,Canceled").await;
    // The address has it all, and shows it again.
    let hash = page.eval("location.hash").await;
    let hash = hash.as_str().unwrap();
    for part in ["status=canceled", "direction=outbound", &bar] {
        assert!(hash.contains(part), "{hash}");
    }
    // The way to all calls leads there from those that are filtered, too.
    click(&mut page, ".tabs [data-tab=calls]").await;
    page.until(&shown("#/calls"), 5).await;
    counted(&mut page, "1–25 of 28").await;
    assert_eq!(
        page.eval("document.querySelector('#by-status').value")
            .await,
        ""
    );
    load(&mut page, &server, hash).await;
    rows(&mut page, "Bar,Canceled").await;

    let day = "#/calls?from=2026-10-25&to=2026-10-25";
    load(&mut page, &server, day).await;
    rows(&mut page, "Bar,Canceled").await;
    let before = "#/calls?from=2026-10-24&to=2026-10-24";
    load(&mut page, &server, before).await;
    rows(&mut page, "").await;
    the_last_of_a_page_is_deleted(&mut page, &client).await;
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// Of the agents, a hundred and one; the page before is shown then.
async fn the_last_of_a_page_is_deleted(page: &mut Browser, client: &Client) {
    let agents = client.get("/agents?limit=100").await.expect(200).body;
    let over = agents["total"].as_u64().unwrap() - 101;
    for agent in &agents["items"].as_array().unwrap()[..over as usize] {
        let path = format!("/agents/{}", agent["id"].as_str().unwrap());
        client.delete(&path).await.expect(204);
    }
    go(page, "#/agents").await;
    for part in ["51–100 of 101", "101–101 of 101"] {
        click(page, "#older").await;
        counted(page, part).await;
    }
    click(page, "tbody .danger").await;
    submit(page).await;
    counted(page, "51–100 of 100").await;
}

/// Holds the answer to what is queued until `release()`.
const SLOW: &str = "(() => {
    const real = window.fetch;
    window.fetch = async (address, more) => {
        const answer = await real(address, more);
        if (!address.includes('status=queued')) return answer;
        const text = await answer.text();
        await new Promise((done) => { window.release = done; });
        return new Response(text);
    };
    window.unheld = () => { window.fetch = real; };
})()";

/// An answer that comes after that to a later question.
async fn late_answers_are_not_shown(page: &mut Browser) {
    page.eval(SLOW).await;
    choose(page, "status", "queued").await;
    page.until("window.release", 5).await;
    choose(page, "status", "canceled").await;
    counted(page, "1–25 of 27").await;
    page.eval("release(); unheld(); new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        .await;
    counted(page, "1–25 of 27").await;
    let busy = "Boolean(document.querySelector('[aria-busy]'))";
    assert_eq!(page.eval(busy).await, false);
    assert_eq!(
        page.eval("document.querySelectorAll('tbody tr').length")
            .await,
        25
    );
}

/// A session that nobody joined, ended: a call in the list. Its id.
async fn canceled(client: &Client, agent: &str) -> String {
    let id = stage::session(client, agent).await.text("session_id");
    let end = format!("/calls/{id}/end");
    client.post(&end, &json!({})).await.expect(200);
    id
}

async fn duplicate(client: &Client, agent: &str) {
    let path = format!("/agents/{agent}/duplicate");
    client.post(&path, &json!({})).await.expect(201);
}

async fn choose(page: &mut Browser, filter: &str, value: &str) {
    let script = format!(
        "(() => {{ const control = document.querySelector('#by-{filter}'); control.value = '{value}';
           control.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    );
    page.eval(&script).await;
}

async fn rows(page: &mut Browser, expected: &str) {
    page.until(
        &format!("!document.querySelector('[aria-busy]') && {ROWS} === '{expected}'"),
        10,
    )
    .await;
}

async fn counted(page: &mut Browser, expected: &str) {
    let says = format!("document.querySelector('.pager span')?.textContent === '{expected}'");
    page.until(&says, 10).await;
}

/// Has the page see a call of the past as it was before: while it runs, and while its end is not all there yet.
const BEFORE: &str = "(() => {
    const real = window.fetch;
    const untold = { rtt_ms: null, loss_pct: null, jitter_ms: null, mos: null };
    const measured = { rtt_ms: 40, loss_pct: 1, jitter_ms: 3, mos: 4.2 };
    const fault = { source: 'provider', at_ms: 4180, stage: 'model', provider: 'cloud', code: 'insufficient_quota', message: 'status 429: You exceeded your quota', turn_id: null, tool_call_id: null };
    const turn = { role: 'assistant', text: 'Never heard', interrupted: true, interrupted_after_ms: 0, estimated_text_spoken: '', start_ms: null, end_ms: null, source: 'speech', latency: null, tool_calls: [] };
    const runs = { transcript: [turn], status: 'in_progress', ended_at: null, end_reason: null, has_recording: false, recording_id: null, webhook_delivery_status: null };
    const moments = {
        running: [runs, { network: untold }],
        ended: [{ has_recording: false, webhook_delivery_status: 'failed', webhook_attempts: 3 }, { network: measured, errors: [fault], provider_error_count: 3 }],
        settled: [{}, { network: measured }],
    };
    Object.assign(window, { moment: 'running', links: 0, looks: 0 });
    const { Audio } = window;
    window.Audio = class extends Audio {
        constructor(...given) {
            super(...given);
            window.sound = this;
        }
    };
    window.fetch = async (address, more) => {
        const answer = await real(address, more);
        const [, of] = /\\/(?:calls|conversations)\\/[0-9a-f-]{36}(\\/\\w+)?$/.exec(address) ?? [, null];
        if (of === '/audio') links += 1;
        if (of === undefined) looks += 1;
        const [call, diagnostics] = moments[moment];
        const other = of === undefined ? call : of === '/diagnostics' ? diagnostics : null;
        return other ? new Response(JSON.stringify({ ...await answer.json(), ...other })) : answer;
    };
})()";

#[tokio::test]
async fn a_call_that_is_looked_at_is_followed_to_its_last_word() {
    let server = Setup::default()
        .scripted()
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await;
    let client = server.client();
    let receiver = Receiver::start().await;
    let agent = stage::agent(
        &client,
        json!({"webhook_url": format!("{}/calls", receiver.url)}),
    )
    .await;
    let call = a_call(&client, &agent).await;
    receiver
        .until(Duration::from_secs(20), |got| {
            got.iter().any(|one| one.event == "call.ended")
        })
        .await;
    let mut page = console(&server).await;
    page.eval(BEFORE).await;
    go(
        &mut page,
        &format!("#/calls/{}", call["id"].as_str().unwrap()),
    )
    .await;
    says(&mut page, "The recording is made while the call runs.").await;
    says(&mut page, "Nothing was measured on this line.").await;
    // What was cut off at once was not heard at all.
    let unheard = "document.querySelector('.turns s').textContent";
    assert_eq!(page.eval(unheard).await, "Never heard");
    // What is the same at the next look stays, with whoever is there.
    page.eval("window.fact = document.querySelector('[aria-labelledby=title-call] dd'); looks = 0")
        .await;
    page.until("looks >= 2", 10).await;
    assert_eq!(page.eval("fact.isConnected").await, true);
    page.until("!document.querySelector('.head .danger').hidden", 5)
        .await;
    // It ends: its line is known, its recording and its webhook are under way.
    page.eval("moment = 'ended'").await;
    says(&mut page, "The recording is being finished.").await;
    fact(&mut page, "MOS, estimated", "4.2").await;
    // What its providers say of their faults, and how many there were.
    let fault = "0:04 Model cloud (insufficient_quota): status 429: You exceeded your quota";
    says(&mut page, fault).await;
    says(&mut page, "and 2 more of providers").await;
    fact(&mut page, "call.ended", "Failed").await;
    page.until("document.querySelector('.head .danger').hidden", 5)
        .await;
    // What failed was tried again.
    page.eval("moment = 'settled'").await;
    fact(&mut page, "call.ended", "Delivered").await;
    fact(&mut page, "Attempts", "1").await;
    page.until("document.querySelector('[data-drawn]')", 20)
        .await;
    assert_eq!(page.eval("links").await, 1);
    // A link that holds no more gives way to another.
    page.until("sound.readyState >= 1", 10).await;
    page.eval("sound.src = '/web/none.wav'").await;
    page.until(
        "links === 2 && sound.readyState >= 1 && !sound.src.endsWith('none.wav')",
        10,
    )
    .await;
    page.troubles
        .retain(|trouble| !trouble.contains("status of 404"));
    assert_eq!(page.troubles, Vec::<String>::new());
}

async fn says(page: &mut Browser, text: &str) {
    page.until(
        &format!("document.querySelector('#main').innerText.includes('{text}')"),
        10,
    )
    .await;
}

/// A short call over a socket; its record, once that is settled.
async fn a_call(client: &Client, agent: &str) -> Value {
    let mut caller = Caller::call(client, &socket::native(agent)).await;
    caller.listen(1000).await;
    let id = caller.session_id.clone();
    caller.hang_up().await;
    stage::over(client, &id, Duration::from_secs(20)).await
}

#[tokio::test]
async fn the_overview_tells_what_the_server_does_just_now() {
    let server = Server::scripted().await;
    let client = server.client();
    let greeting = json!({"first_message": stage::long_greeting()});
    let agent = stage::agent(&client, greeting).await;
    let mut page = console(&server).await;
    tile(&mut page, "Calls on this node", "dd", "^0$").await;
    stage::session(&client, &agent).await;
    let caller = Caller::call(&client, &socket::native(&agent)).await;
    tile(&mut page, "Calls on this node", "dd", "^1$").await;
    tile(&mut page, "Leases", "dd", "^2$").await;
    tile(&mut page, "Leases", "dd + dd", "^1 live, 1 waiting$").await;
    tile(&mut page, "Pacer lateness", "dd", r"^[\\d.]+ ms$").await;
    // No timer is on time to the microsecond.
    let late = r"^at most (?!0\\.0 )[\\d.]+ ms$";
    tile(&mut page, "Pacer lateness", "dd + dd", late).await;
    let state = "document.querySelector('[aria-label=\"Live capacity\"] .badge').textContent";
    assert_eq!(page.eval(state).await, "Ready for calls");
    caller.hang_up().await;
    tile(&mut page, "Calls on this node", "dd", "^0$").await;
    tile(&mut page, "Leases", "dd + dd", "^0 live, ").await;
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// What a tile of the overview says, in its place, as a pattern.
async fn tile(page: &mut Browser, name: &str, place: &str, pattern: &str) {
    let says = format!(
        "[...document.querySelectorAll('.tile')].some((one) => one.querySelector('dt').textContent === '{name}' && new RegExp('{pattern}').test(one.querySelector('{place}').textContent))"
    );
    page.until(&says, 15).await;
}
