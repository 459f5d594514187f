//! Routes of speech synthesis (document 2, Speech synthesis).

use axum::body::Body as Bytes;
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::response::Builder;

use super::rules::{self, MAX_TEXT, RATE};
use super::service::{self, Pace};
use super::wire::Speak;
use crate::app::App;
use crate::http::endpoint::Class;
use crate::http::{Access, ApiError, Body, Endpoint, Scope};
use crate::voices::Voice;

/// The routes.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/tts", Access::Scopes(&[Scope::TtsUse]), speak)
            .summary("Speak a text: a WAV, or raw samples as they are made")
            .body::<Speak>()
            .class(Class::Tts)
            .returns(StatusCode::OK),
    ]
}

async fn speak(State(app): State<App>, Body(body): Body<Speak>) -> Result<Response, ApiError> {
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
    let answer = if streaming {
        stream_of(&app, voice, &text, answer).await?
    } else {
        let wav = service::whole(&app, voice, &text).await?;
        answer
            .header(CONTENT_TYPE, "audio/wav")
            .body(Bytes::from(wav))
    };
    answer.map_err(ApiError::internal)
}

/// The samples as they come. What breaks in the middle breaks the connection: the client sees that it
/// has not got everything.
async fn stream_of(
    app: &App,
    voice: &Voice,
    text: &str,
    answer: Builder,
) -> Result<http::Result<Response>, ApiError> {
    let (speaking, first) = service::begin(app, voice, text, Pace::Stream).await?;
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
