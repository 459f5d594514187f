//! Threads that the server cannot do without: one that dies ends the process, in order and with an error, and
//! `/readyz` says so before. A library under the server has the poll of a thread fail that a file names.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::ports::free_udp;
use kit::server::{Server, Setup};
use kit::socket::{Caller, native};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage;

/// In place of the C library's `epoll_wait`.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    static int (*real)(int, struct epoll_event *, int, int);
    char name[16] = "", path[512];
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    prctl(PR_GET_NAME, name);
    snprintf(path, sizeof path, "%s/%s", getenv("BROKEN_THREADS"), name);
    if (access(path, F_OK) == 0) {
        errno = EBADF;
        return -1;
    }
    return real(fd, events, most, timeout);
}
"#;

/// A server whose threads break that have a file of their name in `folder`.
fn breakable(folder: &Path) -> Setup {
    let (source, library) = (folder.join("break.c"), folder.join("break.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(made.expect("a C compiler").success());
    stage::setup()
        .set("ENGINE__MEDIA_THREADS", "2")
        .set("SERVER__DRAIN_SECONDS", "20")
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("BROKEN_THREADS", folder.to_str().unwrap())
}

/// Waits until the server says that it lacks this thread.
async fn lacks(server: &Server, thread: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = server.client().get("//readyz").await;
        let said = String::from_utf8_lossy(&answer.bytes).into_owned();
        if answer.status == 503 && said.contains(&format!("thread {thread} (died)")) {
            return;
        }
        assert!(Instant::now() < until, "{said}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// It has ended with an error that names the thread.
async fn ended_by(server: &mut Server, thread: &str) {
    assert_eq!(server.ended(Duration::from_secs(30)).await, Some(1));
    let log = server.log();
    let reason = format!("sidetone: thread {thread} died: it ended");
    assert!(log.contains(&reason), "{log}");
}

#[tokio::test]
async fn a_sip_thread_that_dies_ends_the_process_and_other_calls_go_on_until_then() {
    let _together = stage::together().await;
    let (folder, listen) = (tempfile::tempdir().unwrap(), free_udp());
    let mut server = breakable(folder.path()).telephones(listen).start().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting()});
    let agent = stage::agent(&client, fields).await;
    kit::peer::line(&client, &agent).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    let mut phone = kit::peer::Peer::telephone(&client, listen).await;
    let id = phone.id.clone();
    std::fs::write(folder.path().join("sip"), "").unwrap();
    phone.speak(200).await;
    // It looks at its sockets again when something comes.
    let knock = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    knock.send_to(b"\r\n\r\n", listen).await.unwrap();
    lacks(&server, "sip").await;
    let call = stage::over(&client, &id, Duration::from_secs(10)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("engine_error"))
    );
    let connect = client.post("/conversation/connect", &native(&agent)).await;
    connect.expect(503);
    // The other call is heard until it hangs up itself, and then nothing is left to wait for.
    let since = Instant::now();
    caller.listen(700).await;
    assert!(caller.audio_since(since).len() > 10);
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(5)).await, Some(1000));
    ended_by(&mut server, "sip").await;
    std::fs::remove_file(folder.path().join("sip")).unwrap();
    server.start_again().await;
    assert_eq!(server.events(&id, "call.ended").await.len(), 1);
}

#[tokio::test]
async fn a_media_thread_that_dies_ends_its_calls_once_and_what_was_recorded_is_kept() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let mut server = breakable(folder.path()).start().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting()});
    let agent = stage::agent(&client, fields).await;
    // One on each thread.
    let mut callers = Vec::new();
    for _ in 0..2 {
        let mut caller = Caller::call(&client, &native(&agent)).await;
        caller.wait_for("audio", 5000).await;
        callers.push(caller);
    }
    for caller in &mut callers {
        caller.listen(700).await;
    }
    std::fs::write(folder.path().join("media-0"), "").unwrap();
    lacks(&server, "media-0").await;
    let mut second = callers.pop().unwrap();
    let lost = callers.pop().unwrap().session_id;
    let call = stage::over(&client, &lost, Duration::from_secs(10)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["has_recording"]),
        (&json!("failed"), &json!("engine_error"), &json!(true)),
        "{}",
        server.log()
    );
    stage::recording(&client, &lost).await;
    second.send(&json!({"type": "end"})).await;
    assert_eq!(second.close_code(Duration::from_secs(5)).await, Some(1000));
    ended_by(&mut server, "media-0").await;
    let spool = server.data.join("spool");
    assert_eq!(std::fs::read_dir(spool).unwrap().count(), 0);
    std::fs::remove_file(folder.path().join("media-0")).unwrap();
    server.start_again().await;
    for id in [&lost, &second.session_id] {
        assert_eq!(server.events(id, "call.ended").await.len(), 1);
    }
}
