//! The process itself.

use std::process::Command;

use kit::server::Setup;

#[tokio::test]
async fn as_many_files_may_be_open_as_the_system_allows() {
    let setup = Setup::default().scripted();
    let server = setup
        .through(&[
            "sh",
            "-c",
            "ulimit -Sn 300; ulimit -Hn 3000; exec \"$@\"",
            "sh",
        ])
        .start()
        .await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<&str> = line
        .split_whitespace()
        .filter(|word| word.parse::<u64>().is_ok())
        .collect();
    assert_eq!(numbers, ["3000", "3000"], "{line}");
}

/// Two nodes with one folder would take each other's spool for what a dead process left.
#[tokio::test]
async fn a_node_of_another_name_is_not_started_on_a_data_folder_and_commands_are() {
    let setup = Setup::default().scripted().set("CLUSTER__NODE", "first");
    let mut server = setup.start().await;
    let second = || {
        // One that is not refused would run on.
        Command::new("timeout")
            .arg("30")
            .arg(kit::server::program())
            .arg("serve")
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("SIDETONE_SERVER__LISTEN", "127.0.0.1:0")
            .env("SIDETONE_SIP__LISTEN", "udp:127.0.0.1:0")
            .env("SIDETONE_SERVER__DATA_DIR", &server.data)
            .env("SIDETONE_CLUSTER__NODE", "second")
            .current_dir(&server.data)
            .output()
            .unwrap()
    };
    let refused = second();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    let file = server.data.join("node.lock").display().to_string();
    let process = format!("(process {})", server.pid());
    for part in [
        "server.data_dir: ",
        &file,
        "\"first\"",
        &process,
        "\"second\"",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The first one goes on, and commands beside it take no lock.
    server.client().get("/agents").await.expect(200);
    for args in [&["keys", "list"][..], &["accounts", "list"], &["migrate"]] {
        server.command(args);
    }
    // Whatever killed it, the same node starts again, and so does another that is given the folder.
    for name in ["first", "third"] {
        server.kill();
        server.set("CLUSTER__NODE", name);
        server.start_again().await;
        server.client().get("/agents").await.expect(200);
    }
}
