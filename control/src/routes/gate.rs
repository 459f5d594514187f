//! The gate of a route: who calls, how often, with which scope, with what credit; then the handler.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::{HeaderMap, StatusCode};

use crate::api_keys;
use crate::app::App;
use crate::billing;
use crate::credential::Presented;
use crate::http::auth::{self, ClientAddress, credential};
use crate::http::envelope::Route;
use crate::http::limits::{Decision, Unmetered};
use crate::http::{Access, ApiError, Caller, Class, Endpoint};
use crate::metrics::LeaseStep;
use crate::node::Node;
use crate::secret::{same, sha256};
use crate::sessions::call_token;

/// The handler of a route behind its gate.
pub(super) fn gated(endpoint: Endpoint<App>, app: &App) -> MethodRouter {
    let rule = Rule {
        access: endpoint.access,
        class: endpoint.class,
        path: endpoint.path,
        spends: endpoint.spends && !endpoint.bills_late,
    };
    let state = (app.node.clone(), rule);
    endpoint
        .into_handler(app.clone())
        .route_layer(middleware::from_fn_with_state(state, gate))
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
    State((app, rule)): State<(Node, Rule)>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut told = None;
    let ip = ClientAddress::ip(request.extensions());
    let counted = rule.access == Access::Signed && auth::has_credential(request.headers());
    let mut response = match admit(&app, rule, &mut request, &mut told).await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    // A signed token is judged by its handler: one that opens nothing is a failure like any other.
    let signed = matches!(rule.access, Access::SignedUrl | Access::Signed);
    if signed && !counted && response.status() == StatusCode::UNAUTHORIZED {
        response = failed(&app, ip).await.into_response();
    }
    if let Some(decision) = told {
        decision.write(response.headers_mut());
    }
    response.extensions_mut().insert(Route(rule.path));
    response
}

async fn admit(
    app: &Node,
    rule: Rule,
    request: &mut Request,
    told: &mut Option<Decision>,
) -> Result<(), ApiError> {
    let ip = ClientAddress::ip(request.extensions());
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
            authenticate(app, request.headers(), ip, false).await?
        }
        Access::CallToken(_) | Access::PublicAgent(_) => {
            authenticate(app, request.headers(), ip, true).await?
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
        billing::require(app, caller.account).await?;
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

/// What a request is told that costs money and cannot be counted. A call would be refused by the lease
/// store in its own words, if that is away as well.
async fn uncounted(app: &Node, class: Class, unmetered: Unmetered) -> ApiError {
    if class == Class::CallCreation
        && let Err(refusal) = app.admission.counts().await
    {
        app.metrics
            .refused(LeaseStep::Acquire, refusal.reason.name(), refusal.resource);
        return refusal.into();
    }
    unmetered.into()
}

async fn admin(app: &Node, headers: &HeaderMap, ip: IpAddr) -> Result<(), ApiError> {
    let given = credential(headers).unwrap_or("");
    match &app.config.admin_token {
        // Hashes have one length, so the comparison tells nothing about the token's.
        Some(token)
            if same(
                &sha256(token.expose().as_bytes()),
                &sha256(given.as_bytes()),
            ) =>
        {
            Ok(())
        }
        _ => Err(failed(app, ip).await),
    }
}

/// The caller behind these headers. `tokens`: a call token will do. A failure costs the address one of
/// its failures; when those are used up the answer is 429.
async fn authenticate(
    app: &Node,
    headers: &HeaderMap,
    ip: IpAddr,
    tokens: bool,
) -> Result<Caller, ApiError> {
    let text = credential(headers);
    let tokens = tokens && !headers.contains_key("x-api-key");
    let caller = match (text.and_then(|text| presented(app, text)), text) {
        (Some(presented), _) => {
            api_keys::store::authenticate(&app.db, &presented, app.clock.now()).await?
        }
        (None, Some(text)) if tokens => call_token::caller(app, text).await?,
        (None, _) => None,
    };
    match caller {
        Some(caller) => Ok(caller),
        None => Err(failed(app, ip).await),
    }
}

/// A credential that opens nothing: 401, and 429 once the address has used up its failures.
async fn failed(app: &Node, ip: IpAddr) -> ApiError {
    let failures = app.limits.failed_auth(ip, app.clock.moment()).await;
    failures.refusal().err().unwrap_or(ApiError::Unauthorized)
}

/// A string that may be a key: by its checksum, or because it is the one that the operator chose.
fn presented(app: &Node, text: &str) -> Option<Presented> {
    Presented::parse(text).or_else(|| {
        let chosen = app.config.bootstrap_api_key.as_ref()?.expose();
        let same = same(&sha256(text.as_bytes()), &sha256(chosen.as_bytes()));
        same.then(|| Presented::chosen(text)).flatten()
    })
}
