//! A route as data: its method and path, who may call it, how often, what its body must be. The
//! router, the OpenAPI document and the access tests read the same list, and no handler can be
//! mounted without its access rule.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::answers::{Answer, Refusal, Told};
use super::auth::{self, Peer};
use super::envelope::Route;
use super::error::ApiError;
use super::extract::{PathId, Wire};
use super::limits::Unmetered;
use super::page::{self, List};
use super::resource;
use super::scope::Scope;
use super::validate::Schema;
use crate::app::App;
use crate::db::Record;
use crate::metrics::LeaseStep;

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

/// One route.
#[derive(Debug)]
pub struct Endpoint {
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
    pub told: &'static [Told],
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
    handler: MethodRouter<App>,
}

macro_rules! methods {
    ($($name:ident $method:ident $class:ident $success:ident),+ $(,)?) => {$(
        #[doc = concat!("A `", stringify!($method), "` route.")]
        pub fn $name<H, T>(path: &'static str, access: Access, handler: H) -> Self
        where
            H: Handler<T, App>,
            T: 'static,
        {
            Self::new(Method::$method, path, access, Class::$class, StatusCode::$success, axum::routing::$name(handler))
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

impl Endpoint {
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
        R: Record + Send + 'static,
        R::Id: PathId + 'static,
        O: From<R> + Serialize + JsonSchema + 'static,
    {
        Self::get(path, access, resource::one::<R, O>).answers::<O>()
    }

    /// `GET` of a page of rows, newest first.
    pub fn list<R, O, L>(path: &'static str, access: Access) -> Self
    where
        R: Record + Send + 'static,
        O: From<R> + Serialize + JsonSchema + Send + 'static,
        L: page::Limits,
    {
        Self::get(path, access, resource::list::<R, O, L>)
            .page::<L>()
            .answers::<List<O>>()
    }

    fn new(
        method: Method,
        path: &'static str,
        access: Access,
        class: Class,
        success: StatusCode,
        handler: MethodRouter<App>,
    ) -> Self {
        Self {
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
            handler,
        }
    }

    /// The name of the operation, and what it does in two or three sentences.
    #[must_use]
    pub const fn operation(mut self, id: &'static str, about: &'static str) -> Self {
        self.id = id;
        self.about = about;
        self
    }

    #[must_use]
    pub const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    #[must_use]
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        if matches!(class, Class::CallCreation | Class::Tts) {
            self.spends = true;
        }
        self
    }

    /// The table of its body.
    #[must_use]
    pub const fn body<T: Wire>(mut self) -> Self {
        self.body = Some(T::SCHEMA);
        self
    }

    /// The table of its query.
    #[must_use]
    pub const fn query<T: Wire>(mut self) -> Self {
        self.query = Some(T::SCHEMA);
        self
    }

    /// The bounds of its pages.
    #[must_use]
    pub const fn page<L: page::Limits>(mut self) -> Self {
        self.page = Some((L::DEFAULT, L::MAX, L::MIN));
        self
    }

    /// The status of success, where it is not the method's usual one.
    #[must_use]
    pub const fn returns(mut self, status: StatusCode) -> Self {
        self.success = status;
        self
    }

    /// The wire type of success.
    #[must_use]
    pub fn answers<T: JsonSchema>(mut self) -> Self {
        self.answer = Answer::json::<T>();
        self
    }

    /// The media types of a success that is not JSON.
    #[must_use]
    pub const fn sends(mut self, media: &'static [&'static str]) -> Self {
        self.answer = Answer::Media(media);
        self
    }

    /// A success without a body.
    #[must_use]
    pub const fn answers_nothing(mut self) -> Self {
        self.answer = Answer::Empty;
        self
    }

    /// A range of the body is sent where one is asked for.
    #[must_use]
    pub const fn in_ranges(mut self) -> Self {
        self.ranges = true;
        self
    }

    /// Headers of success.
    #[must_use]
    pub const fn tells(mut self, headers: &'static [Told]) -> Self {
        self.told = headers;
        self
    }

    /// One more way to refuse: status, slug, and when.
    #[must_use]
    pub fn refuses(mut self, status: StatusCode, code: &'static str, when: &'static str) -> Self {
        self.refusals.push(Refusal { status, code, when });
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
    pub const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    #[must_use]
    pub const fn cors(mut self) -> Self {
        self.cors = true;
        self
    }

    /// Spends money beside what its class says.
    #[must_use]
    pub const fn spends(mut self) -> Self {
        self.spends = true;
        self
    }

    /// The handler itself asks whether the account may spend, after what comes before 402.
    #[must_use]
    pub const fn bills_late(mut self) -> Self {
        self.bills_late = true;
        self
    }

    /// A request with an `Idempotency-Key` makes nothing twice.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    #[must_use]
    pub const fn at_root(mut self) -> Self {
        self.root = true;
        self
    }

    /// The path as mounted.
    pub fn full_path(&self) -> String {
        if self.root {
            self.path.to_owned()
        } else {
            format!("/api/v1{}", self.path)
        }
    }

    /// The handler behind its gate.
    pub fn into_route(self, app: &App) -> MethodRouter<App> {
        let rule = Rule {
            access: self.access,
            class: self.class,
            path: self.path,
            spends: self.spends && !self.bills_late,
        };
        self.handler
            .route_layer(middleware::from_fn_with_state((app.clone(), rule), gate))
    }
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    access: Access,
    class: Class,
    path: &'static str,
    spends: bool,
}

/// Who, how often, what for; then the handler.
async fn gate(
    State((app, rule)): State<(App, Rule)>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut told = None;
    let ip = Peer::ip(request.extensions());
    let counted = rule.access == Access::Signed && auth::has_credential(request.headers());
    let mut response = match admit(&app, rule, &mut request, &mut told).await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    // A signed token is judged by its handler: one that opens nothing is a failure like any other.
    let signed = matches!(rule.access, Access::SignedUrl | Access::Signed);
    if signed && !counted && response.status() == StatusCode::UNAUTHORIZED {
        response = auth::failed(&app, ip).await.into_response();
    }
    if let Some(decision) = told {
        decision.write(response.headers_mut());
    }
    response.extensions_mut().insert(Route(rule.path));
    response
}

async fn admit(
    app: &App,
    rule: Rule,
    request: &mut Request,
    told: &mut Option<super::limits::Decision>,
) -> Result<(), ApiError> {
    let ip = Peer::ip(request.extensions());
    let caller = match rule.access {
        Access::None | Access::SignedUrl => return Ok(()),
        Access::Admin => return admin(app, request.headers(), ip).await,
        Access::Signed if !auth::has_credential(request.headers()) => return Ok(()),
        // Counted before the body is read: who has no key holds no more memory than their share.
        Access::PublicAgent(_) if !auth::has_credential(request.headers()) => {
            let decision = app.limits.keyless_connect(ip, app.clock.moment()).await;
            return decision.refusal();
        }
        Access::Signed | Access::Scopes(_) | Access::AnyScope(_) => {
            auth::authenticate(app, request.headers(), ip, false).await?
        }
        Access::CallToken(_) | Access::PublicAgent(_) => {
            auth::authenticate(app, request.headers(), ip, true).await?
        }
    };
    match app
        .limits
        .request(caller.budget(), rule.class, app.clock.moment())
        .await
    {
        Ok(None) => {}
        Ok(Some(decision)) => {
            *told = Some(decision);
            decision.refusal()?;
        }
        Err(unmetered) => return Err(uncounted(app, rule.class, unmetered).await),
    }
    match rule.access {
        Access::Scopes(scopes) => scopes.iter().try_for_each(|scope| caller.require(*scope))?,
        Access::AnyScope(scopes) | Access::CallToken(scopes) | Access::PublicAgent(scopes)
            if !scopes.iter().any(|scope| caller.scopes.has(*scope)) =>
        {
            return Err(scopes
                .first()
                .map_or(ApiError::NotFound, |scope| ApiError::Scope(*scope)));
        }
        _ => {}
    }
    if rule.spends {
        crate::billing::require(app, caller.account).await?;
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

/// What a request is told that costs money and cannot be counted. A call would be refused by the lease
/// store in its own words, if that is away as well.
async fn uncounted(app: &App, class: Class, unmetered: Unmetered) -> ApiError {
    if class == Class::CallCreation
        && let Err(refusal) = app.admission.counts().await
    {
        app.metrics
            .refused(LeaseStep::Acquire, refusal.reason.name(), refusal.resource);
        return refusal.into();
    }
    unmetered.into()
}

async fn admin(app: &App, headers: &HeaderMap, ip: IpAddr) -> Result<(), ApiError> {
    let given = auth::credential(headers).unwrap_or("");
    match &app.config.admin_token {
        // Hashes have one length, so the comparison tells nothing about the token's.
        Some(token)
            if crate::secret::same(
                &crate::secret::sha256(token.expose().as_bytes()),
                &crate::secret::sha256(given.as_bytes()),
            ) =>
        {
            Ok(())
        }
        _ => Err(auth::failed(app, ip).await),
    }
}
