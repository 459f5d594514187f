//! Canaries: secrets and private texts of every kind that the product takes or makes, through calls that
//! go well and calls that do not. No secret stands in a log, a metric, a file, the database or an answer
//! but the one that shows it once; no private text in a log, a metric or another account's answers.

mod birds;
mod life;

use std::path::{Path, PathBuf};

use kit::postgres::Postgres;
use kit::redis::Redis;
use kit::server::{Server, Setup};

use self::birds::{Birds, Kept};
use self::life::{Life, Providers};
use crate::stage;

/// All goes well: SQLite and a folder.
#[tokio::test]
async fn no_canary_sings_where_all_goes_well() {
    let _together = stage::together().await;
    let birds = Birds::new();
    let providers = Providers::well(&birds).await;
    let setup = settings(Setup::default(), &birds, &providers);
    let mut life = Life::new(setup.start().await, birds);
    life.of_an_account().await;
    life.of_calls(true).await;
    life.of_strangers().await;
    let answers = life.answers().await;
    let Life {
        mut server, birds, ..
    } = life;
    stop(&mut server).await;
    let mut places = places(&server, answers);
    places.push(("the data folder", bytes_below(&server.data)));
    birds.are_silent(&places);
}

/// PostgreSQL, Redis and a bucket, each behind a secret; the bucket is not there, the providers refuse and
/// repeat what they were sent, Redis dies, the database crashes.
#[tokio::test]
async fn no_canary_sings_where_all_goes_wrong() {
    let _together = stage::together().await;
    let birds = Birds::new();
    let (postgres, mut redis) = (Postgres::start(), Redis::start().await);
    let password = birds.secret("the password of Redis");
    redis
        .command::<()>(&["CONFIG", "SET", "requirepass", &password])
        .await;
    let database = postgres.database().await;
    let name = database.rsplit('/').next().unwrap().to_owned();
    let password_too = birds.secret("the password of the database");
    let database = database.replace("sidetone@", &format!("sidetone:{password_too}@"));
    let providers = Providers::ill(&birds).await;
    let setup = settings(Setup::default(), &birds, &providers)
        .database(&database)
        .env(
            "REDIS_URL",
            &redis.url().replace("://", &format!("://:{password}@")),
        )
        .set("STORAGE__URL", "s3://bucket/prefix")
        .set("STORAGE__ENDPOINT", "http://127.0.0.1:9")
        .set("STORAGE__REGION", "nowhere")
        .env("AWS_ACCESS_KEY_ID", "canaries")
        .env(
            "AWS_SECRET_ACCESS_KEY",
            &birds.secret("the key of the bucket"),
        )
        .env(
            "AWS_SESSION_TOKEN",
            &birds.secret("the token of the bucket"),
        );
    let mut life = Life::new(setup.start().await, birds);
    life.of_an_account().await;
    life.of_calls(false).await;
    postgres.crash();
    life.while_the_database_is_away().await;
    postgres.start_again();
    life.until_ready().await;
    redis.kill();
    life.of_strangers().await;
    let answers = life.answers().await;
    let dump = postgres.dump(&name);
    assert!(dump.contains("create table") || dump.contains("CREATE TABLE"));
    let Life {
        mut server, birds, ..
    } = life;
    stop(&mut server).await;
    let mut places = places(&server, answers);
    places.push(("the data folder", bytes_below(&server.data)));
    places.push(("a dump of the database", dump.into_bytes()));
    birds.are_silent(&places);
}

/// A server that does not come up says why without its secrets.
#[tokio::test]
async fn no_canary_sings_from_a_server_that_does_not_start() {
    let birds = Birds::new();
    let folder = tempfile::tempdir().unwrap();
    let secret = |what| birds.secret(what);
    let password = secret("the password of a database that is not there");
    let wrong = [
        (
            "DATABASE_URL",
            format!("postgres://u:{password}@127.0.0.1:9/none"),
        ),
        ("DATABASE_URL", format!("nonsense://u:{password}@127.0.0.1")),
        (
            "REDIS_URL",
            format!("http://:{}@127.0.0.1", secret("a wrong Redis")),
        ),
        ("SIDETONE_MASTER_KEY", secret("a master key that is none")),
        (
            "SIDETONE_BOOTSTRAP_API_KEY",
            format!("{} x", secret("a key that is none")),
        ),
        (
            "SIDETONE_ADMIN_TOKEN",
            format!("\n{}", secret("a token that is none")),
        ),
        (
            "SIDETONE_PROVIDERS__X__API_KEY",
            secret("the key of a provider of no kind"),
        ),
        ("SIDETONE_SPEECH__MODEL", String::from("no such model")),
    ];
    let mut said = Vec::new();
    for (name, value) in wrong {
        let output = std::process::Command::new(kit::server::program())
            .arg("serve")
            .env_clear()
            .env("SIDETONE_SERVER__DATA_DIR", folder.path())
            .env("SIDETONE_SERVER__LISTEN", "256.0.0.1:0")
            .env("SIDETONE_SERVER__LOG", "trace")
            .env("SIDETONE_DATABASE__ACQUIRE_SECONDS", "1")
            .env(name, value)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{name}: {output:?}");
        said.extend(output.stdout);
        said.extend(output.stderr);
    }
    birds.are_silent(&[("what is said at a start", said)]);
}

/// The secrets that stand in settings, in the environment and in a file.
fn settings(setup: Setup, birds: &Birds, providers: &Providers) -> Setup {
    let setup = setup
        .set("SERVER__LOG", "trace")
        .set("ENGINE__VAD", "energy")
        .set("EGRESS__ALLOW", "127.0.0.1")
        .set("ADMIN_TOKEN", &birds.secret("the operator's token"))
        .set("MASTER_KEY", &birds.master_key());
    providers.add_to(setup, birds)
}

async fn stop(server: &mut Server) {
    server.terminate();
    let ended = server.ended(std::time::Duration::from_secs(60)).await;
    assert_eq!(ended, Some(0));
    let log = server.log();
    assert!(log.contains("DEBUG") && log.lines().count() > 4, "{log}");
}

/// What strangers may read: the log, and the answers that were gathered.
fn places(server: &Server, answers: Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("the log", server.log().into_bytes()),
        ("an answer", answers),
    ]
}

/// All files below a folder but the log, one after the other.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("server.log") {
                bytes.extend(std::fs::read(&path).unwrap());
            }
        }
    }
    bytes
}

/// Whether what is found there may be a private text of the account's own.
fn may_hold(place: &str, kept: Kept) -> bool {
    kept == Kept::Text && ["the data folder", "a dump of the database"].contains(&place)
}
