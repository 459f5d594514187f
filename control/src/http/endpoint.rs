//! A route as data: its method and path, who may call it, how often, what its body must be. The
//! router, the OpenAPI document and the access tests read the same list, and no handler can be
//! mounted without its access rule.

use std::ops::Deref;

use axum::extract::FromRef;
use axum::handler::Handler;
use axum::routing::MethodRouter;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::answers::{Answer, HeaderDoc, Refusal};
use super::extract::{PathId, Wire};
use super::page::{self, List};
use super::resource;
use super::scope::Scope;
use super::validate::Schema;
use crate::db::{Db, Record};

/// The header by which a request names itself.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Its longest value, characters.
pub const LONGEST_IDEMPOTENCY_KEY: usize = 200;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A key with all of these scopes.
    Scopes(&'static [Scope]),
    /// A key with at least one of these scopes.
    AnyScope(&'static [Scope]),
    /// A key or a call token with at least one of these scopes.
    CallToken(&'static [Scope]),
    /// The same, or nobody: the handler sees `Option<Caller>`, and asks whether the agent is public.
    PublicAgent(&'static [Scope]),
    /// A key, or something else that the handler checks itself (a `token` of the query). A key that
    /// is given must be valid; the handler sees it as `Option<Caller>`.
    Signed,
    /// The URL is the credential; the handler checks it.
    SignedUrl,
    /// The administrator's token.
    Admin,
    /// Everyone.
    None,
}

/// Which of a key's request budgets a route uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Read,
    Write,
    CallCreation,
    Tts,
    /// Not counted.
    Exempt,
}

/// What is known of a route.
#[derive(Debug)]
pub struct Operation {
    pub method: Method,
    /// In the router's syntax, without `/api/v1`: `/agents/{id}`.
    pub path: &'static str,
    pub access: Access,
    pub class: Class,
    /// The name of the operation in the document and in clients that are generated from it: verb and noun, as in
    /// `listAgents`.
    pub id: &'static str,
    /// One line for the document.
    pub summary: &'static str,
    /// Two or three sentences for the document: what the operation does and when, its side effects, and the refusals
    /// that matter.
    pub about: &'static str,
    pub body: Option<&'static Schema>,
    pub query: Option<&'static Schema>,
    /// Default, maximum and minimum of `limit`, on lists.
    pub page: Option<(u32, u32, u32)>,
    /// The status of success.
    pub success: StatusCode,
    /// The body of success.
    pub answer: Answer,
    /// A part of the body is sent when `Range` asks for it.
    pub ranges: bool,
    /// Headers of success beside those that every answer has.
    pub told: &'static [HeaderDoc],
    /// Refusals that do not follow from the rest of the entry.
    pub refusals: Vec<Refusal>,
    /// Between the nodes of an installation: not in the document.
    pub internal: bool,
    /// Answers preflights and sends CORS headers (session routes).
    pub cors: bool,
    /// Mounted at the root, not under `/api/v1` (WebSockets, health).
    pub root: bool,
    /// Spends money: a hard-blocked account gets 402. So does every route that creates calls or speech.
    pub spends: bool,
    /// The handler asks for credit: other refusals come before 402.
    pub bills_late: bool,
    /// `Idempotency-Key` is honoured.
    pub idempotent: bool,
}

impl Operation {
    /// The path as mounted.
    pub fn full_path(&self) -> String {
        if self.root {
            self.path.to_owned()
        } else {
            format!("/api/v1{}", self.path)
        }
    }
}

/// One route: what is known of it, and its handler, which works on this state.
#[derive(Debug)]
pub struct Endpoint<S> {
    data: Operation,
    mount: Mount<S>,
}

/// Makes the handler, once its state is there.
struct Mount<S>(Box<dyn FnOnce(S) -> MethodRouter + Send>);

impl<S> std::fmt::Debug for Mount<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mount")
    }
}

impl<S> Deref for Endpoint<S> {
    type Target = Operation;

    fn deref(&self) -> &Operation {
        &self.data
    }
}

macro_rules! methods {
    ($($name:ident $method:ident $class:ident $success:ident),+ $(,)?) => {$(
        #[doc = concat!("A `", stringify!($method), "` route.")]
        pub fn $name<H, T>(path: &'static str, access: Access, handler: H) -> Self
        where
            H: Handler<T, S>,
            T: 'static,
        {
            let mount = move |state: S| axum::routing::$name(handler).with_state(state);
            Self::new(Method::$method, path, access, Class::$class, StatusCode::$success, mount)
        }
    )+};
}

macro_rules! refusals {
    ($($name:ident $status:ident),+ $(,)?) => {$(
        #[doc = concat!("One more way to refuse, with `", stringify!($status), "`: the slug, a colon, and when.")]
        #[must_use]
        pub fn $name(self, told: &'static str) -> Self {
            let (code, when) = told.split_once(": ").unwrap_or((told, ""));
            self.refuses(StatusCode::$status, code, when)
        }
    )+};
}

impl<S: Clone + Send + Sync + 'static> Endpoint<S> {
    methods! {
        get GET Read OK,
        post POST Write CREATED,
        put PUT Write OK,
        patch PATCH Write OK,
        delete DELETE Write NO_CONTENT,
    }

    /// `GET` of one row, by the id of the path.
    pub fn one<R, O>(path: &'static str, access: Access) -> Self
    where
        S: AsRef<Db>,
        R: Record + Send + 'static,
        R::Id: PathId + 'static,
        O: From<R> + Serialize + JsonSchema + 'static,
    {
        Self::get(path, access, resource::one::<S, R, O>).answers::<O>()
    }

    /// `GET` of a page of rows, newest first.
    pub fn list<R, O, L>(path: &'static str, access: Access) -> Self
    where
        S: AsRef<Db>,
        R: Record + Send + 'static,
        O: From<R> + Serialize + JsonSchema + Send + 'static,
        L: page::Limits,
    {
        Self::get(path, access, resource::list::<S, R, O, L>)
            .page::<L>()
            .answers::<List<O>>()
    }

    fn new(
        method: Method,
        path: &'static str,
        access: Access,
        class: Class,
        success: StatusCode,
        mount: impl FnOnce(S) -> MethodRouter + Send + 'static,
    ) -> Self {
        let data = Operation {
            method,
            path,
            access,
            class,
            id: "",
            summary: "",
            about: "",
            body: None,
            query: None,
            page: None,
            answer: if success == StatusCode::NO_CONTENT {
                Answer::Empty
            } else {
                Answer::Untold
            },
            success,
            ranges: false,
            told: &[],
            refusals: Vec::new(),
            internal: false,
            cors: false,
            root: false,
            spends: matches!(class, Class::CallCreation | Class::Tts),
            bills_late: false,
            idempotent: false,
        };
        Self {
            data,
            mount: Mount(Box::new(mount)),
        }
    }

    /// The name of the operation, and what it does in two or three sentences.
    #[must_use]
    pub fn operation(mut self, id: &'static str, about: &'static str) -> Self {
        self.data.id = id;
        self.data.about = about;
        self
    }

    #[must_use]
    pub fn summary(mut self, summary: &'static str) -> Self {
        self.data.summary = summary;
        self
    }

    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.data.class = class;
        if matches!(class, Class::CallCreation | Class::Tts) {
            self.data.spends = true;
        }
        self
    }

    /// The table of its body.
    #[must_use]
    pub fn body<T: Wire>(mut self) -> Self {
        self.data.body = Some(T::SCHEMA);
        self
    }

    /// The table of its query.
    #[must_use]
    pub fn query<T: Wire>(mut self) -> Self {
        self.data.query = Some(T::SCHEMA);
        self
    }

    /// The bounds of its pages.
    #[must_use]
    pub fn page<L: page::Limits>(mut self) -> Self {
        self.data.page = Some((L::DEFAULT, L::MAX, L::MIN));
        self
    }

    /// The status of success, where it is not the method's usual one.
    #[must_use]
    pub fn returns(mut self, status: StatusCode) -> Self {
        self.data.success = status;
        self
    }

    /// The wire type of success.
    #[must_use]
    pub fn answers<T: JsonSchema>(mut self) -> Self {
        self.data.answer = Answer::json::<T>();
        self
    }

    /// The media types of a success that is not JSON.
    #[must_use]
    pub fn sends(mut self, media: &'static [&'static str]) -> Self {
        self.data.answer = Answer::Media(media);
        self
    }

    /// A success without a body.
    #[must_use]
    pub fn answers_nothing(mut self) -> Self {
        self.data.answer = Answer::Empty;
        self
    }

    /// A range of the body is sent where one is asked for.
    #[must_use]
    pub fn in_ranges(mut self) -> Self {
        self.data.ranges = true;
        self
    }

    /// Headers of success.
    #[must_use]
    pub fn tells(mut self, headers: &'static [HeaderDoc]) -> Self {
        self.data.told = headers;
        self
    }

    /// One more way to refuse: status, slug, and when.
    #[must_use]
    pub fn refuses(mut self, status: StatusCode, code: &'static str, when: &'static str) -> Self {
        self.data.refusals.push(Refusal { status, code, when });
        self
    }

    refusals! {
        or_400 BAD_REQUEST,
        or_403 FORBIDDEN,
        or_404 NOT_FOUND,
        or_409 CONFLICT,
        or_422 UNPROCESSABLE_ENTITY,
        or_502 BAD_GATEWAY,
    }

    /// Between the nodes of an installation.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.data.internal = true;
        self
    }

    #[must_use]
    pub fn cors(mut self) -> Self {
        self.data.cors = true;
        self
    }

    /// Spends money beside what its class says.
    #[must_use]
    pub fn spends(mut self) -> Self {
        self.data.spends = true;
        self
    }

    /// The handler itself asks whether the account may spend, after what comes before 402.
    #[must_use]
    pub fn bills_late(mut self) -> Self {
        self.data.bills_late = true;
        self
    }

    /// A request with an `Idempotency-Key` makes nothing twice.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.data.idempotent = true;
        self
    }

    #[must_use]
    pub fn at_root(mut self) -> Self {
        self.data.root = true;
        self
    }

    /// The same for an application that holds this state.
    #[must_use]
    pub fn within<T>(self) -> Endpoint<T>
    where
        S: FromRef<T> + 'static,
        T: 'static,
    {
        let mount = self.mount.0;
        Endpoint {
            data: self.data,
            mount: Mount(Box::new(move |whole| mount(S::from_ref(&whole)))),
        }
    }

    /// The handler with its state; it has no gate yet.
    pub fn into_handler(self, state: S) -> MethodRouter {
        (self.mount.0)(state)
    }
}
