//! Routes of conversations (document 2, Conversations).

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, Method, Response, StatusCode};

use super::wire::{
    AudioLink, AudioQuery, ConversationRecord, Diagnostics, Found, Rate, Revoke, Revoked,
    SearchQuery, Transcript,
};
use super::{rules, store};
use crate::calls;
use crate::calls::store::Filter;
use crate::http::page::ConversationsPage;
use crate::http::validate::{FieldError, Loc};
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Query, Scope};
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::recordings::audio::{FILE, UNREADABLE};
use crate::recordings::store::Status;
use crate::recordings::{self, token};
use crate::secret::Purpose;

/// The routes, in the order of the document.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    let read = Access::Scopes(&[Scope::ConversationsRead]);
    vec![
        Endpoint::get("/conversations", read, list)
            .summary("Conversations, newest first")
            .operation(
                "listConversations",
                "Lists the account's conversations over every channel, live ones among them. A \
                 conversation has the id of its call and of its session.",
            )
            .page::<ConversationsPage>()
            .answers::<List<ConversationRecord>>(),
        Endpoint::get("/conversations/search", read, search)
            .summary("Conversations in which something was said, newest first")
            .operation(
                "searchConversations",
                "Finds conversations in which all of the given words were said, by either side. \
                 Each is answered with up to three of the turns that hold them. One to eight \
                 words can be given; more are 422.",
            )
            .query::<SearchQuery>()
            .page::<ConversationsPage>()
            .answers::<List<Found>>(),
        Endpoint::get("/conversations/{conversation_id}", read, get)
            .summary("One conversation")
            .operation(
                "getConversation",
                "Answers one conversation: with whom, when, how it ended, and whether there is a \
                 transcript and a recording. What was said is in `getTranscript`.",
            )
            .answers::<ConversationRecord>(),
        Endpoint::get(
            "/conversations/{conversation_id}/transcript",
            read,
            transcript,
        )
        .summary("What was said, turn by turn")
        .operation(
            "getTranscript",
            "Answers the turns of a conversation in order, with their places on the recording. \
             Turns of the agent tell how long the caller waited for them, and which tools were \
             called. While the conversation is live its transcript grows.",
        )
        .answers::<Transcript>(),
        Endpoint::get(
            "/conversations/{conversation_id}/diagnostics",
            read,
            diagnostics,
        )
        .summary("Where the time went, how the network did, and what went wrong")
        .operation(
            "getConversationDiagnostics",
            "Tells why a conversation was as it was: the time of each answer split by who took \
             it, loss and jitter of the network, and the faults of providers and tools. Start \
             here when a call sounded slow or broke off.",
        )
        .answers::<Diagnostics>(),
        Endpoint::get("/conversations/{conversation_id}/audio", read, link)
            .summary("A signed URL of the WAV, good for an hour without a key")
            .operation(
                "getConversationAudioUrl",
                "Signs a URL with which anybody can hear the conversation for an hour, without a \
                 key; a player can use it as it is. Each request makes a new one, and \
                 `revokeAudioToken` takes one back. Without a recording that is ready it is 404.",
            )
            .answers::<AudioLink>(),
        Endpoint::get(
            "/conversations/{conversation_id}/audio.wav",
            Access::Signed,
            audio,
        )
        .summary("The WAV, whole or a range of it; by key or by signed token")
        .operation(
            "downloadConversationAudio",
            "Sends the recording of a conversation, the caller on the left channel and the agent \
             on the right. It takes a key, or the signed token of `getConversationAudioUrl`. \
             `Range` gets a part of it, and `If-None-Match` nothing where nothing has changed.",
        )
        .query::<AudioQuery>()
        .sends(&["audio/wav"])
        .in_ranges()
        .tells(FILE)
        .refuses(StatusCode::BAD_GATEWAY, "storage_error", UNREADABLE),
        Endpoint::post(
            "/conversations/{conversation_id}/audio/revoke",
            read,
            revoke,
        )
        .summary("Take a signed audio token back at once")
        .operation(
            "revokeAudioToken",
            "Takes a signed audio token back: its URL is 401 from the next request on. A token \
             that was never good, or has run out, is answered alike.",
        )
        .body::<Revoke>()
        .answers::<Revoked>()
        .returns(StatusCode::OK),
        Endpoint::post("/conversations/{conversation_id}/feedback", read, feedback)
            .summary("Rate a conversation")
            .operation(
                "rateConversation",
                "Keeps what somebody thought of a conversation, from 1 to 5, with a comment. \
                 There is one rating a conversation: a new one replaces the last.",
            )
            .body::<Rate>()
            .answers::<ConversationRecord>()
            .returns(StatusCode::OK),
    ]
}

async fn list(
    State(app): State<Node>,
    caller: Caller,
    page: Page<ConversationsPage>,
) -> Result<impl IntoResponse, ApiError> {
    let all = Filter::default();
    let (calls, total) =
        calls::store::list(&app.db, caller.account, &all, page.limit, page.offset).await?;
    let base = &app.config.server.public_url;
    Ok(List::new(
        calls
            .into_iter()
            .map(|call| ConversationRecord::new(call, base))
            .collect(),
        total,
        page,
    ))
}

async fn search(
    State(app): State<Node>,
    caller: Caller,
    Query(query): Query<SearchQuery>,
    page: Page<ConversationsPage>,
) -> Result<impl IntoResponse, ApiError> {
    /// Turns that are shown of each conversation.
    const SHOWN: u32 = 3;
    let SearchQuery {
        q,
        agent_id,
        from,
        to,
    } = query;
    let said = rules::terms(&q).ok_or_else(|| {
        ApiError::Fields(vec![FieldError {
            loc: vec![Loc::from("query"), Loc::from("q")],
            msg: format!("Give one to {} words", rules::MAX_TERMS),
            kind: "value_error",
        }])
    })?;
    let filter = Filter {
        agent: agent_id,
        from,
        to,
        said,
        ..Filter::default()
    };
    let (calls, total) =
        calls::store::list(&app.db, caller.account, &filter, page.limit, page.offset).await?;
    let base = &app.config.server.public_url;
    let mut items = Vec::with_capacity(calls.len());
    for call in calls {
        let (id, said) = (call.id, &filter.said);
        let turns = calls::store::turns_with(&app.db, caller.account, id, said, SHOWN).await?;
        items.push(Found {
            matches: turns.iter().map(rules::shown).collect(),
            conversation: ConversationRecord::new(call, base),
        });
    }
    Ok(List::new(items, total, page))
}

async fn get(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    record(&app, caller.account, id).await
}

async fn transcript(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    exists(&app, caller.account, id).await?;
    let turns = calls::store::turns(&app.db, caller.account, id).await?;
    Ok(Json(Transcript {
        conversation_id: id,
        turns,
    }))
}

async fn diagnostics(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    let call = calls::store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let faults = store::faults(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let turns = calls::store::turns(&app.db, caller.account, id).await?;
    Ok(Json(Diagnostics::of(call, faults, &turns)))
}

async fn link(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
) -> Result<impl IntoResponse, ApiError> {
    let recording = recordings::store::of_call(&app.db, caller.account, id)
        .await?
        .filter(|recording| recording.status == Status::Ready && recording.size_bytes > 0)
        .ok_or(ApiError::NotFound)?;
    let now = app.clock.now();
    let signed = token::fresh(now);
    let mut tx = app.db.begin_write().await?;
    recordings::store::insert_token(&mut tx, caller.account, id, signed, now).await?;
    tx.commit().await?;
    let text = token::mint(&app.master_key, Purpose::AudioToken, id.0, signed);
    Ok(Json(AudioLink {
        audio_url: token::audio_url(&app.config, id, &text),
        token: text,
        expires_at: signed.expires_at,
        expires_in: token::LIFETIME_SECONDS,
        content_type: "audio/wav",
        size_bytes: recording.size_bytes,
    }))
}

async fn audio(
    State(app): State<Node>,
    caller: Option<Caller>,
    Id(id): Id<CallId>,
    Query(query): Query<AudioQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Bytes>, ApiError> {
    let account = match (caller, query.token) {
        (Some(caller), _) => {
            caller.require(Scope::ConversationsRead)?;
            caller.account
        }
        (None, Some(text)) => holder(&app, id, &text).await?,
        (None, None) => return Err(ApiError::Unauthorized),
    };
    let recording = recordings::store::of_call(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    recordings::audio::serve(&app, &recording, &method, &headers).await
}

async fn revoke(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
    Body(body): Body<Revoke>,
) -> Result<impl IntoResponse, ApiError> {
    exists(&app, caller.account, id).await?;
    // A token that was never good is as good as revoked.
    if let Some(signed) = token::open(&app.master_key, Purpose::AudioToken, id.0, &body.token) {
        recordings::store::revoke_token(&app.db, caller.account, id, signed, app.clock.now())
            .await?;
    }
    Ok(Json(Revoked { revoked: true }))
}

async fn feedback(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<CallId>,
    Body(body): Body<Rate>,
) -> Result<impl IntoResponse, ApiError> {
    let comment = body.comment.as_deref();
    if !store::rate(
        &app.db,
        caller.account,
        id,
        body.rating,
        comment,
        app.clock.now(),
    )
    .await?
    {
        return Err(ApiError::NotFound);
    }
    record(&app, caller.account, id).await
}

async fn record(
    app: &Node,
    account: AccountId,
    id: CallId,
) -> Result<Json<ConversationRecord>, ApiError> {
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Json(ConversationRecord::new(
        call,
        &app.config.server.public_url,
    )))
}

async fn exists(app: &Node, account: AccountId, id: CallId) -> Result<(), ApiError> {
    calls::store::get(&app.db, account, id)
        .await?
        .map(drop)
        .ok_or(ApiError::NotFound)
}

/// The account that a signed token speaks for. Anything but a token that was made here for this
/// conversation, has not run out and stands unrevoked in the database is no credential.
async fn holder(app: &Node, id: CallId, text: &str) -> Result<AccountId, ApiError> {
    let signed = token::open(&app.master_key, Purpose::AudioToken, id.0, text)
        .filter(|signed| signed.expires_at > app.clock.now())
        .ok_or(ApiError::Unauthorized)?;
    recordings::store::token_account(&app.db, id, signed)
        .await?
        .ok_or(ApiError::Unauthorized)
}
