//! The program and its database, from the command line.

use std::process::{Command, Output};

fn migrate(url: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(kit::server::program())
        .arg("migrate")
        .env_clear()
        .env("SIDETONE_SERVER__DATA_DIR", folder.path())
        .env("DATABASE_URL", url)
        .current_dir(folder.path())
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_url_that_is_none_is_a_wrong_setting_and_a_server_that_is_none_a_failure() {
    let url = kit::postgres::shared().database().await;
    for _ in 0..2 {
        let done = migrate(&url);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    }
    for wrong in [
        "mysql://u:swordfish@127.0.0.1/d",
        "postgres://u:swordfish@127.0.0.1:many/d",
    ] {
        let refused = migrate(wrong);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("database.url: "), "{said}");
        assert!(!said.contains("swordfish"), "{said}");
    }
    let nobody = format!(
        "postgres://u:swordfish@127.0.0.1:{}/d",
        kit::ports::free_port()
    );
    let failed = migrate(&nobody);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains("database: "), "{said}");
    assert!(!said.contains("swordfish"), "{said}");
}
