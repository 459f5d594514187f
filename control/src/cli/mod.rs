//! The command line: one file a subcommand.

mod accounts;
pub mod call;
pub mod client;
mod keys;
pub mod load;
mod migrate;
mod openapi;
pub mod recognise;
pub mod replay;
mod serve;
mod sip;
mod webhooks;

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigError};

/// Voice agents that talk in real time.
#[derive(Debug, Parser)]
#[command(name = "sidetone", version, about)]
pub struct Cli {
    /// The settings file. Without it: sidetone.toml, if there is one.
    #[arg(long, global = true, value_name = "FILE", env = "SIDETONE_CONFIG")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(serve::Args),
    /// Bring the database up to date and end.
    Migrate,
    /// Print the OpenAPI document: `sidetone openapi > docs/openapi.json` refreshes the copy.
    Openapi,
    /// Make and list accounts.
    #[command(subcommand)]
    Accounts(accounts::Command),
    /// Make, list and revoke API keys.
    #[command(subcommand)]
    Keys(keys::Command),
    /// Place a call from a WAV file and print the transcript live.
    Call(call::CallArgs),
    /// Place many calls at once and measure them.
    Load(load::LoadArgs),
    /// Run a call's tape again and compare.
    Replay(replay::ReplayArgs),
    /// Receive events on this machine.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    /// Look at telephone calls.
    #[command(subcommand)]
    Sip(sip::Command),
    /// Measure how well the offline recogniser hears.
    Wer(recognise::WerArgs),
}

/// What a command ends with when it fails.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command of this process. 0: done; 1: it failed; 2: the settings or arguments are wrong.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Serve(args) => with_config(&cli, |config| serve::run(args, config)),
        Command::Migrate => with_config(&cli, migrate::run),
        Command::Openapi => with_config(&cli, openapi::run),
        Command::Accounts(command) => with_config(&cli, |config| accounts::run(command, config)),
        Command::Call(args) => return call::run(args),
        Command::Load(args) => return load::run(args),
        Command::Replay(args) => return replay::run(args),
        Command::Wer(args) => return recognise::run(args),
        Command::Webhooks(command) => webhooks::run(command),
        Command::Sip(command) => sip::run(command),
        Command::Keys(command) => with_config(&cli, |config| keys::run(command, config)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidetone: {error}");
            ExitCode::from(if error.is::<ConfigError>() { 2 } else { 1 })
        }
    }
}

fn with_config(
    cli: &Cli,
    command: impl FnOnce(Config) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let text = match &cli.config {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| ConfigError::one(path.display(), error))?,
        ),
        None => match std::fs::read_to_string("sidetone.toml") {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read.map_err(|error| ConfigError::one("sidetone.toml", error))?),
        },
    };
    // Names that are not text are nobody's setting; values that are not text are reported as wrong
    // where they are read.
    let env = std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((
                name.into_string().ok()?,
                value.to_string_lossy().into_owned(),
            ))
        })
        .collect();
    command(Config::load(text.as_deref(), &env)?)
}

/// The runtime of the short commands.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// The database that `serve` or `migrate` made for these settings, up to date. Where there is none the command
/// refuses: a second, empty one in a wrong folder would take what is meant for the first.
async fn existing_db(config: &Config) -> Result<crate::db::Db, Failure> {
    let url = config.database.url.expose();
    let none = |place: &str| {
        format!(
            "there is no database at {place}: run this where `sidetone serve` runs, or name its settings with --config; `sidetone migrate` makes a new one"
        )
    };
    if let Some(file) = crate::db::file(url) {
        // Of a relative path the folder is what the operator has to see.
        let shown = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match std::fs::metadata(file) {
            Ok(found) if found.len() > 0 => {}
            Ok(_) => return Err(none(&shown.display().to_string()).into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(none(&shown.display().to_string()).into());
            }
            Err(error) => return Err(format!("{}: {error}", shown.display()).into()),
        }
    }
    let db = crate::db::Db::open_with(url, &config.database.pool)
        .await
        .map_err(at_its_place(url))?;
    if !db.is_made().await.map_err(at_its_place(url))? {
        return Err(none(&crate::db::place(url)).into());
    }
    db.migrate().await.map_err(at_its_place(url))?;
    Ok(db)
}

/// A fault of the database, with the place that the operator has to look at: a file that nobody may write, for example.
fn at_its_place(url: &str) -> impl Fn(crate::db::DbError) -> Failure {
    let file = crate::db::file(url)
        .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    let place = file.map_or_else(|| crate::db::place(url), |file| file.display().to_string());
    move |error| format!("{place}: {error}").into()
}

/// The same of a file or a folder.
fn at_path(path: &std::path::Path) -> impl Fn(std::io::Error) -> std::io::Error {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    move |error| {
        let why = error.to_string();
        if why.contains(&*shown.to_string_lossy()) {
            return error;
        }
        std::io::Error::new(error.kind(), format!("{}: {why}", shown.display()))
    }
}

/// Makes the data folder if there is none. Private: it holds the master key, recordings and transcripts.
fn make_data_dir(config: &Config) -> Result<(), Failure> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.server.data_dir)
        .map_err(at_path(&config.server.data_dir))?;
    Ok(())
}

/// The database of these settings, made if there is none, and up to date.
async fn open_db(config: &Config) -> Result<crate::db::Db, Failure> {
    make_data_dir(config)?;
    let url = config.database.url.expose();
    let db = crate::db::Db::open_with(url, &config.database.pool)
        .await
        .map_err(at_its_place(url))?;
    db.migrate().await.map_err(at_its_place(url))?;
    // A file that nobody may write is found here, with its name, and not by whoever writes first.
    match db.takes_writes().await {
        Err(error) if error.is_fault() => Err(at_its_place(url)(error)),
        Ok(()) | Err(_) => Ok(db),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use crate::db::{Db, DbError};
    use crate::testing::TempDir;

    #[tokio::test]
    async fn a_database_that_cannot_be_opened_is_named_with_its_place() {
        let dir = TempDir::new().unwrap();
        let missing = dir.path().join("missing").join("sidetone.db");
        let folder = dir.path().to_owned();
        let damaged = dir.path().join("damaged.db");
        std::fs::write(
            &damaged,
            "this is no database, and long enough to be looked at",
        )
        .unwrap();
        for file in [missing, folder, damaged] {
            let url = format!("sqlite:{}", file.display());
            let opened = async {
                let db = Db::open(&url).await?;
                db.migrate().await
            };
            let error = opened.await.map_err(at_its_place(&url)).unwrap_err();
            let (error, file) = (error.to_string(), file.display().to_string());
            assert!(error.starts_with(&file), "{error}");
        }
        let shown = at_its_place("postgres://me:secret@db.example:5432/calls?x=y")(DbError::Away);
        let shown = shown.to_string();
        assert!(shown.starts_with("db.example:5432/calls: "), "{shown}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let within = file.join("folder");
        let error = std::fs::create_dir_all(&within).map_err(at_path(&within));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&within.display().to_string()), "{error}");
    }
}
