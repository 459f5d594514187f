//! Routes of voices (document 2, Voices).

use axum::body::Body as Bytes;
use axum::extract::State;
use axum::{Json, response::IntoResponse};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE,
};
use http::{HeaderMap, Response, StatusCode};

use super::{
    catalogue::{Voice, find, offered},
    countries::COUNTRIES,
    preview,
    wire::{Country, PreviewQuery, TagVocabulary, VoiceRecord, VoicesQuery},
};
use crate::{
    http::{
        Access, ApiError, Body, Caller, Class, Endpoint, Id, List, Page, Query, Scope,
        extract::PathId,
        page::{Items, VoicesPage},
        range::{self, Selected},
        validate::FieldError,
    },
    node::Node,
    tts::{
        self, Tts,
        http::{TOLD, speaks},
        rules as speech,
        wire::Preview,
    },
};

/// The routes, in the order of the document.
pub fn endpoints() -> Vec<Endpoint<Tts>> {
    const READ: Access = Access::Scopes(&[Scope::VoicesRead]);
    vec![
        Endpoint::get("/voices", READ, list)
            .summary("Voices, newest first")
            .operation(
                "listVoices",
                "Lists the voices that agents can have on this server. The filters go together; \
                 each voice comes with a URL of a sample.",
            )
            .query::<VoicesQuery>()
            .page::<VoicesPage>()
            .answers::<List<VoiceRecord>>(),
        Endpoint::get("/voices/countries", READ, countries)
            .summary("Countries that a voice can be of, by code")
            .operation(
                "listVoiceCountries",
                "Lists the countries that `listVoices` can be filtered by. The set is the same \
                 on every server.",
            )
            .answers::<Items<Country>>(),
        Endpoint::get("/voices/tag-vocabulary", READ, tag_vocabulary)
            .summary("Tags by category")
            .operation(
                "listVoiceTags",
                "Lists the tags that describe voices, by category. Each is a value of `tag` in \
                 `listVoices`.",
            )
            .answers::<TagVocabulary>(),
        Endpoint::get("/voices/{voice_id}", READ, get)
            .summary("One voice, by id or legacy voice_key")
            .operation(
                "getVoice",
                "Answers one voice, named by its id or by its legacy key. The URL of its sample \
                 lasts for at least an hour.",
            )
            .answers::<VoiceRecord>(),
        speaks(Endpoint::post(
            "/voices/preview",
            Access::Scopes(&[Scope::TtsUse]),
            speak_preview,
        ))
        .summary("Hear a voice: a whole WAV of a short text")
        .operation(
            "previewVoice",
            "Speaks a short text with a voice, a sample sentence where none is given, and sends \
             it as a WAV. Every character counts as usage.",
        )
        .body::<Preview>()
        .class(Class::Tts)
        .returns(StatusCode::OK)
        .sends(&["audio/wav"])
        .tells(TOLD)
        .refuses(StatusCode::NOT_FOUND, "not_found", "there is no such voice")
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "word_too_long",
            "a single word is too long to speak",
        ),
        speaks(Endpoint::get(
            "/voices/{voice_id}/preview.wav",
            Access::SignedUrl,
            play_preview,
        ))
        .summary("A voice's sample sentence; the URL itself is the credential")
        .operation(
            "downloadVoicePreview",
            "Sends a voice's sample sentence as a WAV. The URL is the `preview_url` of a voice \
             and needs no key; 410 `url_expired` asks for a fresh one. It costs nothing.",
        )
        .query::<PreviewQuery>()
        .sends(&["audio/wav"])
        .in_ranges()
        .refuses(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this is no URL that was given out",
        )
        .refuses(
            StatusCode::GONE,
            "url_expired",
            "the URL has run out; ask for a fresh one",
        ),
    ]
}

async fn list(
    State(app): State<Node>,
    Query(query): Query<VoicesQuery>,
    page: Page<VoicesPage>,
) -> impl IntoResponse {
    let filter = query.into_filter();
    let found: Vec<_> = offered().filter(|voice| filter.admits(voice)).collect();
    let total = found.len() as u64;
    let items = found
        .into_iter()
        .skip(page.offset as usize)
        .take(page.limit as usize)
        .map(|voice| record(&app, voice))
        .collect();
    Json(List::new(items, total, page))
}

async fn countries() -> impl IntoResponse {
    let items = COUNTRIES.map(|(code, name)| Country { code, name });
    Items {
        items: items.to_vec(),
    }
}

async fn tag_vocabulary() -> impl IntoResponse {
    Json(TagVocabulary)
}

/// A voice in the path: an id or a legacy key, so nothing is wrong in form.
struct VoiceRef(String);

impl PathId for VoiceRef {
    const PARAMS: usize = 1;

    fn read(texts: &[(&str, &str)]) -> Result<Self, FieldError> {
        Ok(Self(
            texts
                .first()
                .map(|(_, text)| (*text).to_owned())
                .unwrap_or_default(),
        ))
    }
}

async fn get(
    State(app): State<Node>,
    Id(VoiceRef(voice)): Id<VoiceRef>,
) -> Result<impl IntoResponse, ApiError> {
    find(&voice)
        .map(|voice| Json(record(&app, voice)))
        .ok_or(ApiError::NotFound)
}

async fn speak_preview(
    State(app): State<Tts>,
    caller: Caller,
    Body(body): Body<Preview>,
) -> Result<impl IntoResponse, ApiError> {
    let Preview { voice_id, text } = body;
    let voice = find(&voice_id).ok_or(ApiError::NotFound)?;
    let text = text.as_deref();
    let text = text.unwrap_or_else(|| speech::sample_sentence(voice.language));
    let characters = speech::check(text).map_err(|why| tts::refused(why, speech::MAX_PREVIEW))?;
    let wav = tts::whole_for(&app, caller.account, voice, text, characters).await?;
    Response::builder()
        .header(CONTENT_TYPE, "audio/wav")
        .header("x-sample-rate", speech::RATE)
        .header("x-voice-id", voice.id.to_string())
        .header("x-character-count", characters)
        .header(CACHE_CONTROL, "no-store")
        .body(Bytes::from(wav))
        .map_err(ApiError::internal)
}

async fn play_preview(
    State(app): State<Tts>,
    Id(VoiceRef(voice)): Id<VoiceRef>,
    Query(query): Query<PreviewQuery>,
    headers: HeaderMap,
) -> Result<Response<Bytes>, ApiError> {
    let voice = find(&voice).ok_or(ApiError::Unauthorized)?;
    let token = query.token.as_deref().unwrap_or_default();
    let expires_at = preview::open(&app.master_key, voice, token).ok_or(ApiError::Unauthorized)?;
    if expires_at <= app.clock.now() {
        return Err(ApiError::Gone {
            code: "url_expired",
            message: "This URL has expired: ask for a fresh one".to_owned(),
        });
    }
    let wav = tts::previews(&app, voice).await?;
    let length = wav.len() as u64;
    let wanted = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let answer = Response::builder()
        .header(ACCEPT_RANGES, "bytes")
        .header(CONTENT_TYPE, "audio/wav")
        .header(CACHE_CONTROL, "private, max-age=3600")
        .header("x-content-type-options", "nosniff");
    let (answer, part) = match range::select(wanted, length) {
        Selected::Whole => (answer, wav),
        Selected::Unsatisfiable => return Err(ApiError::RangeNotSatisfiable { size: length }),
        Selected::Part { first, last } => (
            answer
                .status(StatusCode::PARTIAL_CONTENT)
                .header(CONTENT_RANGE, format!("bytes {first}-{last}/{length}")),
            wav.slice(first as usize..=last as usize),
        ),
    };
    answer
        .header(CONTENT_LENGTH, part.len())
        .body(Bytes::from(part))
        .map_err(ApiError::internal)
}

fn record(app: &Node, voice: &Voice) -> VoiceRecord {
    let token = preview::sign(&app.master_key, voice, app.clock.now());
    let base = &app.config.server.public_url;
    VoiceRecord::new(
        *voice,
        format!(
            "{base}/api/v1/voices/{}/preview.wav?token={token}",
            voice.id
        ),
    )
}
