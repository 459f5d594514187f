//! `sidetone accounts`.

use clap::Subcommand;

use super::Failure;
use crate::config::Config;
use crate::time::Clock;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make an account.
    Create { name: String },
    /// List accounts.
    List,
}

pub(super) fn run(command: &Command, config: Config) -> Result<(), Failure> {
    super::block_on(async {
        let db = super::open_db(&config).await?;
        match command {
            Command::Create { name } => {
                match crate::accounts::create(&db, &Clock::system(), name).await? {
                    Some(account) => println!("{}", account.id),
                    None => return Err(format!("an account {name} exists").into()),
                }
            }
            Command::List => {
                let (accounts, _) = crate::accounts::list(&db, u32::MAX, 0).await?;
                for account in accounts {
                    println!("{}  {}  {}", account.id, account.created_at, account.name);
                }
            }
        }
        db.close().await;
        Ok(())
    })
}
