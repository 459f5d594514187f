//! `sidetone migrate`.

use super::Failure;
use crate::config::Config;

pub(super) fn run(config: Config) -> Result<(), Failure> {
    super::block_on(async {
        super::open_db(&config).await?.close().await;
        println!("The database is up to date.");
        Ok(())
    })
}
