//! Routes of accounts; the administrator's.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::store::{self, Account};
use super::wire::{AccountOut, BlockAccount, CreateAccount, CreateAccountKey, PatchAccount};
use crate::api_keys;
use crate::api_keys::wire::ApiKeyOut;
use crate::http::page::{List, Page, UpTo};
use crate::http::scope::Scopes;
use crate::http::{Access, ApiError, Body, Class, Endpoint, Id};
use crate::ids::AccountId;
use crate::node::Node;
use crate::usage::guard;

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    let admin = |endpoint: Endpoint<Node>| endpoint.class(Class::Exempt);
    vec![
        admin(Endpoint::post("/admin/accounts", Access::Admin, create))
            .body::<CreateAccount>()
            .answers::<AccountOut>()
            .refuses(
                StatusCode::CONFLICT,
                "name_taken",
                "an account of this name exists",
            )
            .summary("Make an account")
            .operation(
                "createAccount",
                "Creates an account without keys and without credit. Its name must be the only \
                 one of its kind (409 `name_taken`); `createAccountApiKey` makes its first key.",
            ),
        admin(Endpoint::get("/admin/accounts", Access::Admin, list))
            .page::<UpTo<200>>()
            .answers::<List<AccountOut>>()
            .summary("List accounts")
            .operation(
                "listAccounts",
                "Lists all accounts of the server with their balances and whether they may \
                 spend. Blocked ones are among them.",
            ),
        admin(Endpoint::get(
            "/admin/accounts/{account_id}",
            Access::Admin,
            get,
        ))
        .summary("One account")
        .operation(
            "getAccount",
            "Answers an account with its balance. It tells whether the account may spend, and if \
             not, since when and why it is blocked.",
        )
        .answers::<AccountOut>(),
        admin(Endpoint::patch(
            "/admin/accounts/{account_id}",
            Access::Admin,
            patch,
        ))
        .body::<PatchAccount>()
        .answers::<AccountOut>()
        .refuses(
            StatusCode::CONFLICT,
            "name_taken",
            "an account of this name exists",
        )
        .summary("Rename an account")
        .operation(
            "updateAccount",
            "Gives an account another name and changes nothing else. A name that another account \
             has is 409 `name_taken`.",
        ),
        admin(Endpoint::post(
            "/admin/accounts/{account_id}/block",
            Access::Admin,
            block,
        ))
        .body::<BlockAccount>()
        .answers::<AccountOut>()
        .returns(StatusCode::OK)
        .summary("Stop an account from spending; its live calls end")
        .operation(
            "blockAccount",
            "Stops an account from spending: its live calls end, and what costs money is 402 \
             `billing.hard_block` from here on. Other nodes end their calls within moments. \
             Reading still works, and `unblockAccount` lets the account go on.",
        ),
        admin(Endpoint::post(
            "/admin/accounts/{account_id}/unblock",
            Access::Admin,
            unblock,
        ))
        .returns(StatusCode::OK)
        .summary("Let a blocked account go on")
        .operation(
            "unblockAccount",
            "Lets an account spend again that the operator blocked. One that has run out of \
             prepaid credit needs a billing adjustment besides.",
        )
        .answers::<AccountOut>(),
        admin(Endpoint::post(
            "/admin/accounts/{account_id}/api-keys",
            Access::Admin,
            create_key,
        ))
        .body::<CreateAccountKey>()
        .answers::<ApiKeyOut>()
        .summary("Make a key of an account; its string is shown once")
        .operation(
            "createAccountApiKey",
            "Creates an API key for any account, with any scopes; so a new account gets its \
             first. The answer holds the whole string, which is shown here and never again.",
        ),
    ]
}

async fn create(
    State(app): State<Node>,
    Body(body): Body<CreateAccount>,
) -> Result<impl IntoResponse, ApiError> {
    let account = store::create(&app.db, &app.clock, &body.name)
        .await?
        .ok_or_else(taken)?;
    Ok((StatusCode::CREATED, out(&app, account)))
}

async fn list(
    State(app): State<Node>,
    page: Page<UpTo<200>>,
) -> Result<impl IntoResponse, ApiError> {
    let (accounts, total) = store::list(&app.db, page.limit, page.offset).await?;
    let mode = app.config.billing.mode;
    let accounts = accounts
        .into_iter()
        .map(|account| AccountOut::new(account, mode))
        .collect();
    Ok(List::new(accounts, total, page))
}

async fn get(
    State(app): State<Node>,
    Id(id): Id<AccountId>,
) -> Result<impl IntoResponse, ApiError> {
    Ok(out(&app, found(&app, id).await?))
}

async fn patch(
    State(app): State<Node>,
    Id(id): Id<AccountId>,
    Body(body): Body<PatchAccount>,
) -> Result<impl IntoResponse, ApiError> {
    if let Some(name) = body.name {
        let renamed = store::rename(&app.db, id, &name, app.clock.now()).await?;
        if !renamed.ok_or_else(taken)? {
            return Err(ApiError::NotFound);
        }
    }
    Ok(out(&app, found(&app, id).await?))
}

async fn block(
    State(app): State<Node>,
    Id(id): Id<AccountId>,
    Body(body): Body<BlockAccount>,
) -> Result<impl IntoResponse, ApiError> {
    let reason = body.reason.as_deref();
    if !store::set_blocked(&app.db, id, true, reason, app.clock.now()).await? {
        return Err(ApiError::NotFound);
    }
    // Other nodes, and calls that are just being placed, learn it from their guard.
    guard::sweep(&app).await?;
    Ok(out(&app, found(&app, id).await?))
}

async fn unblock(
    State(app): State<Node>,
    Id(id): Id<AccountId>,
) -> Result<impl IntoResponse, ApiError> {
    if !store::set_blocked(&app.db, id, false, None, app.clock.now()).await? {
        return Err(ApiError::NotFound);
    }
    Ok(out(&app, found(&app, id).await?))
}

async fn create_key(
    State(app): State<Node>,
    Id(id): Id<AccountId>,
    Body(body): Body<CreateAccountKey>,
) -> Result<impl IntoResponse, ApiError> {
    let account = found(&app, id).await?;
    let scopes = match body.scopes {
        Some(scopes) => scopes.into_iter().collect(),
        None => Scopes::default_bundle(),
    };
    let created =
        api_keys::create(&app.db, &app.clock, account.id, &body.name, scopes, None).await?;
    let out = ApiKeyOut::new(created.record, app.clock.now()).with_key(&created.key);
    Ok((StatusCode::CREATED, Json(out)))
}

async fn found(app: &Node, id: AccountId) -> Result<Account, ApiError> {
    store::get(&app.db, id).await?.ok_or(ApiError::NotFound)
}

fn out(app: &Node, account: Account) -> Json<AccountOut> {
    Json(AccountOut::new(account, app.config.billing.mode))
}

fn taken() -> ApiError {
    ApiError::conflict("name_taken", "An account of this name exists")
}
