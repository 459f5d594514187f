//! The API in the test's own process, on the database that the tests are told to use.

use control::config::Config;
use control::secret::Secret;
use control::testing::TestApp;

use crate::postgres;

/// An application with the usual settings.
pub async fn new() -> TestApp {
    with(|_| {}).await
}

/// An application with settings changed.
pub async fn with(change: impl FnOnce(&mut Config)) -> TestApp {
    let database = match postgres::is_chosen() {
        true => Some(postgres::migrated().await),
        false => None,
    };
    TestApp::with(|config| {
        if let Some(url) = database {
            config.database.url = Secret::new(url);
        }
        change(config);
    })
    .await
}
