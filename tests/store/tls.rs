//! Encrypted connections, by the URL's `sslmode`.

use control::db::Db;
use kit::postgres::Postgres;

#[tokio::test]
async fn the_url_says_how_much_the_server_is_trusted() {
    let server = Postgres::start_encrypted();
    let plain = server.database().await;
    let ca = server.authority();
    let ca = ca.display();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("other.crt");
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=another", "-keyout", "/dev/null", "-out"])
        .arg(&other)
        .output();
    assert!(made.unwrap().status.success());
    let other = other.display();
    let named = plain.replace("127.0.0.1", "localhost");
    for (url, encrypted) in [
        (format!("{plain}?sslmode=disable"), Some(false)),
        (plain.clone(), Some(true)),
        (format!("{plain}?sslmode=require"), Some(true)),
        (
            format!("{plain}?sslmode=verify-ca&sslrootcert={ca}"),
            Some(true),
        ),
        (
            format!("{named}?sslmode=verify-full&sslrootcert={ca}"),
            Some(true),
        ),
        // The certificate is for the name, not for the address.
        (
            format!("{plain}?sslmode=verify-full&sslrootcert={ca}"),
            None,
        ),
        (
            format!("{named}?sslmode=verify-full&sslrootcert={other}"),
            None,
        ),
        (
            format!("{plain}?sslmode=verify-ca&sslrootcert={other}"),
            None,
        ),
        // Signed by nobody whom the system knows.
        (format!("{named}?sslmode=verify-full"), None),
    ] {
        let db = Db::open(&url).await.unwrap();
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let found = db.query(sql).one(|row| row.bool("ssl")).await;
        match (encrypted, found) {
            (Some(wanted), Ok(found)) => assert_eq!(found, wanted, "{url}"),
            (None, Err(error)) => assert!(error.is_unavailable(), "{url}: {error}"),
            (_, found) => panic!("{url}: {found:?}"),
        }
        db.close().await;
    }
    let plain_server = kit::postgres::shared().database().await;
    let db = Db::open(&format!("{plain_server}?sslmode=require")).await;
    let error = db.unwrap().ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}
