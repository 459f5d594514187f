//! Rows that are added: those of a [`Record`], and those of tables that have none.

use super::{Arg, Db, On, Owner, Record, Result, Tx};

impl Db {
    /// Adds a row.
    pub fn insert<R: Record>(&self, account: impl Owner, record: &R) -> Insert<'_> {
        Insert::new(On::Pool(self), account.into(), record)
    }

    /// Adds a row of `named!` columns to a table that has no [`Record`].
    pub fn insert_into(
        &self,
        table: &'static str,
        row: impl IntoIterator<Item = (&'static str, Arg)>,
    ) -> Insert<'_> {
        Insert::into(On::Pool(self), table, row)
    }
}

impl Tx {
    /// Adds a row.
    pub fn insert<R: Record>(&mut self, account: impl Owner, record: &R) -> Insert<'_> {
        Insert::new(On::Tx(self), account.into(), record)
    }

    /// Adds a row of `named!` columns to a table that has no [`Record`].
    pub fn insert_into(
        &mut self,
        table: &'static str,
        row: impl IntoIterator<Item = (&'static str, Arg)>,
    ) -> Insert<'_> {
        Insert::into(On::Tx(self), table, row)
    }
}

/// A row to be added.
#[derive(Debug)]
pub struct Insert<'a> {
    on: On<'a>,
    table: &'static str,
    columns: Vec<(&'static str, Arg)>,
    conflict: String,
}

impl<'a> Insert<'a> {
    fn into(
        on: On<'a>,
        table: &'static str,
        row: impl IntoIterator<Item = (&'static str, Arg)>,
    ) -> Self {
        Self {
            on,
            table,
            columns: row.into_iter().collect(),
            conflict: String::new(),
        }
    }

    fn new<R: Record>(on: On<'a>, account: Arg, record: &R) -> Self {
        let mut columns = record.columns();
        columns.retain(|(column, _)| *column != "account_id");
        columns.push(("account_id", account));
        Self::into(on, R::TABLE, columns)
    }

    /// One more column: one that the struct does not know of.
    #[must_use]
    pub fn also(mut self, column: &'static str, value: impl Into<Arg>) -> Self {
        self.columns.push((column, value.into()));
        self
    }

    /// Nothing is added where another row has what is unique; the statement's `on conflict … do nothing`.
    #[must_use]
    pub fn unless(mut self, which: &'static str) -> Self {
        self.conflict = which.to_owned();
        self
    }

    /// The row that has the same in these columns, which are unique together, is written anew.
    #[must_use]
    pub fn or_replace(mut self, unique: &'static [&'static str]) -> Self {
        let others = self.columns.iter().map(|(column, _)| *column);
        let sets: Vec<String> = others
            .filter(|column| !unique.contains(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        self.conflict = format!(
            "on conflict ({}) do update set {}",
            unique.join(", "),
            sets.join(", ")
        );
        self
    }

    /// Runs it. `false`: nothing was added.
    pub async fn run(self) -> Result<bool> {
        let (names, values): (Vec<&str>, Vec<Arg>) = self.columns.into_iter().unzip();
        let places: Vec<String> = (1..=values.len()).map(|at| format!("${at}")).collect();
        let sql = format!(
            "insert into {} ({}) values ({}) {}",
            self.table,
            names.join(", "),
            places.join(", "),
            self.conflict
        );
        let query = match self.on {
            On::Pool(db) => db.query_built(sql),
            On::Tx(tx) => tx.query_built(sql),
        };
        Ok(query.bind_all(values).execute().await? == 1)
    }
}
