//! A table's rows as structs: which columns there are stands once, and what every resource asks of its table is
//! written here and nowhere else.
//!
//! ```text
//! record! {
//!     /// What an account wants to be told of.
//!     #[derive(Clone, PartialEq)]
//!     pub struct Trigger in "usage_triggers" where "deleted_at is null" {
//!         id: UsageTriggerId,
//!         name: Option<String>,
//!         resource: Resource as "resource_type",
//!         last: Option<Failure> => Failure::read,
//!     }
//! }
//!
//! db.of::<Trigger>(account).get(id).await?;              // Option<Trigger>
//! db.of::<Trigger>(account).whose("period", Period::Day).page(page).await?;
//! db.of::<Trigger>(account).such_if("created_at >= $?", from).some("id", 10).await?;
//! tx.of::<Trigger>(account).hold(id).await?;             // nobody else changes it until the transaction ends
//! tx.insert(account, &trigger).also("secret", sealed).run().await?;
//! tx.update(account, &trigger).await?;
//! let day = db.of::<Trigger>(account).whose("period", Period::Day);
//! day.set(named! { period: Period::Week, updated_at: now }).await?;        // how many there were
//! ```
//!
//! - Every field is `pub` and a column of its name, or of the name behind `as`.
//! - `=> function` reads a field that is made of several columns; nothing writes it but what the resource writes
//!   itself.
//! - `where "…"` says which rows there are to clients: others are neither found nor changed.
//! - `from "(select …) as usage_triggers"`, before it, is what rows are read from where the table alone does not tell all.
//! - `also "name" = |it: &Trigger| …;`, behind the braces, is a column that is written and never read.
//! - The table has `account_id`, `id` and `created_at`. A field for `account_id` is optional.

use std::marker::PhantomData;

use super::{Arg, Db, DbError, Kind, On, Query, Result, Row, Tx};
use crate::time::Timestamp;

/// Whose rows they are: the id of an account, and of nothing else.
pub trait Owner: Into<Arg> + Copy {}

/// Something that stands in one column.
pub trait Column: Sized {
    const KIND: Kind;

    /// The column's value, if it has one.
    fn read_opt(row: &Row, column: &str) -> Result<Option<Self>>;

    fn write(&self) -> Arg;

    fn read(row: &Row, column: &str) -> Result<Self> {
        Self::read_opt(row, column)?.ok_or_else(|| DbError::Column {
            column: column.to_owned(),
            why: "is null".to_owned(),
        })
    }
}

impl<T: Column> Column for Option<T> {
    const KIND: Kind = T::KIND;

    fn read_opt(row: &Row, column: &str) -> Result<Option<Self>> {
        T::read_opt(row, column).map(Some)
    }

    fn write(&self) -> Arg {
        self.as_ref().map_or(Arg::Null(T::KIND), Column::write)
    }
}

macro_rules! columns {
    ($($type:ty: $kind:ident $read:ident),+ $(,)?) => {$(
        impl Column for $type {
            const KIND: Kind = Kind::$kind;

            fn read_opt(row: &Row, column: &str) -> Result<Option<Self>> {
                row.$read(column)
            }

            fn write(&self) -> Arg {
                self.to_owned().into()
            }
        }
    )+};
}

columns! {
    String: Text opt_text,
    i64: Int opt_i64,
    u32: Int opt_u32,
    bool: Bool opt_bool,
    f64: Real opt_f64,
    Vec<u8>: Blob opt_blob,
    Timestamp: Int opt_time,
}

/// A column of text for types that are parsed and shown (`FromStr`, `Display`).
macro_rules! text_column {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::db::Column for $type {
            const KIND: $crate::db::Kind = $crate::db::Kind::Text;

            fn read_opt(row: &$crate::db::Row, column: &str) -> Result<Option<Self>, $crate::db::DbError> {
                row.opt_parse(column)
            }

            fn write(&self) -> $crate::db::Arg {
                $crate::db::Arg::Text(self.to_string())
            }
        }
    )+};
}

/// A column of JSON for types that serde reads and writes, and that always can be written.
macro_rules! json_column {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::db::Column for $type {
            const KIND: $crate::db::Kind = $crate::db::Kind::Text;

            fn read_opt(row: &$crate::db::Row, column: &str) -> Result<Option<Self>, $crate::db::DbError> {
                row.opt_json(column)
            }

            fn write(&self) -> $crate::db::Arg {
                $crate::db::Arg::Text(serde_json::json!(self).to_string())
            }
        }
    )+};
}

json_column!(
    Vec<String>,
    serde_json::Value,
    serde_json::Map<String, serde_json::Value>
);
text_column!(uuid::Uuid);

/// A row of a table that belongs to an account. [`record!`] makes it.
pub trait Record: Sized {
    type Id: Into<Arg> + Copy + Send + Sync;
    const TABLE: &'static str;
    /// What rows are read from: the table, or a query of that name.
    const SOURCE: &'static str;
    /// Which rows there are to clients.
    const ALIVE: &'static str;

    fn id(&self) -> Self::Id;

    fn read(row: &Row) -> Result<Self>;

    /// Every column that the struct knows of, with its value.
    fn columns(&self) -> Vec<(&'static str, Arg)>;
}

/// See the [module](self).
macro_rules! record {
    (@read $row:ident $field:ident) => { $crate::db::Column::read($row, stringify!($field)) };
    (@read $row:ident $field:ident as $column:literal) => { $crate::db::Column::read($row, $column) };
    (@read $row:ident $field:ident => $read:expr) => { $read($row) };
    (@write $list:ident $field:ident $value:expr) => {
        $list.push((stringify!($field), $crate::db::Column::write($value)));
    };
    (@write $list:ident $field:ident $value:expr, as $column:literal) => {
        $list.push(($column, $crate::db::Column::write($value)));
    };
    (@write $list:ident $field:ident $value:expr, => $read:expr) => {};
    (@or $default:literal) => { $default };
    (@or $default:literal $given:literal) => { $given };
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $table:literal $(from $source:literal)? $(where $alive:literal)? {
        id: $id:ty,
        $($(#[$field_meta:meta])* $field:ident: $type:ty $(as $column:literal)? $(=> $read:expr)?),+ $(,)?
    } $(also $also:literal = $value:expr;)*) => {
        $(#[$meta])*
        $vis struct $name {
            pub id: $id,
            $($(#[$field_meta])* pub $field: $type),+
        }

        impl $crate::db::Record for $name {
            type Id = $id;
            const TABLE: &'static str = $table;
            const SOURCE: &'static str = $crate::db::record!(@or $table $($source)?);
            const ALIVE: &'static str = $crate::db::record!(@or "true" $($alive)?);

            fn id(&self) -> $id {
                self.id
            }

            fn read(row: &$crate::db::Row) -> Result<Self, $crate::db::DbError> {
                Ok(Self {
                    id: $crate::db::Column::read(row, "id")?,
                    $($field: $crate::db::record!(@read row $field $(as $column)? $(=> $read)?)?),+
                })
            }

            fn columns(&self) -> Vec<(&'static str, $crate::db::Arg)> {
                let mut list = vec![("id", $crate::db::Column::write(&self.id))];
                $($crate::db::record!(@write list $field &self.$field $(, as $column)? $(, => $read)?);)+
                $(list.push(($also, $crate::db::Arg::from(($value)(self))));)*
                list
            }
        }
    };
}

pub(crate) use {json_column, record, text_column};

/// Columns and their values, each by its name; one whose name is a word of Rust in quotes.
macro_rules! named {
    (@name $column:ident) => { stringify!($column) };
    (@name $column:literal) => { $column };
    ($($column:tt: $value:expr),+ $(,)?) => {
        [$(($crate::db::named!(@name $column), $crate::db::Arg::from($value))),+]
    };
}

/// The values of a statement, in the order of `$1`, `$2` …
macro_rules! args {
    ($($value:expr),+ $(,)?) => { [$($crate::db::Arg::from($value)),+] };
}

pub(crate) use {args, named};

/// Where a page begins and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub limit: u32,
    pub offset: u32,
}

impl Db {
    /// The rows of an account.
    pub fn of<R: Record>(&self, account: impl Owner) -> Rows<'_, R> {
        Rows::new(On::Pool(self), account.into())
    }
}

impl Tx {
    /// The rows of an account.
    pub fn of<R: Record>(&mut self, account: impl Owner) -> Rows<'_, R> {
        Rows::new(On::Tx(self), account.into())
    }

    /// Writes every column of a row that is [held](Rows::hold), but for its id, its account and when it was made.
    /// `false`: it is not there.
    pub async fn update<R: Record>(&mut self, account: impl Owner, record: &R) -> Result<bool> {
        const FIXED: [&str; 3] = ["id", "account_id", "created_at"];
        let mut columns = record.columns();
        columns.retain(|(column, _)| !FIXED.contains(column));
        let row = self.of::<R>(account).whose("id", record.id());
        Ok(row.set(columns).await? == 1)
    }
}

/// Rows of one account, to be asked for or deleted.
#[derive(Debug)]
pub struct Rows<'a, R> {
    on: On<'a>,
    conditions: String,
    args: Vec<Arg>,
    of: PhantomData<fn() -> R>,
}

impl<'a, R: Record> Rows<'a, R> {
    fn new(on: On<'a>, account: Arg) -> Self {
        Self {
            on,
            conditions: format!("account_id = $1 and {}", R::ALIVE),
            args: vec![account],
            of: PhantomData,
        }
    }

    /// Only those whose column has this value.
    #[must_use]
    pub fn whose(mut self, column: &'static str, value: impl Into<Arg>) -> Self {
        self.args.push(value.into());
        self.conditions += &format!(" and {column} = ${}", self.args.len());
        self
    }

    /// The same where there is a value to ask for; else all.
    #[must_use]
    pub fn whose_if(self, column: &'static str, value: Option<impl Into<Arg>>) -> Self {
        match value {
            Some(value) => self.whose(column, value),
            None => self,
        }
    }

    /// Only those of which this text of SQL is true, in which `$?` stands for the value.
    #[must_use]
    pub fn such(mut self, condition: &'static str, value: impl Into<Arg>) -> Self {
        self.args.push(value.into());
        let place = format!("${}", self.args.len());
        self.conditions += &format!(" and {}", condition.replace("$?", &place));
        self
    }

    /// The same where there is a value to ask for; else all.
    #[must_use]
    pub fn such_if(self, condition: &'static str, value: Option<impl Into<Arg>>) -> Self {
        match value {
            Some(value) => self.such(condition, value),
            None => self,
        }
    }

    /// Only those whose column is like this pattern of SQL.
    #[must_use]
    pub fn like(mut self, column: &'static str, pattern: String) -> Self {
        self.args.push(pattern.into());
        self.conditions += &format!(" and {column} like ${}", self.args.len());
        self
    }

    /// Only those of which this text of SQL is true.
    #[must_use]
    pub fn only(mut self, condition: &'static str) -> Self {
        self.conditions += " and ";
        self.conditions += condition;
        self
    }

    /// The one of this id.
    pub async fn get(self, id: R::Id) -> Result<Option<R>> {
        self.whose("id", id).first().await
    }

    /// The same, which nobody else changes before the transaction ends: for what is read, judged and written.
    pub async fn hold(mut self, id: R::Id) -> Result<Option<R>> {
        let lock = match &self.on {
            On::Tx(tx) => tx.engine().for_update(),
            On::Pool(_) => "",
        };
        self = self.whose("id", id);
        self.select(lock).optional(R::read).await
    }

    /// The first of them.
    pub async fn first(mut self) -> Result<Option<R>> {
        self.select("").optional(R::read).await
    }

    /// All of them, in this order.
    pub async fn all(mut self, order: &'static str) -> Result<Vec<R>> {
        let end = format!(" order by {order}");
        self.select(&end).all(R::read).await
    }

    /// At most so many of them, in this order.
    pub async fn some(mut self, order: &'static str, most: u32) -> Result<Vec<R>> {
        self.args.push(most.into());
        let end = format!(" order by {order} limit ${}", self.args.len());
        self.select(&end).all(R::read).await
    }

    /// How many there are.
    pub async fn count(&mut self) -> Result<u64> {
        let from = format!("from {} where {}", R::TABLE, self.conditions);
        let args = self.args.clone();
        let total = self
            .query(format!("select count(*) as total {from}"))
            .bind_all(args)
            .one(|row| row.i64("total"))
            .await?;
        Ok(total.unsigned_abs())
    }

    /// A page of them, newest first, and how many there are.
    pub async fn page(mut self, page: impl Into<Window>) -> Result<(Vec<R>, u64)> {
        let total = self.count().await?;
        let Window { limit, offset } = page.into();
        let at = self.args.len();
        self.args.extend([limit.into(), offset.into()]);
        let order = format!(
            " order by created_at desc, id desc limit ${} offset ${}",
            at + 1,
            at + 2
        );
        Ok((self.select(&order).all(R::read).await?, total))
    }

    /// Gives these columns of all of them these values; how many there are.
    pub async fn set(
        mut self,
        columns: impl IntoIterator<Item = (&'static str, Arg)>,
    ) -> Result<u64> {
        let mut sets = Vec::new();
        for (column, value) in columns {
            self.args.push(value);
            sets.push(format!("{column} = ${}", self.args.len()));
        }
        let sql = format!(
            "update {} set {} where {}",
            R::TABLE,
            sets.join(", "),
            self.conditions
        );
        let args = std::mem::take(&mut self.args);
        self.query(sql).bind_all(args).execute().await
    }

    /// Deletes the row of this id. `false`: there is none.
    pub async fn delete(self, id: R::Id) -> Result<bool> {
        let mut rows = self.whose("id", id);
        let sql = format!("delete from {} where {}", R::TABLE, rows.conditions);
        let args = std::mem::take(&mut rows.args);
        Ok(rows.query(sql).bind_all(args).execute().await? == 1)
    }

    fn select(&mut self, end: &str) -> Query<'_> {
        let args = std::mem::take(&mut self.args);
        let sql = format!("select * from {} where {}{end}", R::SOURCE, self.conditions);
        self.query(sql).bind_all(args)
    }

    fn query(&mut self, sql: String) -> Query<'_> {
        match &mut self.on {
            On::Pool(db) => db.query_built(sql),
            On::Tx(tx) => tx.query_built(sql),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use crate::ids::{AccountId, ToolId};
    use crate::testing::TempDir;
    use crate::time::Clock;

    record! {
        /// A thing of an account.
        #[derive(Clone, Debug, PartialEq)]
        struct Thing in "things" where "gone_at is null" {
            id: ToolId,
            account: AccountId as "account_id",
            name: String,
            size: Option<u32> as "how_large",
            tags: Vec<String>,
            /// Of two columns.
            place: (i64, i64) => place,
            created_at: Timestamp,
        }
        also "x" = |thing: &Thing| thing.place.0;
        also "y" = |thing: &Thing| thing.place.1;
    }

    record! {
        /// The same, with how many things of the account there are.
        #[derive(Debug)]
        struct Counted in "things"
            from "(select t.*, (select count(*) from things o where o.account_id = t.account_id) as siblings
                from things t) as things"
            where "gone_at is null" {
            id: ToolId,
            name: String,
            siblings: i64,
        }
    }

    fn place(row: &Row) -> Result<(i64, i64)> {
        Ok((row.i64("x")?, row.i64("y")?))
    }

    struct Test {
        _dir: TempDir,
        db: Db,
        clock: Clock,
        mine: AccountId,
        other: AccountId,
    }

    impl Test {
        async fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let url = format!("sqlite:{}", dir.path().join("t.db").display());
            let db = Db::open(&url).await.unwrap();
            db.query(
                "create table things (id text primary key, account_id text not null, name text not null unique,
                    how_large bigint, tags text not null, x bigint not null, y bigint not null,
                    created_at bigint not null, gone_at bigint)",
            )
            .execute()
            .await
            .unwrap();
            let clock = Clock::fixed(Timestamp(1_767_323_045_000_006));
            let (mine, other) = (AccountId::new(&clock), AccountId::new(&clock));
            Self {
                _dir: dir,
                db,
                clock,
                mine,
                other,
            }
        }

        async fn add(&self, account: AccountId, name: &str, size: Option<u32>) -> Option<Thing> {
            let thing = Thing {
                id: ToolId::new(&self.clock),
                account,
                name: name.to_owned(),
                size,
                tags: vec!["a".to_owned(), "b".to_owned()],
                place: (1, 2),
                created_at: self.clock.now(),
            };
            self.clock.advance(std::time::Duration::from_millis(1));
            let insert = self.db.insert(account, &thing);
            let insert = insert.unless("on conflict do nothing");
            insert.run().await.unwrap().then_some(thing)
        }
    }

    #[tokio::test]
    async fn a_row_is_read_as_it_was_written_and_by_its_account_alone() {
        let test = Test::new().await;
        for size in [None, Some(7)] {
            let name = format!("{size:?}");
            let thing = test.add(test.mine, &name, size).await.unwrap();
            let read = test.db.of(test.mine).get(thing.id).await.unwrap();
            assert_eq!(read, Some(thing.clone()));
            let read = test.db.of::<Thing>(test.other).get(thing.id).await.unwrap();
            assert_eq!(read, None);
            assert_eq!(test.add(test.other, &name, size).await, None, "is taken");
        }
    }

    #[tokio::test]
    async fn a_page_has_the_newest_first_and_counts_all_that_were_asked_for() {
        let test = Test::new().await;
        for name in ["a", "b", "c"] {
            test.add(test.mine, name, Some(1)).await.unwrap();
        }
        test.add(test.mine, "large", Some(2)).await.unwrap();
        test.add(test.other, "other", Some(1)).await.unwrap();
        let names = async |rows: Rows<'_, Thing>, limit, offset| {
            let (found, total) = rows.page(Window { limit, offset }).await.unwrap();
            let names: String = found.into_iter().map(|thing| thing.name).collect();
            (names, total)
        };
        let mine = || test.db.of::<Thing>(test.mine);
        assert_eq!(names(mine(), 2, 0).await, ("largec".to_owned(), 4));
        let small = || mine().whose("how_large", 1_u32);
        assert_eq!(names(small(), 2, 1).await, ("ba".to_owned(), 3));
        assert_eq!(
            names(small().whose_if("name", Some("b")), 9, 0).await,
            ("b".to_owned(), 1)
        );
        assert_eq!(
            names(mine().whose_if("name", None::<&str>), 9, 3).await.1,
            4
        );
        assert_eq!(names(mine().like("name", "l%".to_owned()), 9, 0).await.1, 1);
        assert_eq!(mine().only("name <> 'a'").count().await.unwrap(), 3);
        assert_eq!(mine().some("name", 2).await.unwrap().len(), 2);
        let either = "(name = $? or 'b' < $? and name = 'b')";
        assert_eq!(names(mine().such(either, "c"), 9, 0).await.0, "cb");
        let large = mine().such_if("how_large > $?", Some(1_u32));
        assert_eq!(names(large, 9, 0).await, ("large".to_owned(), 1));
        let all = mine().such_if("how_large > $?", None::<u32>);
        assert_eq!(names(all, 0, 0).await.1, 4);
    }

    #[tokio::test]
    async fn a_row_is_read_from_more_than_its_table_and_changed_in_it() {
        let test = Test::new().await;
        let thing = test.add(test.mine, "a", None).await.unwrap();
        test.add(test.mine, "b", None).await.unwrap();
        test.add(test.other, "c", None).await.unwrap();
        let mine = || test.db.of::<Counted>(test.mine);
        let read = mine().get(thing.id).await.unwrap().unwrap();
        assert_eq!((read.name.as_str(), read.siblings), ("a", 2));
        let renamed = named! { name: "d" };
        assert_eq!(mine().whose("name", "a").set(renamed).await.unwrap(), 1);
        let window = Window {
            limit: 1,
            offset: 0,
        };
        let (page, total) = mine().page(window).await.unwrap();
        assert_eq!((page[0].name.as_str(), total), ("b", 2));
        assert!(mine().delete(thing.id).await.unwrap());
        assert_eq!(mine().first().await.unwrap().unwrap().siblings, 1);
    }

    #[tokio::test]
    async fn a_row_that_is_there_is_written_anew() {
        let test = Test::new().await;
        let made = async |size: u32| {
            let row = named! {
                id: "one", account_id: test.mine, "name": "a", how_large: size, tags: "[]", x: 0_i64, y: 0_i64,
                created_at: test.clock.now(),
            };
            let insert = test.db.insert_into("things", row);
            insert.or_replace(&["id"]).run().await.unwrap()
        };
        assert!(made(1).await && made(2).await);
        let sizes = test.db.query("select how_large from things");
        let sizes = sizes.all(|row| row.i64("how_large")).await.unwrap();
        assert_eq!(sizes, [2]);
    }

    #[tokio::test]
    async fn a_held_row_is_changed_and_one_that_is_gone_is_not() {
        let test = Test::new().await;
        let thing = test.add(test.mine, "a", None).await.unwrap();
        let mut tx = test.db.begin_write().await.unwrap();
        let mut held: Thing = tx.of(test.mine).hold(thing.id).await.unwrap().unwrap();
        held.name = "b".to_owned();
        held.tags.clear();
        assert!(tx.update(test.mine, &held).await.unwrap());
        assert!(!tx.update(test.other, &held).await.unwrap());
        tx.commit().await.unwrap();
        let mine = || test.db.of::<Thing>(test.mine);
        assert_eq!(mine().get(thing.id).await.unwrap(), Some(held.clone()));
        let gone = named! { gone_at: test.clock.now(), how_large: 3_u32 };
        assert_eq!(mine().whose("name", "b").set(gone).await.unwrap(), 1);
        assert_eq!(mine().first().await.unwrap(), None);
        let mut tx = test.db.begin_write().await.unwrap();
        assert!(!tx.update(test.mine, &held).await.unwrap());
        assert!(!tx.of::<Thing>(test.mine).delete(thing.id).await.unwrap());
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_row_is_deleted_once() {
        let test = Test::new().await;
        let thing = test.add(test.mine, "a", None).await.unwrap();
        for (account, there) in [(test.other, false), (test.mine, true), (test.mine, false)] {
            let deleted = test.db.of::<Thing>(account).delete(thing.id).await.unwrap();
            assert_eq!(deleted, there);
        }
    }
}
