//! Values on their way into a statement.

use sqlx::Sqlite;
use sqlx::sqlite::SqliteArguments;

use crate::time::Timestamp;

/// One value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Real(f64),
    Blob(Vec<u8>),
}

/// The statement with its values bound.
pub(super) fn bound(
    sql: sqlx::SqlStr,
    args: Vec<Arg>,
) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    let mut query = sqlx::query(sql);
    for arg in args {
        query = match arg {
            Arg::Null => query.bind(None::<String>),
            Arg::Text(text) => query.bind(text),
            Arg::Int(int) => query.bind(int),
            Arg::Bool(bool) => query.bind(bool),
            Arg::Real(real) => query.bind(real),
            Arg::Blob(blob) => query.bind(blob),
        };
    }
    query
}

macro_rules! from {
    ($($type:ty => $value:ident $arg:expr),+ $(,)?) => {$(
        impl From<$type> for Arg {
            fn from($value: $type) -> Self {
                $arg
            }
        }
    )+};
}

from! {
    &str => text Self::Text(text.to_owned()),
    &String => text Self::Text(text.clone()),
    String => text Self::Text(text),
    i64 => int Self::Int(int),
    i32 => int Self::Int(int.into()),
    u32 => int Self::Int(int.into()),
    u64 => int Self::Int(i64::try_from(int).unwrap_or(i64::MAX)),
    usize => int Self::Int(i64::try_from(int).unwrap_or(i64::MAX)),
    bool => bool Self::Bool(bool),
    f64 => real Self::Real(real),
    Vec<u8> => blob Self::Blob(blob),
    &[u8] => blob Self::Blob(blob.to_vec()),
    [u8; 32] => blob Self::Blob(blob.to_vec()),
    Timestamp => time Self::Int(time.micros()),
}

impl<T: Into<Self>> From<Option<T>> for Arg {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
