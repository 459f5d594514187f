//! `sidetone keys`.

use clap::Subcommand;

use super::Failure;
use crate::api_keys::{self, store::ApiKey};
use crate::config::Config;
use crate::db::Db;
use crate::http::scope::Scopes;
use crate::ids::{AccountId, ApiKeyId};
use crate::rotation;
use crate::secret::MasterKey;
use crate::time::Clock;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a key and print it, once.
    Create {
        /// What the key is for.
        name: String,
        #[arg(long, default_value = "default")]
        account: String,
        /// `all`, `default`, or scopes with commas between.
        #[arg(long, default_value = "default")]
        scopes: String,
    },
    /// List the keys of an account.
    List {
        #[arg(long, default_value = "default")]
        account: String,
    },
    /// Give the installation a new master key, online: secrets in the database are sealed anew, and what
    /// the old key made is good until --retire.
    RotateMaster {
        /// Forget older keys as well: an hour after the rotation nothing needs them.
        #[arg(long)]
        retire: bool,
    },
    /// Revoke a key by its id.
    Revoke {
        id: ApiKeyId,
        #[arg(long, default_value = "default")]
        account: String,
    },
}

pub(super) fn run(command: &Command, config: Config) -> Result<(), Failure> {
    super::block_on(async {
        let db = super::existing_db(&config).await?;
        let clock = Clock::system();
        match command {
            Command::Create {
                name,
                account,
                scopes,
            } => {
                let account = account_id(&db, account).await?;
                let scopes = match scopes.as_str() {
                    "all" => Scopes::all(),
                    "default" => Scopes::default_bundle(),
                    list => list.replace(',', " ").parse()?,
                };
                let created = api_keys::create(&db, &clock, account, name, scopes, None).await?;
                println!("{}", created.key.expose());
            }
            Command::List { account } => {
                let account = account_id(&db, account).await?;
                let keys = db.of::<ApiKey>(account);
                let keys = keys.all("created_at desc, id desc").await?;
                for key in keys {
                    println!(
                        "{}  {}…  {:8}  {}",
                        key.id,
                        key.key_prefix,
                        key.status(clock.now()),
                        key.name
                    );
                }
            }
            Command::RotateMaster { retire } => rotate_master(&config, &db, *retire).await?,
            Command::Revoke { id, account } => {
                let account = account_id(&db, account).await?;
                let mut tx = db.begin_write().await?;
                let is_there = api_keys::store::revoke(&mut tx, account, *id, clock.now()).await?;
                tx.commit().await?;
                if !is_there {
                    return Err(format!("no key {id} in this account").into());
                }
                println!("revoked");
            }
        }
        db.close().await;
        Ok(())
    })
}

/// A key that the operator keeps is rotated by them: the new one before the old in SIDETONE_MASTER_KEY.
/// Then only what is sealed has to follow.
async fn rotate_master(config: &Config, db: &Db, retire: bool) -> Result<(), Failure> {
    let file = config.server.data_dir.join("master.key");
    let key = match &config.master_key {
        Some(key) => MasterKey::from_base64(key.expose()).ok_or("SIDETONE_MASTER_KEY is wrong")?,
        None => {
            if !retire {
                MasterKey::rotate_file(&file)?;
            }
            MasterKey::load_or_create(&file)?
        }
    };
    let sealed = rotation::seal_anew(db, &key).await?;
    println!("{sealed} secrets were sealed anew");
    if retire && config.master_key.is_none() {
        MasterKey::retire_file(&file)?;
        println!("older keys are forgotten");
    }
    Ok(())
}

async fn account_id(db: &Db, name: &str) -> Result<AccountId, Failure> {
    if name == "default" {
        return Ok(crate::accounts::ensure(db, &Clock::system(), name).await?);
    }
    let account = crate::accounts::find_by_name(db, name)
        .await?
        .ok_or_else(|| format!("no account {name}"))?;
    Ok(account.id)
}
