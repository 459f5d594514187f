//! What a handler takes from a request: the body, the query, the ids of the path. Each is checked
//! against its table first, so a handler starts with values that are right in form.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::validate::{FieldError, Kind, Loc, Schema};

/// The largest JSON body, bytes.
pub const MAX_BODY: usize = 1024 * 1024;
/// The deepest nesting of a JSON body.
pub const MAX_DEPTH: usize = 64;

/// A body or query with its table. The table has checked the form before serde reads it.
pub trait Wire: DeserializeOwned + Send {
    const SCHEMA: &'static Schema;
}

/// A JSON body. An empty body counts as `{}`.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: Wire> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let bytes = read_body(request.into_body(), MAX_BODY).await?;
        if bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        if !is_json {
            return Err(ApiError::UnsupportedMediaType {
                expected: "application/json",
            });
        }
        parse(&bytes).map(Self)
    }
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read_body(body: axum::body::Body, limit: usize) -> Result<bytes::Bytes, ApiError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::PayloadTooLarge { limit })
        }
        Err(_) => Err(ApiError::RequestTimeout),
    }
}

/// Checks and reads JSON text as a body of this kind.
pub fn parse<T: Wire>(bytes: &[u8]) -> Result<T, ApiError> {
    let invalid = |msg: String| {
        ApiError::Fields(vec![FieldError {
            loc: vec![Loc::from("body")],
            msg,
            kind: "json_invalid",
        }])
    };
    if too_deep(bytes) {
        return Err(invalid(format!("Nesting is deeper than {MAX_DEPTH}")));
    }
    let mut value: Value =
        serde_json::from_slice(bytes).map_err(|error| invalid(format!("Invalid JSON: {error}")))?;
    T::SCHEMA.settle(&mut value);
    T::SCHEMA.check("body", &value)?;
    from_checked(value, "body")
}

fn from_checked<T: Wire>(value: Value, root: &str) -> Result<T, ApiError> {
    // What the table lets through, serde reads; if it ever does not, it is still the client's value
    // that has no meaning here.
    serde_json::from_value(value).map_err(|error| {
        ApiError::Fields(vec![FieldError {
            loc: vec![Loc::from(root)],
            msg: error.to_string(),
            kind: "value_error",
        }])
    })
}

/// Whether brackets nest deeper than [`MAX_DEPTH`], outside of strings.
fn too_deep(bytes: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

fn is_json(headers: &http::HeaderMap) -> bool {
    let kind = headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let kind = kind
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The query. Parameters that the table does not know are ignored; a repeated one counts last, or
/// makes a list where the table wants one.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<S: Sync, T: Wire> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut map = Map::new();
        for (key, text) in query_pairs(parts) {
            let Some(field) = T::SCHEMA.field(&key) else {
                continue;
            };
            match &field.kind {
                Kind::List { item, .. } => {
                    let value = typed(item, &text);
                    if let Value::Array(items) =
                        map.entry(key).or_insert_with(|| Value::Array(Vec::new()))
                    {
                        items.push(value);
                    }
                }
                kind => {
                    map.insert(key, typed(kind, &text));
                }
            }
        }
        let value = Value::Object(map);
        T::SCHEMA.check("query", &value)?;
        from_checked(value, "query").map(Self)
    }
}

/// Text as the JSON value that the table wants; text that is none stays text and is refused there.
fn typed(kind: &Kind, text: &str) -> Value {
    let read = match kind {
        Kind::Int { .. } => text.parse::<i64>().ok().map(Value::from),
        Kind::Num { .. } => text
            .parse::<f64>()
            .ok()
            .and_then(|number| serde_json::Number::from_f64(number).map(Value::Number)),
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(Value::Bool(true)),
            "false" | "0" | "no" | "off" => Some(Value::Bool(false)),
            _ => None,
        },
        Kind::E164 => with_plus(text, 0),
        Kind::Timestamp => {
            let offset = text.len().checked_sub("+00:00".len());
            offset.and_then(|at| with_plus(text, at))
        }
        _ => None,
    };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The text with a plus for the space at this place, which is how a plus reads that nobody escaped. Our own
/// times have one in their offset, and no number begins with a space.
fn with_plus(text: &str, at: usize) -> Option<Value> {
    let rest = text.get(at..)?.strip_prefix(' ')?;
    Some(Value::String(format!("{}+{rest}", &text[..at])))
}

/// The pairs of the query, decoded (application/x-www-form-urlencoded).
pub fn query_pairs(parts: &Parts) -> Vec<(String, String)> {
    axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map(|query| query.0)
        .unwrap_or_default()
}

/// Something that stands in the path: one id or two.
pub trait PathId: Sized + Send {
    /// How many parameters of the path it takes.
    const PARAMS: usize;

    /// Reads the parameters, in the order of the path: (name, text).
    fn read(texts: &[(&str, &str)]) -> Result<Self, FieldError>;
}

/// The ids of the path: `Id<AgentId>`, or `Id<(AgentId, ToolId)>` where there are two.
#[derive(Clone, Copy, Debug)]
pub struct Id<T>(pub T);

impl<S: Send + Sync, T: PathId> FromRequestParts<S> for Id<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = match RawPathParams::from_request_parts(parts, state).await {
            Ok(params) => params,
            // What is no text is no UUID either.
            Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
                return Err(ApiError::Fields(vec![no_uuid("id")]));
            }
            Err(_) => return Err(ApiError::NotFound),
        };
        let texts: Vec<(&str, &str)> = params.iter().collect();
        T::read(&texts)
            .map(Self)
            .map_err(|error| ApiError::Fields(vec![error]))
    }
}

/// Reads the parameter at `index` as a UUID.
pub fn path_uuid(texts: &[(&str, &str)], index: usize) -> Result<uuid::Uuid, FieldError> {
    let (name, text) = texts.get(index).copied().unwrap_or(("id", ""));
    uuid::Uuid::try_parse(text).map_err(|_| no_uuid(name))
}

fn no_uuid(name: &str) -> FieldError {
    FieldError {
        loc: vec![Loc::from("path"), Loc::from(name)],
        msg: "Input should be a valid UUID".to_owned(),
        kind: "uuid_parsing",
    }
}

impl<A: PathId, B: PathId> PathId for (A, B) {
    const PARAMS: usize = A::PARAMS + B::PARAMS;

    fn read(texts: &[(&str, &str)]) -> Result<Self, FieldError> {
        let (first, second) = texts.split_at(A::PARAMS.min(texts.len()));
        Ok((A::read(first)?, B::read(second)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::super::validate::{Field, Unknown};
    use super::*;
    use crate::time::Timestamp;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    struct Sample {
        #[serde(default)]
        on: bool,
        #[serde(default)]
        count: i64,
        #[serde(default)]
        tag: Vec<String>,
        phone: Option<String>,
        at: Option<Timestamp>,
    }

    impl Wire for Sample {
        const SCHEMA: &'static Schema = &Schema {
            name: "Sample",
            unknown: Unknown::Refuse,
            fields: &[
                Field::opt("on", Kind::Bool, ""),
                Field::opt("count", Kind::Int { min: 0, max: 9 }, ""),
                Field::opt(
                    "tag",
                    Kind::List {
                        item: &Kind::Str { min: 1, max: 5 },
                        min: 0,
                        max: 2,
                    },
                    "",
                ),
                Field::opt("phone", Kind::E164, ""),
                Field::opt("at", Kind::Timestamp, ""),
            ],
        };
    }

    fn refused(error: ApiError) -> String {
        error.body("").to_string()
    }

    #[test]
    fn hostile_json_is_refused_in_form() {
        for body in [
            "{",
            "{\"on\": NaN}",
            "\"\\ud800\"",
            "{\"on\":true}x",
            "\u{feff}{}",
        ] {
            assert!(
                refused(parse::<Sample>(body.as_bytes()).unwrap_err()).contains("json_invalid"),
                "{body}"
            );
        }
        let deep = "[".repeat(10_000);
        assert!(refused(parse::<Sample>(deep.as_bytes()).unwrap_err()).contains("deeper"));
        let in_string = format!("{{\"{}\":1}}", "[".repeat(100));
        assert!(
            refused(parse::<Sample>(in_string.as_bytes()).unwrap_err()).contains("extra_forbidden")
        );
        assert!(
            refused(parse::<Sample>(&[b'"', 0xff, b'"']).unwrap_err()).contains("json_invalid")
        );
    }

    #[test]
    fn a_whole_number_is_an_integer_however_it_is_written() {
        for (text, right) in [("3", true), ("3.0", true), ("3e0", true), ("3.5", false)] {
            let read = parse::<Sample>(format!("{{\"count\": {text}}}").as_bytes());
            assert_eq!(read.is_ok_and(|sample| sample.count == 3), right, "{text}");
        }
        let large = parse::<Sample>(b"{\"count\": 1e300}").unwrap_err();
        assert!(refused(large).contains("int_parsing"));
    }

    async fn read(query: &str) -> Result<Sample, ApiError> {
        let (mut parts, ()) = http::Request::builder()
            .uri(format!("/x?{query}"))
            .body(())
            .unwrap()
            .into_parts();
        Query::<Sample>::from_request_parts(&mut parts, &())
            .await
            .map(|query| query.0)
    }

    #[tokio::test]
    async fn a_plus_of_a_number_or_a_time_may_stand_as_it_is() {
        let time = Timestamp(1_767_323_045_000_006);
        for plus in ["+", "%2B"] {
            let query = format!("phone={plus}15550100&at=2026-01-02T03:04:05.000006{plus}00:00");
            let sample = read(&query).await.unwrap();
            assert_eq!(sample.phone.as_deref(), Some("+15550100"), "{query}");
            assert_eq!(sample.at, Some(time), "{query}");
        }
        for query in ["phone=15550100", "phone=++15550100", "phone=%20", "phone="] {
            let refusal = refused(read(query).await.unwrap_err());
            assert!(refusal.contains("string_pattern_mismatch"), "{query}");
        }
        for query in [
            "at=2026-01-02T03:04:05",
            "at=2026-01-02 03:04",
            "at=é00:00",
            "at=",
        ] {
            let query = query.replace(' ', "%20").replace('é', "%C3%A9");
            let refusal = refused(read(&query).await.unwrap_err());
            assert!(refusal.contains("datetime_parsing"), "{query}");
        }
    }

    #[tokio::test]
    async fn a_query_is_typed_by_its_table() {
        assert_eq!(
            read("on=true&count=3&tag=a&tag=b&other=x").await.unwrap(),
            Sample {
                on: true,
                count: 3,
                tag: vec!["a".into(), "b".into()],
                phone: None,
                at: None
            }
        );
        assert!(refused(read("on=maybe").await.unwrap_err()).contains("bool_parsing"));
        assert!(refused(read("count=x").await.unwrap_err()).contains("int_parsing"));
    }
}
