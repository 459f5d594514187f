//! What goes wrong in a database, in one language for both engines.

/// What went wrong in the database. The text is for the log, never for a client.
#[derive(Debug)]
pub enum DbError {
    /// The engine refused or failed.
    Engine(sqlx::Error),
    /// The server does not answer connections; known before it was asked.
    Away,
    /// No write is taken for now: the disk is full or fails, or it is read-only; known before it was tried.
    NoWrites,
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

    /// Whether the database cannot be reached, cannot do it now or does not answer in time: the same may
    /// succeed later.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Away | Self::NoWrites | Self::TimedOut => true,
            Self::Engine(error) => {
                lost(error)
                    || fault(error)
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

    /// Whether there was no answer in time, or others had all of the database: nothing is known of how it is.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::TimedOut => true,
            // too_many_connections
            Self::Engine(error) => {
                matches!(error, sqlx::Error::PoolTimedOut)
                    || code(error).as_deref() == Some("53300")
                    || self.is_too_slow()
                    || self.is_conflict()
            }
            _ => false,
        }
    }

    /// Whether the database is there but its disk, its memory or its role does not let it do this now.
    pub fn is_fault(&self) -> bool {
        match self {
            Self::NoWrites => true,
            Self::Engine(error) => fault(error),
            _ => false,
        }
    }

    /// Whether no connection to the server can be had.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Engine(error) if lost(error) || fault(error))
    }

    /// Whether the statement itself was refused, by a constraint: the connection is as it was before.
    pub(super) fn is_refusal(&self) -> bool {
        let Self::Engine(sqlx::Error::Database(error)) = self else {
            return false;
        };
        error.is_unique_violation()
            || error.is_foreign_key_violation()
            || error.is_check_violation()
            || matches!(error.kind(), sqlx::error::ErrorKind::NotNullViolation)
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
            Some("5" | "261" | "517" | "773") => is_sqlite(error),
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
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(_) => code(error).is_some_and(|code| {
            // connection_exception; admin_shutdown, crash_shutdown, cannot_connect_now,
            // idle_session_timeout, idle_in_transaction_session_timeout
            let ended = ["57P01", "57P02", "57P03", "57P05", "25P03"];
            code.starts_with("08") || ended.contains(&code.as_str())
        }),
        _ => false,
    }
}

/// Whether the engine lacks something that it may have again: room on the disk, a disk that reads and
/// writes, memory, the right to write. A damaged file is none of these: it does not heal by waiting.
fn fault(error: &sqlx::Error) -> bool {
    let Some(code) = code(error) else {
        return false;
    };
    if is_sqlite(error) {
        // SQLITE_NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL; the kinds of each are in the higher bits.
        let primary = code.parse::<i32>().map(|code| code & 0xff);
        return primary.is_ok_and(|code| [7, 8, 10, 13, 14, 15].contains(&code));
    }
    // insufficient_resources, disk_full, out_of_memory, configuration_limit_exceeded; system_error, io_error
    let short = ["53000", "53100", "53200", "53400", "58000", "58030"];
    short.contains(&code.as_str()) || is_read_only(error)
}

/// Whether the server takes no writes: it follows another one, or was told so (PostgreSQL:
/// read_only_sql_transaction).
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    code(error).as_deref() == Some("25006")
}

fn is_sqlite(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error)
        if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some())
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
            Self::NoWrites => f.write_str("database: no write is taken for now"),
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
