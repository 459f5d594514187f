//! Bodies of the synthesis routes.

use super::rules;
use crate::http::extract::MAX_BODY;
use crate::http::validate::Kind;
use crate::http::wire::body;

const LANGUAGE: Kind = Kind::Enum(&["english", "french"]);
/// Beyond 650 characters the answer is a 413 of its own, and the body has its bound.
const TEXT: Kind = Kind::Str {
    min: 1,
    max: MAX_BODY,
};
const PREVIEW: Kind = Kind::Str {
    min: 1,
    max: rules::MAX_PREVIEW,
};

body! {
    /// The body of `POST /tts`.
    #[derive(Debug)]
    pub struct Speak = "Speak";
    required text: String = TEXT, "What to say, 1 to 650 characters; each counts.";
    optional language: String = LANGUAGE, "english, or that of the voice, when left out.";
    nullable voice_id: String = Kind::Str { min: 0, max: 255 },
        "A voice id or legacy voice_key; left out or \"default\": the deployment's own.";
    default streaming: bool, "true: raw samples as they are made; false: a WAV.";
}

body! {
    /// The body of `POST /voices/preview`.
    #[derive(Debug)]
    pub struct Preview = "PreviewVoice";
    required voice_id: String = Kind::Str { min: 1, max: 255 },
        "A voice id or legacy voice_key; \"default\" is not taken.";
    optional text: String = PREVIEW,
        "What to say, 1 to 300 characters; a sample sentence when left out.";
}
