//! Values on their way out of a row, by column name.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type, TypeInfo as _, ValueRef as _};

use super::DbError;
use crate::time::Timestamp;

/// One row of an answer.
#[derive(Debug)]
pub struct Row(Inner);

#[derive(Debug)]
enum Inner {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl From<SqliteRow> for Row {
    fn from(row: SqliteRow) -> Self {
        Self(Inner::Sqlite(row))
    }
}

impl From<PgRow> for Row {
    fn from(row: PgRow) -> Self {
        Self(Inner::Postgres(row))
    }
}

impl Row {
    pub fn text(&self, column: &str) -> Result<String, DbError> {
        self.get(column)
    }

    pub fn opt_text(&self, column: &str) -> Result<Option<String>, DbError> {
        self.get(column)
    }

    /// An integer. A sum is none on PostgreSQL: it is asked for as `cast(sum(…) as bigint)`.
    pub fn i64(&self, column: &str) -> Result<i64, DbError> {
        self.opt_i64(column)?.ok_or_else(|| bad(column, "is null"))
    }

    /// As [`Row::i64`], of a column that may be null.
    pub fn opt_i64(&self, column: &str) -> Result<Option<i64>, DbError> {
        // PostgreSQL takes a number in the text of a statement for one of four bytes.
        if let Inner::Postgres(row) = &self.0
            && row
                .try_get_raw(column)
                .map_err(|error| bad(column, error))?
                .type_info()
                .name()
                == "INT4"
        {
            let value: Option<i32> = row.try_get(column).map_err(|error| bad(column, error))?;
            return Ok(value.map(i64::from));
        }
        self.get(column)
    }

    /// A count or another number that is never negative.
    pub fn u32(&self, column: &str) -> Result<u32, DbError> {
        self.opt_u32(column)?.ok_or_else(|| bad(column, "is null"))
    }

    /// As [`Row::u32`], of a column that may be null.
    pub fn opt_u32(&self, column: &str) -> Result<Option<u32>, DbError> {
        self.opt_i64(column)?
            .map(|value| u32::try_from(value).map_err(|error| bad(column, error)))
            .transpose()
    }

    pub fn bool(&self, column: &str) -> Result<bool, DbError> {
        self.get(column)
    }

    pub fn opt_bool(&self, column: &str) -> Result<Option<bool>, DbError> {
        self.get(column)
    }

    pub fn f64(&self, column: &str) -> Result<f64, DbError> {
        self.get(column)
    }

    pub fn opt_f64(&self, column: &str) -> Result<Option<f64>, DbError> {
        self.get(column)
    }

    pub fn blob(&self, column: &str) -> Result<Vec<u8>, DbError> {
        self.get(column)
    }

    pub fn opt_blob(&self, column: &str) -> Result<Option<Vec<u8>>, DbError> {
        self.get(column)
    }

    pub fn time(&self, column: &str) -> Result<Timestamp, DbError> {
        self.i64(column).map(Timestamp)
    }

    pub fn opt_time(&self, column: &str) -> Result<Option<Timestamp>, DbError> {
        Ok(self.opt_i64(column)?.map(Timestamp))
    }

    /// A column of text that holds something with a `FromStr`: an id, a closed set's word.
    pub fn parse<T>(&self, column: &str) -> Result<T, DbError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.text(column)?
            .parse()
            .map_err(|error| bad(column, error))
    }

    /// As [`Row::parse`], of a column that may be null.
    pub fn opt_parse<T>(&self, column: &str) -> Result<Option<T>, DbError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.opt_text(column)?
            .map(|text| text.parse().map_err(|error| bad(column, error)))
            .transpose()
    }

    /// A column of text that holds JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<T, DbError> {
        serde_json::from_str(&self.text(column)?).map_err(|error| bad(column, error))
    }

    /// As [`Row::json`], of a column that may be null.
    pub fn opt_json<T: serde::de::DeserializeOwned>(
        &self,
        column: &str,
    ) -> Result<Option<T>, DbError> {
        self.opt_text(column)?
            .map(|text| serde_json::from_str(&text).map_err(|error| bad(column, error)))
            .transpose()
    }

    fn get<'r, T>(&'r self, column: &str) -> Result<T, DbError>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        match &self.0 {
            Inner::Sqlite(row) => row.try_get(column),
            Inner::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| bad(column, error))
    }
}

fn bad(column: &str, why: impl std::fmt::Display) -> DbError {
    DbError::Column {
        column: column.to_owned(),
        why: why.to_string(),
    }
}
