//! Values on their way into a statement.

use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Postgres, Sqlite};

use crate::time::Timestamp;

/// One value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// No value. PostgreSQL wants to know of which kind even then.
    Null(Kind),
    Text(String),
    Int(i64),
    Bool(bool),
    Real(f64),
    Blob(Vec<u8>),
}

/// What a value is, whether it is there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Int,
    Bool,
    Real,
    Blob,
}

/// What can be bound, and so also an `Option` of it.
pub trait Value: Into<Arg> {
    /// The kind that [`Arg`] makes of it.
    const KIND: Kind;
}

macro_rules! binder {
    ($name:ident, $engine:ty, $arguments:ty) => {
        /// The statement with its values bound.
        pub(super) fn $name(
            sql: sqlx::SqlStr,
            args: &[Arg],
        ) -> sqlx::query::Query<'_, $engine, $arguments> {
            let mut query = sqlx::query(sql);
            for arg in args {
                query = match arg {
                    Arg::Null(Kind::Text) => query.bind(None::<String>),
                    Arg::Null(Kind::Int) => query.bind(None::<i64>),
                    Arg::Null(Kind::Bool) => query.bind(None::<bool>),
                    Arg::Null(Kind::Real) => query.bind(None::<f64>),
                    Arg::Null(Kind::Blob) => query.bind(None::<Vec<u8>>),
                    Arg::Text(text) => query.bind(text.as_str()),
                    Arg::Int(int) => query.bind(*int),
                    Arg::Bool(bool) => query.bind(*bool),
                    Arg::Real(real) => query.bind(*real),
                    Arg::Blob(blob) => query.bind(blob.as_slice()),
                };
            }
            query
        }
    };
}

binder!(for_sqlite, Sqlite, SqliteArguments);
binder!(for_postgres, Postgres, PgArguments);

macro_rules! from {
    ($($type:ty => $kind:ident, $value:ident $arg:expr),+ $(,)?) => {$(
        impl From<$type> for Arg {
            fn from($value: $type) -> Self {
                $arg
            }
        }

        impl Value for $type {
            const KIND: Kind = Kind::$kind;
        }
    )+};
}

from! {
    &str => Text, text Self::Text(text.to_owned()),
    &String => Text, text Self::Text(text.clone()),
    String => Text, text Self::Text(text),
    i64 => Int, int Self::Int(int),
    i32 => Int, int Self::Int(int.into()),
    u32 => Int, int Self::Int(int.into()),
    u64 => Int, int Self::Int(i64::try_from(int).unwrap_or(i64::MAX)),
    usize => Int, int Self::Int(i64::try_from(int).unwrap_or(i64::MAX)),
    bool => Bool, bool Self::Bool(bool),
    f64 => Real, real Self::Real(real),
    Vec<u8> => Blob, blob Self::Blob(blob),
    &[u8] => Blob, blob Self::Blob(blob.to_vec()),
    [u8; 32] => Blob, blob Self::Blob(blob.to_vec()),
    Timestamp => Int, time Self::Int(time.micros()),
    uuid::Uuid => Text, id Self::Text(id.to_string()),
}

impl<T: Value> From<Option<T>> for Arg {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null(T::KIND), Into::into)
    }
}
