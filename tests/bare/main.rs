//! Two routes of the API with nothing around them: axum, sqlx, and the queries that the real ones make. What
//! a request costs the real program is measured against this one (`tests/peers/calls/cost.rs`).
//!
//! `bare <database file>` listens on a free port of the loopback and prints its address.

#![allow(clippy::print_stdout, reason = "the address is what the starter reads")]

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};

#[derive(Clone)]
struct Pools {
    readers: SqlitePool,
    writer: SqlitePool,
}

type Answer = Result<Json<Value>, StatusCode>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("which database?")?;
    let options = SqliteConnectOptions::new()
        .filename(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true);
    let pool = |most| {
        SqlitePoolOptions::new()
            .max_connections(most)
            .test_before_acquire(false)
    };
    let pools = Pools {
        writer: pool(1).connect_with(options.clone()).await?,
        readers: pool(8).connect_with(options.read_only(true)).await?,
    };
    let router = Router::new()
        .route("/api/v1/agents/{id}", get(agent))
        .route("/api/v1/conversation/connect", post(connect))
        .with_state(pools);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

fn failed(_: sqlx::Error) -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

/// The account of the key.
async fn account(pools: &Pools, headers: &HeaderMap) -> Result<String, StatusCode> {
    let key = headers.get("x-api-key").and_then(|key| key.to_str().ok());
    let public = key.and_then(|key| key.split('_').nth(2));
    let row = sqlx::query(
        "select k.*, s.hash, s.valid_until from api_key_secrets s join api_keys k on k.id = s.key_id
         where s.public_id = $1",
    )
    .bind(public.ok_or(StatusCode::UNAUTHORIZED)?)
    .fetch_optional(&pools.readers)
    .await
    .map_err(failed)?;
    row.ok_or(StatusCode::UNAUTHORIZED)?
        .try_get("account_id")
        .map_err(failed)
}

async fn one_agent(pools: &Pools, account: &str, id: &str) -> Result<SqliteRow, StatusCode> {
    sqlx::query(
        "select id, status, status_reason, settings, version, created_at, updated_at from agents
         where account_id = $1 and id = $2",
    )
    .bind(account)
    .bind(id)
    .fetch_optional(&pools.readers)
    .await
    .map_err(failed)?
    .ok_or(StatusCode::NOT_FOUND)
}

async fn agent(State(pools): State<Pools>, headers: HeaderMap, Path(id): Path<String>) -> Answer {
    let account = account(&pools, &headers).await?;
    let row = one_agent(&pools, &account, &id).await?;
    let numbers: Vec<String> = sqlx::query_scalar(
        "select id from phone_numbers where account_id = $1 and agent_id = $2
            and released_at is null order by created_at, id",
    )
    .bind(&account)
    .bind(&id)
    .fetch_all(&pools.readers)
    .await
    .map_err(failed)?;
    let settings: String = row.try_get("settings").map_err(failed)?;
    let mut body: Value = serde_json::from_str(&settings).unwrap_or_default();
    body["id"] = json!(id);
    body["phone_number_ids"] = json!(numbers);
    for name in ["created_at", "updated_at"] {
        body[name] = json!(row.try_get::<i64, _>(name).map_err(failed)?);
    }
    body["status"] = json!(row.try_get::<String, _>("status").map_err(failed)?);
    Ok(Json(body))
}

async fn connect(
    State(pools): State<Pools>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Answer {
    let account = account(&pools, &headers).await?;
    sqlx::query("select balance_microcents, blocked_at from accounts where id = $1")
        .bind(&account)
        .fetch_one(&pools.readers)
        .await
        .map_err(failed)?;
    let agent = body["agent_id"].as_str().unwrap_or_default().to_owned();
    one_agent(&pools, &account, &agent).await?;
    let (id, token) = (
        uuid::Uuid::new_v4().to_string(),
        uuid::Uuid::new_v4().to_string(),
    );
    let now = 1_767_323_045_000_006_i64;
    let mut tx = pools
        .writer
        .begin_with("begin immediate")
        .await
        .map_err(failed)?;
    sqlx::query("select id from agents where account_id = $1 and id = $2")
        .bind(&account)
        .bind(&agent)
        .fetch_one(&mut *tx)
        .await
        .map_err(failed)?;
    sqlx::query(
        "insert into calls (id, account_id, agent_id, agent_name, status, conversation_status, direction,
            channel, language, from_number, to_number, dynamic_variables, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)",
    )
    .bind(&id)
    .bind(&account)
    .bind(&agent)
    .bind("Test")
    .bind("initiated")
    .bind("active")
    .bind("inbound")
    .bind("websocket")
    .bind("english")
    .bind(None::<String>)
    .bind(None::<String>)
    .bind("{}")
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    sqlx::query(
        "insert into sessions (id, account_id, transport, protocol, audio_format, token_hash, expires_at, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&id)
    .bind(&account)
    .bind("websocket")
    .bind("native")
    .bind("pcm_16000")
    .bind(&token)
    .bind(now + 60_000_000)
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(Json(json!({
        "session_id": id, "transport": "websocket", "protocol": "native",
        "ws_url": format!("ws://127.0.0.1/ws/v1/conversation/{id}?token={token}"),
        "audio_format": "pcm_16000", "direction": "inbound", "expires_at": now,
    })))
}
