//! The console page in a real browser, with a WAV file as its microphone and a server of its own. The pages of the
//! telephone are in `telephone_pages.rs`, those of calls in `call_pages.rs`, those of the account in `account_pages.rs`.

use std::path::Path;
use std::process::Command;

use kit::server::Server;
use serde_json::json;

use super::devtools::Browser;

const GREETING: &str = "Good morning, this is the Harbour Hotel. The sun is out, the sea is calm, and \
    there is still a table free on the terrace. We are glad that you call. How can I help?";
const PROMPT: &str = "You answer for the Harbour Hotel. Hello there, what would you like to know? \
    Breakfast is served from seven to ten. Parking costs twelve euros a night. \
    The swimming pool is on the roof.";

/// A page is there, and nothing of it is on its way any more.
pub(crate) fn shown(hash: &str) -> String {
    format!(
        "document.querySelector('main')?.dataset.page === '{hash}' \
         && !document.querySelector('[aria-busy]') && document.querySelector('main h1')"
    )
}

/// The console, signed in, in front of nobody who speaks.
pub(crate) async fn console(server: &Server) -> Browser {
    let mut page = Browser::open(&server.data.join("nobody.wav")).await;
    page.screen(1280, 800, false).await;
    page.goto(&format!("{}/#key={}", server.url, server.key))
        .await;
    page.until(&shown("#/"), 20).await;
    page
}

/// A page as one that comes from elsewhere loads it.
pub(crate) async fn load(page: &mut Browser, server: &Server, hash: &str) {
    page.goto(&format!("{}/docs", server.url)).await;
    page.goto(&format!("{}/{hash}", server.url)).await;
    page.until(&shown(hash), 20).await;
}

pub(crate) async fn go(page: &mut Browser, hash: &str) {
    page.eval(&format!("location.hash = '{hash}'")).await;
    page.until(&shown(hash), 20).await;
}

pub(crate) async fn click(page: &mut Browser, what: &str) {
    page.until(&format!("document.querySelector('{what}')"), 10)
        .await;
    page.eval(&format!("document.querySelector('{what}').click()"))
        .await;
}

/// In the dialog that is open.
pub(crate) async fn submit(page: &mut Browser) {
    click(page, "dialog[open] [type=submit]").await;
}

pub(crate) async fn dialog_gone(page: &mut Browser) {
    page.until("!document.querySelector('dialog')", 10).await;
    page.until("!document.querySelector('[aria-busy]')", 10)
        .await;
}

/// What a fact of the page says.
pub(crate) async fn fact(page: &mut Browser, name: &str, value: &str) {
    let says = format!(
        "[...document.querySelectorAll('.facts > div')].some((one) => one.querySelector('dt').textContent === '{name}' && one.querySelector('dd').textContent === '{value}')"
    );
    page.until(&says, 10).await;
}

/// A person signs in, makes an agent, calls it, interrupts it, types, hangs up, and listens to the call.
#[tokio::test]
async fn a_person_makes_an_agent_and_talks_to_it() {
    // What the caller says is scripted, so that the test is of the page and not of a recogniser.
    let server = Server::scripted().await;
    let microphone = server.data.join("microphone.wav");
    // In the middle of the greeting, which takes about ten seconds; the fake microphone starts with the call.
    speak(
        &microphone,
        "hello there, I have a question about the hotel",
        4.0,
    );
    let mut page = Browser::open(&microphone).await;
    page.screen(1280, 800, false).await;

    sign_in(&mut page, &server).await;
    make_an_agent(&mut page).await;
    talk(&mut page).await;
    look_at_the_call(&mut page).await;
    behind_a_proxy(&mut page).await;

    // The refusals that were provoked are told by the browser, too.
    page.troubles.retain(|trouble| {
        !["status of 401", "status of 422"]
            .iter()
            .any(|own| trouble.contains(own))
    });
    assert_eq!(page.troubles, Vec::<String>::new());
    let calls = server.client().get("/calls").await.expect(200);
    assert_eq!(
        calls.body["items"][0]["end_reason"], "caller_hangup",
        "{}",
        calls.body
    );

    let trigger = make_a_trigger(&mut page, &server).await;
    every_page_looks_right(&mut page, &server, &trigger).await;
}

/// With a wrong key first; the key in a link leaves the address bar.
async fn sign_in(page: &mut Browser, server: &Server) {
    page.goto(&format!("{}/#key=st_live_nonsense", server.url))
        .await;
    page.until("document.querySelector('#problem')?.hidden === false", 20)
        .await;
    assert_eq!(
        page.eval("document.querySelector('#problem').textContent")
            .await,
        "This key is not accepted."
    );
    assert_eq!(page.eval("sessionStorage.length").await, 0);
    page.screenshot("sign-in").await;
    page.eval("document.querySelector('#key').focus()").await;
    page.insert(&server.key).await;
    page.press("Enter", 13, "\r").await;
    page.until(&shown("#/"), 20).await;
    assert_eq!(
        page.eval("document.querySelector('h1').textContent").await,
        "Overview"
    );
    page.goto(&format!("{}/#key={}", server.url, server.key))
        .await;
    // The key must leave the address bar.
    page.until("location.hash === '#/'", 5).await;
    page.until(&shown("#/"), 20).await;
}

/// What the form lacks and what the server refuses is told beside the field, and the first one has the focus.
async fn make_an_agent(page: &mut Browser) {
    page.eval("location.hash = '#/agents/new'").await;
    page.until("document.querySelector('#f-name')", 20).await;
    page.eval("document.querySelector('#f-name').focus()").await;
    page.insert("Reception").await;
    set(
        page,
        "voice_id",
        "[...document.querySelector('#f-voice_id').options].find((one) => one.value).value",
    )
    .await;
    set(page, "temperature", "9").await;
    page.eval("document.querySelector('#save').click()").await;
    let wrong = "[...document.querySelectorAll('.wrong')].filter((one) => !one.hidden).map((one) => one.closest('[data-field]').dataset.field).join()";
    page.until(&format!("{wrong} === 'system_prompt,temperature'"), 10)
        .await;
    assert_eq!(
        page.eval("document.activeElement.id").await,
        "f-system_prompt"
    );
    assert_eq!(
        page.eval("document.querySelector('#f-temperature').ariaInvalid")
            .await,
        "true"
    );
    page.screenshot("agent-wrong").await;
    for (name, value) in [
        ("temperature", "''"),
        ("first_message", &serde_json::json!(GREETING).to_string()),
        ("system_prompt", &serde_json::json!(PROMPT).to_string()),
        ("llm_model", "'faq'"),
        ("idle_check_in_after_secs", "60"),
    ] {
        set(page, name, value).await;
    }
    page.eval("document.querySelector('#save').click()").await;
    page.until("/^#\\/agents\\/[0-9a-f-]{36}$/.test(location.hash) && document.querySelector('h1')?.textContent === 'Reception'", 10).await;
    // What was saved is shown again, and only a change is sent.
    page.until(
        "document.querySelector('#f-idle_check_in_after_secs')?.value === '60'",
        10,
    )
    .await;
    assert_eq!(
        page.eval("document.querySelector('#save').disabled").await,
        true
    );
    set(page, "max_turns", "40").await;
    page.until(
        "document.querySelector('.bar [role=status]')?.textContent === '1 change'",
        5,
    )
    .await;
    page.eval("document.querySelector('#save').click()").await;
    page.until(
        "document.querySelector('.bar [role=status]')?.textContent === 'All is saved'",
        10,
    )
    .await;
}

/// Gives a control of a form a value, a JavaScript expression.
pub(crate) async fn set(page: &mut Browser, name: &str, value: &str) {
    let script = format!(
        "(() => {{ const control = document.querySelector('#f-{name}'); control.value = {value};
           control.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    );
    page.eval(&script).await;
}

async fn talk(page: &mut Browser) {
    page.eval("[...document.querySelectorAll('a')].find((one) => one.textContent === 'Talk to it').click()").await;
    page.until("document.querySelector('#call')", 10).await;
    // To the call button by keyboard alone.
    page.eval("document.querySelector('.back').focus()").await;
    for _ in 0..8 {
        if page.eval("document.activeElement.id").await == "call" {
            break;
        }
        page.press("Tab", 9, "").await;
    }
    assert_eq!(page.eval("document.activeElement.id").await, "call");
    // The microphone is a file, which hears no loudspeaker: an echo canceller would only cut the caller's words to pieces.
    page.eval(
        "(() => { const media = navigator.mediaDevices; const ask = media.getUserMedia.bind(media);
            media.getUserMedia = (wishes) => ask({ ...wishes, audio: { ...wishes.audio, echoCancellation: false } }); })()",
    )
    .await;
    page.press("Enter", 13, "\r").await;

    page.until(
        "document.querySelector('#state').dataset.state === 'live'",
        20,
    )
    .await;
    page.until(
        "document.querySelector('.turn.assistant .text')?.textContent.includes('Harbour Hotel')",
        20,
    )
    .await;
    // It is heard, then the caller is, who interrupts it.
    page.until("document.querySelector('#them').ariaValueNow > 0.2", 20)
        .await;
    page.until("document.querySelector('#you').ariaValueNow > 0.2", 20)
        .await;
    page.until(
        "document.querySelector('.turn.assistant.cut s')?.textContent.length > 5",
        20,
    )
    .await;
    page.until(
        "document.querySelector('.turn.user .text')?.textContent.includes('hello there')",
        20,
    )
    .await;
    page.until(
        "document.querySelectorAll('.turn.assistant').length >= 2",
        20,
    )
    .await;
    page.until("/^\\d+ ms$/.test(document.querySelectorAll('.turn.assistant')[1].querySelector('.who .num')?.textContent)", 20).await;
    page.until(
        "document.querySelector('#median').textContent.endsWith(' ms')",
        5,
    )
    .await;
    // WebRTC is what it takes by itself.
    page.until(
        "/^Over WebRTC · \\d+ ms round trip · [\\d.]+ % lost$/.test(document.querySelector('#line').textContent)",
        10,
    )
    .await;
    page.screenshot("talk-live").await;

    // Muted, the level of the microphone is none.
    page.eval("document.querySelector('#mute').click()").await;
    page.until("document.querySelector('#mute').ariaPressed === 'true' && document.querySelector('#you').ariaValueNow === '0.0'", 5).await;
    page.eval("document.querySelector('#mute').click()").await;

    // Typed text is answered too.
    page.eval("document.querySelector('#text').focus()").await;
    page.insert("what does parking cost?").await;
    page.press("Enter", 13, "\r").await;
    page.until("[...document.querySelectorAll('.turn.assistant')].some((turn) => /twelve euros/.test(turn.textContent))", 20).await;

    // Leaving would end the call: that is asked, and staying keeps it.
    page.eval("location.hash = '#/calls'").await;
    page.until("document.querySelector('dialog[open]')", 5)
        .await;
    page.press("Escape", 27, "").await;
    page.until("!document.querySelector('dialog') && document.querySelector('#state').dataset.state === 'live'", 5).await;

    page.eval("document.querySelector('#call').click()").await;
    page.until(
        "document.querySelector('#state').dataset.state === 'idle'",
        10,
    )
    .await;
    assert_eq!(
        page.eval("document.querySelector('#problem').hidden").await,
        true
    );
}

/// The recording holds both sides; a turn plays from its place.
async fn look_at_the_call(page: &mut Browser) {
    page.eval("[...document.querySelectorAll('a')].find((one) => one.textContent === 'Look at this call').click()").await;
    page.until("document.querySelector('[data-drawn]')", 30)
        .await;
    for side in ["caller", "agent"] {
        let far = format!(
            "Math.max(...document.querySelector('.wave-box path.{side}').getAttribute('d').match(/ [\\d.]+/g).map((y) => Math.abs(y - 60)))"
        );
        let far = page.eval(&far).await;
        assert!(
            far.as_f64().is_some_and(|far| far > 10.0),
            "{side} is silent in the recording: {far}"
        );
    }
    for shown in [
        ".cut-mark",
        ".turns s",
        ".wf li",
        ".turns li.user button.at",
    ] {
        page.until(&format!("document.querySelector('{shown}')"), 10)
            .await;
    }
    // Loss, jitter and the grade; a browser on this machine may have no round trip to tell.
    let line = "[...document.querySelectorAll('[aria-labelledby=title-line] dd')].map((one) => one.textContent).join()";
    page.until(
        &format!("/^(\\d+ ms|–),[\\d.]+ %,\\d+ ms,[1-4]\\.\\d$/.test({line})"),
        10,
    )
    .await;
    let place = "Number.parseFloat(document.querySelector('.playhead').style.left)";
    assert_eq!(page.eval(place).await, 0);
    page.eval("document.querySelector('.turns li.user button.at').click()")
        .await;
    page.until("document.querySelector('#play').ariaLabel === 'Pause' && document.querySelector('.turns li.user.now')", 10).await;
    let from = page.eval(place).await.as_f64().unwrap_or_default();
    page.until(&format!("{place} > {from}"), 10).await;
    page.eval("document.querySelector('#play').click()").await;
    page.until("document.querySelector('#play').ariaLabel === 'Play'", 5)
        .await;
    seek(page).await;
}

/// On the wave, by pointer and by keys: to a place, and from there on it is heard.
async fn seek(page: &mut Browser) {
    let place = "Math.round(Number.parseFloat(document.querySelector('.playhead').style.left))";
    let plays = "document.querySelector('#play').ariaLabel === 'Pause'";
    let bounds = page
        .eval("(() => { document.querySelector('#wave').scrollIntoView({ block: 'center' }); const { x, y, width, height } = document.querySelector('#wave').getBoundingClientRect(); return [x, y, width, height]; })()")
        .await;
    let bound = |at: usize| bounds[at].as_f64().unwrap();
    let (left, y, width) = (bound(0), bound(1) + bound(3) / 2.0, bound(2));
    let mut pointer = async |kind: &str, button: &str, part: f64| {
        let held = match button {
            "left" => 1,
            "middle" => 4,
            _ => 0,
        };
        let event = json!({"type": kind, "button": button, "buttons": held, "x": left + width * part, "y": y, "clickCount": 1});
        page.call("Input.dispatchMouseEvent", event).await;
        page.eval(&format!("[{place}, {plays}]")).await
    };
    // Any other button leaves the place as it is.
    let before = pointer("mouseMoved", "none", 0.75).await;
    assert_eq!(pointer("mousePressed", "middle", 0.75).await, before);
    assert_eq!(pointer("mouseReleased", "middle", 0.75).await, before);
    assert_eq!(
        pointer("mousePressed", "left", 0.25).await,
        json!([25, false])
    );
    assert_eq!(pointer("mouseMoved", "left", 0.5).await, json!([50, false]));
    let released = pointer("mouseReleased", "left", 0.5).await;
    assert!(released[0].as_u64() >= Some(50), "{released}");
    page.until(plays, 5).await;
    page.eval("document.querySelector('#play').click(); document.querySelector('#wave').focus()")
        .await;
    page.until(&format!("!({plays})"), 5).await;
    for (key, code) in [("End", 35), ("Home", 36)] {
        page.press(key, code, "").await;
        page.until(
            &format!("{place} === {}", if key == "End" { 100 } else { 0 }),
            5,
        )
        .await;
    }
    page.press("ArrowRight", 39, "").await;
    page.until("document.querySelector('#wave').ariaValueNow === '5.0'", 5)
        .await;
}

/// A proxy that keeps the server's figures for the inside is no fault of the first page, which asks no more then.
async fn behind_a_proxy(page: &mut Browser) {
    page.eval(
        "(() => { const real = window.fetch; window.asked = 0;
            window.fetch = (address, more) => {
                if (address !== '/metrics' && address !== '/readyz') return real(address, more);
                window.asked += 1;
                return Promise.resolve(new Response('', { status: 404 }));
            };
            window.unproxied = () => { window.fetch = real; }; })()",
    )
    .await;
    page.eval("location.hash = '#/'").await;
    page.until(&shown("#/"), 20).await;
    let live = "document.querySelector('[aria-label=\"Live capacity\"]')";
    page.until(&format!("{live}.querySelector('.notice')"), 10)
        .await;
    let alert = format!("Boolean({live}.querySelector('[role=alert]'))");
    assert_eq!(page.eval(&alert).await, false);
    let tiles = format!("{live}.querySelector('.tiles').hidden");
    assert_eq!(page.eval(&tiles).await, true);
    page.screenshot("overview-kept").await;
    // Longer than it waits between two looks.
    let later = "new Promise((done) => setTimeout(() => done(asked), 2500))";
    assert_eq!(page.eval(later).await, 2);
    page.eval("unproxied()").await;
}

/// An address that cannot be told is refused beside its field; what the trigger tells is listed.
async fn make_a_trigger(page: &mut Browser, server: &Server) -> String {
    page.eval("location.hash = '#/usage/triggers'").await;
    page.until("document.querySelector('.empty h2')", 10).await;
    page.screenshot("triggers-empty").await;
    page.eval("document.querySelector('#new-trigger').click()")
        .await;
    page.until("document.querySelector('dialog[open]')", 5)
        .await;
    let wrong = "[...document.querySelectorAll('dialog .wrong')].filter((one) => !one.hidden).map((one) => one.closest('[data-field]').dataset.field).join()";
    let submit = "document.querySelector('dialog [type=submit]').click()";
    page.eval(submit).await;
    page.until(
        &format!("{wrong} === 'threshold_value,event_callback_url'"),
        5,
    )
    .await;
    page.eval(
        "for (const [id, value] of [['resource', 'tts_characters'], ['value', '5'], ['url', 'http://example.com/']])
         { const control = document.querySelector(`#trigger-${id}`); control.value = value; control.dispatchEvent(new Event('input')); }",
    )
    .await;
    page.eval(submit).await;
    page.until(&format!("{wrong} === 'event_callback_url'"), 5)
        .await;
    page.screenshot("trigger-wrong").await;
    page.eval("document.querySelector('#trigger-url').value = 'https://example.com/usage'")
        .await;
    page.eval(submit).await;
    page.until("/^#\\/usage\\/triggers\\/[0-9a-f-]{36}$/.test(location.hash) && document.querySelector('.empty h2')", 10).await;
    let id = page.eval("location.hash.split('/').pop()").await;
    let id = id.as_str().unwrap().to_owned();
    // Spoken characters cross it.
    let client = server.client();
    let voice = client
        .get("/voices?language=english")
        .await
        .expect(200)
        .body["items"][0]["id"]
        .clone();
    let text = json!({"text": "Good morning.", "voice_id": voice});
    client.post("/tts", &text).await.expect(200);
    page.goto(&format!("{}/docs", server.url)).await;
    page.goto(&format!("{}/#/usage/triggers/{id}", server.url))
        .await;
    page.until(
        "/^[\\d,]+$/.test(document.querySelector('td[data-head=Counted]')?.innerText.split('\\n').pop())",
        10,
    )
    .await;
    page.eval("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Send again').click()").await;
    page.until(
        "document.querySelector('.toast')?.textContent === 'It is sent again'",
        10,
    )
    .await;
    id
}

/// Every page of the console, but those of the telephone.
async fn every_page_looks_right(page: &mut Browser, server: &Server, trigger: &str) {
    let id = |list: &'static str| async move {
        server.client().get(list).await.expect(200).body["items"][0]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (agent, call) = (id("/agents").await, id("/calls").await);
    let pages = [
        ("overview", "#/".to_owned()),
        ("agents", "#/agents".to_owned()),
        ("agent-new", "#/agents/new".to_owned()),
        ("agent", format!("#/agents/{agent}")),
        ("talk", format!("#/talk/{agent}")),
        ("calls", "#/calls".to_owned()),
        ("search", "#/calls?q=hello".to_owned()),
        ("call", format!("#/calls/{call}")),
        ("usage", "#/usage".to_owned()),
        ("triggers", "#/usage/triggers".to_owned()),
        ("trigger", format!("#/usage/triggers/{trigger}")),
        ("keys", "#/keys".to_owned()),
        ("missing", "#/nothing".to_owned()),
    ];
    look_right(page, server, &pages).await;
}

/// Each page fits its window from 390 to 1600 pixels, has no fault that axe knows (contrast among them) in light
/// and dark, and can be walked through by keyboard.
pub(crate) async fn look_right(page: &mut Browser, server: &Server, pages: &[(&str, String)]) {
    page.without_policy().await;
    page.goto(&format!("{}/docs", server.url)).await;
    page.goto(&format!("{}/#/", server.url)).await;
    page.eval(&rules_of_access()).await;
    for (name, hash) in pages {
        page.eval(&format!("location.hash = '{hash}'")).await;
        page.until(&shown(hash), 20).await;
        for (width, dark) in [
            (390, false),
            (390, true),
            (820, false),
            (1280, false),
            (1280, true),
            (1600, true),
        ] {
            page.screen(width, if width < 600 { 844 } else { 800 }, dark)
                .await;
            let over = page
                .eval("document.documentElement.scrollWidth - window.innerWidth")
                .await;
            assert!(
                over.as_i64().is_some_and(|pixels| pixels <= 0),
                "{name}, {width} wide: {over} px too wide"
            );
            let shade = if dark { "dark" } else { "light" };
            page.screenshot(&format!("{name}-{width}-{shade}")).await;
            if width == 390 || width == 1280 {
                // What still fades in has not its colours yet.
                let faults = "Promise.race([Promise.all(document.getAnimations().filter((one) => one.effect.getTiming().iterations === 1).map((one) => one.finished.catch(() => {}))), new Promise((done) => setTimeout(done, 3000))]).then(() => axe.run(document, { resultTypes: ['violations'] })).then((found) => found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target).join(' ')}`).join('\\n'))";
                assert_eq!(page.eval(faults).await, "", "{name}, {width} wide, {shade}");
            }
        }
        page.screen(1280, 800, false).await;
        walk(page, name).await;
    }
}

/// Tab goes through everything and comes back to where it began, and one sees where it is. A date has several
/// stops within.
async fn walk(page: &mut Browser, name: &str) {
    page.eval("document.activeElement.blur(); window.walked = new Set()")
        .await;
    let step = "(() => { const now = document.activeElement; const known = walked.has(now) && now !== window.last; walked.add(now); window.last = now;
        const style = getComputedStyle(now); const seen = now === document.body || (style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2);
        return [known, seen, now.outerHTML.slice(0, 120)]; })()";
    let all = page.eval("document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex]').length").await;
    let most = all.as_u64().unwrap_or_default() + 10;
    for _ in 0..most * 3 {
        page.press("Tab", 9, "").await;
        let now = page.eval(step).await;
        if now[0] == true {
            let walked = page.eval("walked.size").await;
            assert!(
                walked.as_u64() > Some(8),
                "{name}: Tab is caught at {}",
                now[2]
            );
            return;
        }
        assert_eq!(now[1], true, "{name}: the focus is not seen at {}", now[2]);
    }
    panic!("{name}: Tab does not come back");
}

/// axe-core, as `scripts/setup.sh test` has put it.
fn rules_of_access() -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let own = target.join("peers/axe/lib");
    let mut folders = vec![own];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_name().to_str() {
                Some("axe.min.js") => return std::fs::read_to_string(entry.path()).unwrap(),
                Some("site-packages" | "axe_playwright_python") => folders.push(entry.path()),
                Some(name) if name.starts_with("python3") => folders.push(entry.path()),
                _ => {}
            }
        }
    }
    panic!("axe-core is missing: run `bash scripts/setup.sh test`")
}

/// A voice that says this after so much silence, and then nothing for a minute.
pub(crate) fn speak(file: &Path, text: &str, silence: f64) {
    let spoken = file.with_extension("spoken.wav");
    let made = Command::new("flite")
        .args(["-voice", "slt", "-t", text, "-o"])
        .arg(&spoken)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "flite is missing: install the package flite"
    );
    let mut reader = hound::WavReader::open(&spoken).unwrap();
    let spec = reader.spec();
    let mut writer = hound::WavWriter::create(file, spec).unwrap();
    let quiet = |seconds: f64| (seconds * f64::from(spec.sample_rate)) as usize;
    let mut samples = vec![0_i16; quiet(silence)];
    samples.extend(reader.samples::<i16>().map(Result::unwrap));
    samples.resize(samples.len() + quiet(60.0), 0);
    for sample in samples {
        writer.write_sample(sample).unwrap();
    }
    writer.finalize().unwrap();
}
