//! Routes of speech synthesis (document 2, Speech synthesis).

use axum::body::Body as Bytes;
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::response::Builder;

use super::Tts;
use super::rules::{self, MAX_TEXT, RATE};
use super::service::{self, Pace};
use super::wire::Speak;
use crate::catalogue::voices::Voice;
use crate::http::answers::HeaderDoc;
use crate::http::endpoint::Class;
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Scope};
use crate::ids::AccountId;
use crate::usage::{self, Resource};

/// The routes.
pub fn endpoints() -> Vec<Endpoint<Tts>> {
    vec![
        speaks(Endpoint::post(
            "/tts",
            Access::Scopes(&[Scope::TtsUse]),
            speak,
        ))
        .summary("Speak a text: a WAV, or raw samples as they are made")
        .operation(
            "synthesizeSpeech",
            "Speaks a text of up to 650 characters with one of the voices and sends the sound. \
             With `streaming` raw 16-bit samples are sent as they are made; a fault in the \
             middle then breaks the connection. Every character counts as usage, and 503 asks to \
             come back when the voices are busy.",
        )
        .body::<Speak>()
        .class(Class::Tts)
        .returns(StatusCode::OK)
        .sends(&["audio/wav", "audio/pcm"])
        .tells(TOLD)
        .refuses(StatusCode::NOT_FOUND, "not_found", "there is no such voice")
        .refuses(
            StatusCode::PAYLOAD_TOO_LARGE,
            "text_too_long",
            "the text has more than 650 characters",
        )
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "word_too_long",
            "a single word is too long to speak",
        ),
    ]
}

/// What is told with a speech.
pub const TOLD: &[HeaderDoc] = &[
    HeaderDoc {
        name: "X-Sample-Rate",
        kind: "integer",
        doc: "Hz; mono, 16 bits.",
    },
    HeaderDoc {
        name: "X-Voice-Id",
        kind: "string",
        doc: "The id of the voice that speaks.",
    },
    HeaderDoc {
        name: "X-Character-Count",
        kind: "integer",
        doc: "Characters of the text; each counts.",
    },
];

/// How every route that speaks may refuse.
pub fn speaks(endpoint: Endpoint<Tts>) -> Endpoint<Tts> {
    endpoint
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "voice_unavailable",
            "nothing here can speak with this voice",
        )
        .refuses(
            StatusCode::BAD_GATEWAY,
            "provider_failed",
            "the voice could not speak this text",
        )
        .refuses(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_unavailable",
            "the voices are busy or starting",
        )
}

async fn speak(
    State(app): State<Tts>,
    caller: Caller,
    Body(body): Body<Speak>,
) -> Result<Response, ApiError> {
    let Speak {
        text,
        language,
        voice_id,
        streaming,
    } = body;
    let characters = rules::check(&text).map_err(|why| service::refused(why, MAX_TEXT))?;
    let voice = service::find_voice(&app, voice_id.as_deref(), language.as_deref())?;
    let answer = Response::builder()
        .header("x-sample-rate", RATE)
        .header("x-voice-id", voice.id.to_string())
        .header("x-character-count", characters)
        .header(CACHE_CONTROL, "no-store");
    if !streaming {
        let wav = service::whole_for(&app, caller.account, voice, &text, characters).await?;
        return answer
            .header(CONTENT_TYPE, "audio/wav")
            .body(Bytes::from(wav))
            .map_err(ApiError::internal);
    }
    let answer = stream_of(&app, caller.account, voice, &text, answer).await?;
    // What was begun is used, also when the client leaves in its middle.
    let (resource, request) = (Resource::TtsCharacters, uuid::Uuid::new_v4());
    usage::record_request(&app, caller.account, resource, characters, request).await?;
    answer.map_err(ApiError::internal)
}

/// The samples as they come. What breaks in the middle breaks the connection: the client sees that it
/// has not got everything.
async fn stream_of(
    app: &Tts,
    account: AccountId,
    voice: &Voice,
    text: &str,
    answer: Builder,
) -> Result<http::Result<Response>, ApiError> {
    let share = app.desk.share(account);
    let (speaking, first) = service::begin(app, &share, voice, text, Pace::Stream).await?;
    let pieces = stream::try_unfold(
        (speaking, Some(first)),
        |(mut speaking, first)| async move {
            let piece = match first {
                Some(first) => Some(first),
                None => speaking.next().await.inspect_err(
                    |broken| tracing::warn!(%broken, "a synthesis broke in its middle"),
                )?,
            };
            Ok::<_, service::Broken>(piece.map(|piece| (piece, (speaking, None))))
        },
    );
    Ok(answer
        .header(CONTENT_TYPE, "audio/pcm")
        .header("x-encoding", "pcm16")
        .body(Bytes::from_stream(pieces)))
}
