//! `sidetone accounts`.

use clap::Subcommand;

use super::Failure;
use crate::accounts::{self, Account};
use crate::billing;
use crate::config::Config;
use crate::db::Db;
use crate::time::Clock;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make an account.
    Create { name: String },
    /// List accounts.
    List,
    /// Stop an account from spending: its calls end, and 402 answers what costs.
    Block {
        name: String,
        /// Why, for the operator.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a blocked account go on.
    Unblock { name: String },
    /// Give an account prepaid credit.
    Credit {
        name: String,
        /// Added to the balance; negative takes away.
        #[arg(allow_negative_numbers = true)]
        cents: i64,
        #[arg(long)]
        note: Option<String>,
    },
}

pub(super) fn run(command: &Command, config: Config) -> Result<(), Failure> {
    super::block_on(async {
        let db = super::existing_db(&config).await?;
        run_on(command, &db, &Clock::system()).await?;
        db.close().await;
        Ok(())
    })
}

async fn run_on(command: &Command, db: &Db, clock: &Clock) -> Result<(), Failure> {
    match command {
        Command::Create { name } => match accounts::create(db, clock, name).await? {
            Some(account) => println!("{}", account.id),
            None => return Err(format!("an account {name} exists").into()),
        },
        Command::List => {
            let (accounts, _) = accounts::list(db, u32::MAX, 0).await?;
            for account in accounts {
                let blocked = if account.blocked_at.is_some() {
                    "  blocked"
                } else {
                    ""
                };
                println!(
                    "{}  {}  {}{blocked}",
                    account.id, account.created_at, account.name
                );
            }
        }
        Command::Block { name, reason } => {
            let account = found(db, name).await?;
            let reason = reason.as_deref();
            accounts::set_blocked(db, account.id, true, reason, clock.now()).await?;
            println!("blocked");
        }
        Command::Unblock { name } => {
            let account = found(db, name).await?;
            accounts::set_blocked(db, account.id, false, None, clock.now()).await?;
            println!("unblocked");
        }
        Command::Credit { name, cents, note } => {
            let account = found(db, name).await?;
            let adjusted = billing::adjust(db, clock, account.id, *cents, note.as_deref()).await?;
            let adjusted = adjusted.ok_or_else(|| format!("no account {name}"))?;
            println!("balance: {} cents", adjusted.balance_cents);
        }
    }
    Ok(())
}

async fn found(db: &Db, name: &str) -> Result<Account, Failure> {
    let account = accounts::find_by_name(db, name).await?;
    Ok(account.ok_or_else(|| format!("no account {name}"))?)
}
