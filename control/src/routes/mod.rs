//! Every route there is: the resources' tables, one after the other.

mod document;
mod events;
mod figures;
mod gate;
mod health;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::{HeaderValue, Method, StatusCode, header};

use crate::app::App;
use crate::http::endpoint::Endpoint;
use crate::http::envelope::{allow_origin, envelope};
use crate::{
    accounts, agents, api_keys, billing, calls, changelog, conversations, models, phone_numbers,
    recordings, sessions, sip_trunks, suppressions, tts, usage, voices, webhooks,
};

pub use events::EVENTS;

/// All endpoint tables.
pub fn endpoints() -> Vec<Endpoint<App>> {
    [
        whole(health::endpoints()),
        whole(accounts::http::endpoints()),
        whole(api_keys::http::endpoints()),
        whole(agents::http::endpoints()),
        whole(models::http::endpoints()),
        whole(voices::http::endpoints()),
        whole(tts::http::endpoints()),
        whole(sessions::http::endpoints()),
        whole(sessions::between::endpoints()),
        whole(calls::http::endpoints()),
        whole(sessions::end::endpoints()),
        whole(calls::dial::http::endpoints()),
        whole(calls::bridge::telephone::traces::endpoints()),
        whole(conversations::http::endpoints()),
        whole(recordings::http::endpoints()),
        whole(webhooks::http::endpoints()),
        whole(changelog::http::endpoints()),
        whole(suppressions::http::endpoints()),
        whole(phone_numbers::http::endpoints()),
        whole(sip_trunks::http::endpoints()),
        whole(usage::http::endpoints()),
        whole(billing::http::endpoints()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The table of a resource that works on a part of the application.
fn whole<S>(endpoints: Vec<Endpoint<S>>) -> Vec<Endpoint<App>>
where
    S: FromRef<App> + Clone + Send + Sync + 'static,
{
    endpoints.into_iter().map(Endpoint::within).collect()
}

/// The application as a service.
pub fn router(app: &App) -> Router {
    let mut paths: BTreeMap<String, Mounted> = BTreeMap::new();
    let mut shared = HashSet::new();
    for endpoint in endpoints() {
        // Without a token nobody could call them: then they are not there.
        if endpoint.access == crate::http::Access::Admin && app.config.admin_token.is_none() {
            continue;
        }
        let mounted = paths.entry(endpoint.full_path()).or_default();
        mounted.methods.push(endpoint.method.clone());
        if endpoint.cors {
            mounted.cors = true;
            shared.insert(endpoint.full_path());
        }
        mounted.route = std::mem::take(&mut mounted.route).merge(gate::gated(endpoint, app));
    }
    paths
        .into_iter()
        .fold(Router::new(), |router, (path, mounted)| {
            router.route(&path, mounted.with_options())
        })
        .merge(crate::web::router())
        // Each extractor has its own bound.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app.metrics),
            envelope,
        ))
        // Outermost, so that a browser of another origin can read every answer, whoever made it.
        .layer(middleware::from_fn_with_state(Arc::new(shared), share))
}

/// Lets browsers of other origins read what the routes of these paths answer.
async fn share(
    State(shared): State<Arc<HashSet<String>>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let is_shared = path.is_some_and(|path| shared.contains(path.as_str()));
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    if let Some(origin) = origin.filter(|_| is_shared) {
        allow_origin(response.headers_mut(), origin);
    }
    response
}

#[derive(Default)]
struct Mounted {
    route: MethodRouter,
    methods: Vec<Method>,
    cors: bool,
}

impl Mounted {
    /// With an answer to `OPTIONS`: what is allowed here, and to browsers of other origins where
    /// that is wanted.
    fn with_options(self) -> MethodRouter {
        let mut names: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        if names.contains(&"GET") {
            names.push("HEAD");
        }
        names.push("OPTIONS");
        let allow =
            HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"));
        let cors = self.cors;
        self.route.options(move |request: Request| {
            let response = options(&request, allow, cors);
            async move { response }
        })
    }
}

fn options(request: &Request, allow: HeaderValue, cors: bool) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    if cors && request.headers().contains_key(header::ORIGIN) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, allow.clone());
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "Authorization, Content-Type, X-API-Key, Idempotency-Key, traceparent",
            ),
        );
        headers.insert(
            header::ACCESS_CONTROL_MAX_AGE,
            HeaderValue::from_static("600"),
        );
    }
    headers.insert(header::ALLOW, allow);
    response
}
