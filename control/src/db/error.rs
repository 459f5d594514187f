//! What goes wrong in a database, in one language for both engines.

/// What went wrong in the database. The text is for the log, never for a client.
#[derive(Debug)]
pub enum DbError {
    /// The engine refused or failed.
    Engine(sqlx::Error),
    /// The server does not answer connections; known before it was asked.
    Away,
    /// A statement was not answered in time.
    TimedOut,
    /// An earlier statement of the transaction failed: there is nothing to commit.
    Aborted,
    /// `one` found no row.
    NoRow,
    /// A stored value is not what the code expects of that column.
    Column { column: String, why: String },
    /// A migration failed.
    Migration(String),
}

impl DbError {
    /// Whether a unique or primary key refused the row.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Engine(sqlx::Error::Database(error)) if error.is_unique_violation())
    }

    /// Whether the database cannot be reached or does not answer in time: the same may succeed later.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Away | Self::TimedOut => true,
            Self::Engine(error) => {
                lost(error)
                    || matches!(error, sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)
                    // too_many_connections
                    || code(error).as_deref() == Some("53300")
                    || self.is_too_slow()
            }
            _ => false,
        }
    }

    /// Whether the server ended the statement because it took too long (query_canceled): the server is
    /// there, and the same may succeed when it has less to do.
    pub fn is_too_slow(&self) -> bool {
        matches!(self, Self::Engine(error) if code(error).as_deref() == Some("57014"))
    }

    /// Whether another write was in the way and this one was undone: the same may succeed at once.
    pub fn is_conflict(&self) -> bool {
        let Self::Engine(error) = self else {
            return false;
        };
        match code(error).as_deref() {
            // PostgreSQL: serialization_failure, deadlock_detected, lock_not_available
            Some("40001" | "40P01" | "55P03") => true,
            // SQLite: SQLITE_BUSY and its kinds, when another process writes for long.
            Some("5" | "261" | "517" | "773") => {
                matches!(error, sqlx::Error::Database(error)
                    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some())
            }
            _ => stale_plan(error),
        }
    }

    /// Whether a text held a NUL character, which PostgreSQL does not take.
    pub fn is_bad_text(&self) -> bool {
        matches!(self, Self::Engine(error) if code(error).as_deref() == Some("22021"))
    }
}

/// Whether the connection is gone, or the server is about to go.
pub(super) fn lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(_) => code(error)
            // connection_exception; admin_shutdown, crash_shutdown, cannot_connect_now
            .is_some_and(|code| {
                code.starts_with("08") || ["57P01", "57P02", "57P03"].contains(&code.as_str())
            }),
        _ => false,
    }
}

/// Whether a prepared statement was made before its table was changed: prepared anew it works
/// (PostgreSQL: "cached plan must not change result type").
pub(super) fn stale_plan(error: &sqlx::Error) -> bool {
    code(error).as_deref() == Some("0A000") && error.to_string().contains("cached plan")
}

/// The engine's own code of an error: PostgreSQL's SQLSTATE, SQLite's number.
fn code(error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    error.code().map(std::borrow::Cow::into_owned)
}

impl std::fmt::Display for DbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(error) => write!(f, "database: {error}"),
            Self::Away => f.write_str("database: the server does not answer"),
            Self::TimedOut => f.write_str("database: a statement was not answered in time"),
            Self::Aborted => f.write_str("database: a statement of the transaction had failed"),
            Self::NoRow => f.write_str("database: no row where one must be"),
            Self::Column { column, why } => write!(f, "database: column {column}: {why}"),
            Self::Migration(why) => write!(f, "database: {why}"),
        }
    }
}

impl std::error::Error for DbError {}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error)
    }
}
