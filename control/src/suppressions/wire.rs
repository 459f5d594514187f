//! Bodies of the suppression routes.

use super::rules::{Source, Status};
use super::store::Suppression;
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::SuppressionId;
use crate::time::Timestamp;

body! {
    /// The query of `GET /suppressions`.
    pub query SuppressionsQuery;
    optional phone_number: String = Kind::E164, "Only entries of this number.";
    optional status: Status, "Only entries in this state.";
}

body! {
    /// `POST /suppressions`.
    pub struct CreateSuppression = "CreateSuppression";
    required phone_number: String = Kind::Callee, "The number not to call";
    optional source: Source = Kind::Enum(Source::WRITABLE),
        "Who wanted it (default manual); a person's own request cannot be released";
    nullable reason: String = Kind::Str { min: 0, max: 500 }, "Why";
}

answer! {
    /// An entry as it is answered.
    pub struct SuppressionRecord = "Suppression" of Suppression {
        id: SuppressionId,
        phone_number: String,
        /// Who wanted it. A person's own request cannot be released.
        source: Source,
        reason: Option<String>,
        status: Status,
        created_at: Timestamp,
        updated_at: Timestamp,
        released_at: Option<Timestamp>,
    }
}
