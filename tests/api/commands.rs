//! The operator's commands on a server's data: accounts, and the keys that open them.

use std::path::Path;
use std::process::Command;

use kit::server::Server;
use serde_json::json;
use uuid::Uuid;

/// What a command says that fails.
fn refused(server: &Server, args: &[&str]) -> String {
    let output = server.output(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn accounts_are_made_once_and_listed() {
    let server = Server::scripted().await;
    let id = server.command(&["accounts", "create", "acme"]);
    let id: Uuid = id.trim().parse().unwrap();
    let told = refused(&server, &["accounts", "create", "acme"]);
    assert_eq!(told, "sidetone: an account acme exists\n");
    server.command(&["accounts", "block", "acme"]);
    let listed = server.command(&["accounts", "list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    for (begin, end) in [
        (id.to_string(), "  acme  blocked"),
        (String::new(), "  default"),
    ] {
        let is_there = |line: &str| line.starts_with(&begin) && line.ends_with(end);
        assert!(listed.lines().any(is_there), "{end:?} in {listed}");
    }
}

#[tokio::test]
async fn a_key_opens_what_its_scopes_say_until_it_is_revoked() {
    let server = Server::scripted().await;
    server.command(&["accounts", "create", "acme"]);
    let create = |name: &str, scopes: &[&str]| {
        let args = [&["keys", "create", name, "--account", "acme"][..], scopes].concat();
        let key = server.command(&args).trim_end().to_owned();
        (server.client().with_key(&key), key)
    };
    let (few, key) = create("till", &["--scopes", "agents:read,calls:read"]);
    let (usual, _) = create("desk", &[]);
    let (all, _) = create("office", &["--scopes", "all"]);

    // The account is its own: what the first account has is not there.
    kit::socket::agent(&server.client(), json!({})).await;
    for (client, agents, keys) in [(&few, 403, 403), (&usual, 422, 403), (&all, 422, 200)] {
        let page = client.get("/agents").await.expect(200);
        assert_eq!(page.body["total"], 0);
        client.post("/agents", &json!({})).await.expect(agents);
        client.get("/api-keys").await.expect(keys);
    }

    let list = || server.command(&["keys", "list", "--account", "acme"]);
    let listed = list();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let till = |listed: &str| {
        let line = listed
            .lines()
            .find(|line| line.ends_with("  till"))
            .unwrap();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        <[String; 4]>::try_from(words).unwrap()
    };
    let [id, prefix, status, _] = till(&listed);
    assert!(
        key.starts_with(prefix.trim_end_matches('…')),
        "{key}: {prefix}"
    );
    assert_eq!(status, "active");
    assert!(!listed.contains(&key), "a key is shown once");

    let told = refused(&server, &["keys", "revoke", &id]);
    assert_eq!(told, format!("sidetone: no key {id} in this account\n"));
    few.get("/agents").await.expect(200);
    let told = server.command(&["keys", "revoke", &id, "--account", "acme"]);
    assert_eq!(told, "revoked\n");
    few.get("/agents").await.expect(401);
    usual.get("/agents").await.expect(200);
    assert_eq!(till(&list())[2], "revoked");
}

/// The program in a folder with a setting; what it says, and whether it succeeded.
fn program_in(folder: &Path, setting: (&str, &str), args: &[&str]) -> (bool, String) {
    let output = Command::new(kit::server::program())
        .args(args)
        .env_clear()
        .env(setting.0, setting.1)
        .current_dir(folder)
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

#[tokio::test]
async fn no_command_but_migrate_and_serve_makes_a_database() {
    let id = Uuid::nil().to_string();
    let commands: [&[&str]; 8] = [
        &["keys", "create", "laptop"],
        &["keys", "list"],
        &["keys", "revoke", &id],
        &["keys", "rotate-master"],
        &["accounts", "create", "acme"],
        &["accounts", "list"],
        &["accounts", "block", "default"],
        &["accounts", "credit", "default", "100"],
    ];
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = data.join("sidetone.db");
    let names = |path: &Path| path.to_str().unwrap().to_owned();
    // By the folder's name, by the file's, and where an earlier command has left an empty file.
    let elsewhere = folder.path().join("elsewhere.db");
    let url = format!("sqlite:{}", names(&elsewhere));
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty_url = format!("sqlite:{}", names(empty.path()));
    let postgres = kit::postgres::shared().database().await;
    let server = postgres.split('?').next().unwrap();
    let server = server.split(['@', '/']).collect::<Vec<_>>();
    let [.., host, name] = server[..] else {
        panic!("{postgres}");
    };
    let server = format!("{host}/{name}");
    let data_dir = names(&data);
    for (setting, place) in [
        (("SIDETONE_SERVER__DATA_DIR", &*data_dir), names(&file)),
        (("DATABASE_URL", &*url), names(&elsewhere)),
        (("DATABASE_URL", &*empty_url), names(empty.path())),
        (("DATABASE_URL", &*postgres), server),
    ] {
        for args in commands {
            let (done, told) = program_in(folder.path(), setting, args);
            assert!(!done, "{args:?} at {place}: {told}");
            let named = format!("sidetone: there is no database at {place}: ");
            assert!(told.starts_with(&named), "{args:?} at {place}: {told}");
        }
        assert!(!data.exists() && !elsewhere.exists(), "{place}");
        assert_eq!(empty.path().metadata().unwrap().len(), 0);
    }
    let setting = ("SIDETONE_SERVER__DATA_DIR", &*data_dir);
    assert!(program_in(folder.path(), setting, &["migrate"]).0);
    let (done, told) = program_in(folder.path(), setting, &["keys", "create", "laptop"]);
    assert!(done && told.starts_with("st_live_"), "{told}");
}

#[tokio::test]
async fn a_key_is_not_made_for_nobody_or_for_a_scope_that_is_none() {
    let server = Server::scripted().await;
    let told = refused(&server, &["keys", "create", "x", "--account", "nobody"]);
    assert_eq!(told, "sidetone: no account nobody\n");
    let told = refused(
        &server,
        &["keys", "create", "x", "--scopes", "agents:read,tea"],
    );
    assert_eq!(told, "sidetone: no scope tea\n");
    // The bootstrap key alone.
    assert_eq!(server.command(&["keys", "list"]).lines().count(), 1);
}
