//! The OpenAPI 3.1 document, made from the endpoint tables, the tables of bodies and queries, and the wire
//! types of answers. `docs/openapi.json` is a copy of it (`sidetone openapi` prints it anew).

mod answers;
mod events;
mod ids;
mod sample;
mod schema;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

pub use events::Event;

use self::ids::Side;
use super::answers::{Answer, Refusal};
use super::endpoint::{Access, Endpoint, IDEMPOTENCY_KEY, LONGEST_IDEMPOTENCY_KEY, Operation};
use super::validate::{Field, Kind};

/// An example of each body and answer, by the name of its component.
const EXAMPLES: &str = include_str!("examples.json");

/// What stands above everything else.
const ABOUT: &str = "Voice agents that talk in real time, on a server of your own.

Times are ISO 8601 in UTC with microseconds and the offset `+00:00`; ids are UUIDs; phone numbers are E.164. A request \
with fields that are not in its table is refused, unless the table says otherwise; parameters of the query that are not \
known are ignored. Every error has `error`, `code` and `request_id`; branch on `code`. Beside what each route names, any \
request may be answered with 405 `method_not_allowed` (see `Allow`), 414 `uri_too_long` or 431 `headers_too_large`.

Lists are pages: ask for the next one with `offset`, until `has_more` is false.

The audio of a call goes over the WebSocket that `POST /conversation/connect` names; `docs/websocket.md` tells its \
messages. What is told to you by itself stands under `webhooks`.";

/// The resources, in the order in which they are read.
const TAGS: &[(&str, &str)] = &[
    (
        "agents",
        "Who speaks: a prompt, a voice, a language, and how calls are handled.",
    ),
    ("models", "The language models that an agent may use."),
    ("voices", "The voices that an agent may have."),
    ("tts", "Speech from text, without a call."),
    (
        "conversation",
        "Sessions: a live conversation, from its opening to its end.",
    ),
    (
        "conversations",
        "What was said: transcripts, audio, diagnostics, ratings.",
    ),
    ("recordings", "The sound of calls."),
    (
        "calls",
        "Calls as records: who, when, how long, at what cost.",
    ),
    (
        "phone-numbers",
        "Numbers: who answers calls to them, and whether calls are placed from them.",
    ),
    (
        "sip-trunks",
        "Carriers over which telephone calls come and go.",
    ),
    ("suppressions", "Numbers that are not to be called."),
    (
        "usage",
        "What was used; thresholds that send an event; the secret that signs events.",
    ),
    ("billing", "Credit, and whether the account may spend."),
    (
        "api-keys",
        "Keys of the account. They cannot do more than the key that makes them.",
    ),
    ("changelog", "Changes that clients can see."),
    (
        "admin",
        "Accounts. These routes take the administrator's token, and are there only where one is set.",
    ),
    ("ws", "The sockets of live sessions."),
    (
        "server",
        "The server itself: whether it is well, and this document.",
    ),
    (
        "webhooks",
        "Events that the server sends to URLs of the account. They stand under `webhooks`, not among the paths.",
    ),
];

/// The document of these endpoints and events on the server at `public_url`.
pub fn document<S>(endpoints: &[Endpoint<S>], events: &[Event], public_url: &str) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let examples = Examples::read();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut asked = Map::new();
    let mut takers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut bodies = words::Bodies::new();
    let mut codes: BTreeMap<&'static str, Refusal> = BTreeMap::new();
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.internal) {
        if let Some(schema) = endpoint.body {
            asked.insert(schema.name.to_owned(), schema::body(schema));
            takers.entry(schema.name).or_default().push(endpoint.id);
            if let Answer::Json(answer) = endpoint.answer
                && let Some(record) = component(&answer(&mut generator).to_value())
            {
                bodies.push((record.to_owned(), schema.name.to_owned()));
            }
        }
        paths.entry(endpoint.full_path()).or_default().insert(
            endpoint.method.as_str().to_ascii_lowercase(),
            operation(endpoint, &mut generator, &examples, &mut codes),
        );
    }
    for (name, takers) in takers {
        let takers: Vec<String> = takers.iter().map(|id| format!("`{id}`")).collect();
        asked[name]["description"] = format!("The body of {}.", takers.join(" and ")).into();
    }
    let webhooks = events::webhooks(events, &mut generator, |schema| examples.of(schema));
    let schemas = schemas(asked, generator, &bodies);
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|(name, about)| json!({"name": name, "description": about}))
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sidetone",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"}
        },
        "servers": [{"url": public_url}],
        "tags": tags,
        "paths": paths,
        "webhooks": webhooks,
        "components": {
            "schemas": schemas,
            "examples": answers::examples(&codes),
            "headers": answers::headers(),
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key of the account."},
                "bearer": {"type": "http", "scheme": "bearer", "description": "The same key."},
                "adminToken": {"type": "http", "scheme": "bearer", "description": "The administrator's token, a setting of the server."},
                "signedUrl": {"type": "apiKey", "in": "query", "name": "token", "description": "Part of a URL that the server has given out."}
            }
        }
    });
    sample::fill(&mut document);
    document
}

/// All components: the bodies that are asked for, and what the generator met in answers and events.
fn schemas(
    asked: Map<String, Value>,
    mut generator: SchemaGenerator,
    bodies: &words::Bodies,
) -> Map<String, Value> {
    let names: BTreeSet<String> = asked.keys().cloned().collect();
    let mut schemas = asked;
    schemas.extend(generator.take_definitions(true));
    schemas.insert("Error".to_owned(), error_schema());
    words::describe(&mut schemas, bodies);
    for (name, schema) in &mut schemas {
        schema::part_null_from_words(schema);
        let side = match names.contains(name) {
            true => Side::Asked,
            false => Side::Told,
        };
        ids::refer(name, side, schema);
    }
    schemas.insert(ids::NAME.to_owned(), ids::schema());
    schemas
}

/// Fields of a table as an answer shows them.
pub fn record(fields: impl Iterator<Item = Field>) -> Schema {
    match schema::record(fields) {
        Value::Object(map) => map.into(),
        _ => Schema::default(),
    }
}

/// The examples, by the name of the component that each is one of.
struct Examples(Map<String, Value>);

impl Examples {
    fn read() -> Self {
        // A test reads it before anybody else does.
        Self(serde_json::from_str(EXAMPLES).unwrap_or_default())
    }

    fn named(&self, name: &str) -> Option<Value> {
        if let Some(example) = self.0.get(name) {
            return Some(example.clone());
        }
        if let Some(item) = name.strip_suffix("List").and_then(|item| self.0.get(item)) {
            return Some(json!({
                "items": [item], "total": 1, "limit": 50, "offset": 0, "has_more": false
            }));
        }
        let item = name.strip_suffix("Set").and_then(|item| self.0.get(item))?;
        Some(json!({"items": [item]}))
    }

    /// Of the component that a schema refers to.
    fn of(&self, schema: &Value) -> Option<Value> {
        self.named(component(schema)?)
    }
}

/// The name of the component that a schema refers to.
pub(super) fn component(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

fn operation(
    endpoint: &Operation,
    generator: &mut SchemaGenerator,
    examples: &Examples,
    codes: &mut BTreeMap<&'static str, Refusal>,
) -> Value {
    let responses = answers::responses(endpoint, generator, |schema| examples.of(schema), codes);
    let mut operation = json!({
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "description": endpoint.about,
        "tags": [tag(endpoint)],
        "parameters": parameters(endpoint),
        "responses": responses,
        "security": security(endpoint),
    });
    if let Some(schema) = endpoint.body {
        let mut content =
            json!({"schema": {"$ref": format!("#/components/schemas/{}", schema.name)}});
        if let Some(example) = examples.named(schema.name) {
            content["example"] = example;
        }
        operation["requestBody"] = json!({
            "required": schema.fields.iter().any(|field| field.required),
            "content": {"application/json": content}
        });
    }
    let (scopes, all) = match endpoint.access {
        Access::Scopes(scopes) => (scopes, true),
        Access::AnyScope(scopes) | Access::CallToken(scopes) | Access::PublicAgent(scopes) => {
            (scopes, false)
        }
        Access::Signed | Access::SignedUrl | Access::Admin | Access::None => return operation,
    };
    let names: Vec<&str> = scopes.iter().map(|scope| scope.name()).collect();
    let words: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let joined = words.join(if all { " and " } else { " or " });
    let also = match endpoint.access {
        Access::CallToken(_) => " A call token with it will do.",
        Access::PublicAgent(_) => {
            " A call token with it will do; a public agent needs no credential."
        }
        _ => "",
    };
    operation["description"] = format!("{}\n\nScope: {joined}.{also}", endpoint.about).into();
    operation["x-scopes"] = json!(names);
    operation
}

/// The resource: the first part of the path; what is no resource is the server's own.
fn tag(endpoint: &Operation) -> &'static str {
    let first = endpoint.path.split('/').nth(1).unwrap_or_default();
    if endpoint.root && first != "ws" || first.contains('.') {
        return "server";
    }
    first
}

fn parameters(endpoint: &Operation) -> Vec<Value> {
    let mut parameters: Vec<Value> = endpoint
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| path_parameter(endpoint, name))
        .collect();
    for field in endpoint.query.map_or(&[][..], |schema| schema.fields) {
        // The security scheme of the URL tells of it.
        if endpoint.access == Access::SignedUrl && field.name == "token" {
            continue;
        }
        parameters.push(json!({
            "name": field.name, "in": "query", "required": field.required,
            "description": field.doc,
            "schema": match field.kind {
                // In a query everything is text.
                Kind::Any => json!({"type": "string"}),
                kind => {
                    let mut schema = schema::kind(&kind, field.nullable);
                    ids::refer("", Side::Asked, &mut schema);
                    schema
                }
            }
        }));
    }
    if let Some((default, max, min)) = endpoint.page {
        parameters.push(json!({
            "name": "limit", "in": "query", "description": "The most items of the page.",
            "schema": {"type": "integer", "minimum": min, "maximum": max, "default": default}
        }));
        parameters.push(json!({
            "name": "offset", "in": "query", "description": "How many items come before the page.",
            "schema": {"type": "integer", "minimum": 0, "maximum": i32::MAX, "default": 0}
        }));
    }
    if endpoint.idempotent {
        parameters.push(json!({
            "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
            "description": "Names the request for 24 hours: sent again with the same body it makes nothing anew, \
                and is answered as before.",
            "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_IDEMPOTENCY_KEY},
            "example": "order-4711"
        }));
    }
    if endpoint.ranges {
        parameters.push(json!({
            "name": "Range", "in": "header", "required": false,
            "description": "One range of bytes (RFC 9110, section 14); one that cannot be read is ignored.",
            "schema": {"type": "string"}, "example": "bytes=0-43"
        }));
    }
    parameters
}

fn path_parameter(endpoint: &Operation, name: &str) -> Value {
    let (schema, about) = match name {
        "voice_id" => (
            json!({"anyOf": [ids::reference(), {"type": "string", "minLength": 1}]}),
            "The id of a voice, or its legacy `voice_key`.".to_owned(),
        ),
        "token" => (
            json!({"type": "string", "minLength": 1}),
            "The token that the URL was given out with.".to_owned(),
        ),
        name => {
            let of = match name.strip_suffix("_id") {
                Some(of) => of.replace('_', " "),
                None => tag(endpoint)
                    .trim_end_matches('s')
                    .replace("api-", "API ")
                    .replace('-', " "),
            };
            (ids::reference(), format!("The id of the {of}."))
        }
    };
    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
}

fn security(endpoint: &Operation) -> Value {
    match endpoint.access {
        Access::Scopes(_) | Access::AnyScope(_) | Access::CallToken(_) => {
            json!([{"apiKey": []}, {"bearer": []}])
        }
        Access::PublicAgent(_) => json!([{}, {"apiKey": []}, {"bearer": []}]),
        Access::Signed => json!([{"apiKey": []}, {"bearer": []}, {"signedUrl": []}]),
        Access::Admin => json!([{"adminToken": []}]),
        // The token of the other sockets is a part of the path.
        Access::SignedUrl if endpoint.path.contains("{token}") => json!([]),
        Access::SignedUrl => json!([{"signedUrl": []}]),
        Access::None => json!([]),
    }
}

fn error_schema() -> Value {
    json!({
        "title": "Error",
        "description": "Every answer of 400 and above.",
        "type": "object",
        "required": ["error", "code", "request_id"],
        "properties": {
            "error": {"type": "string", "description": "What is wrong, for people; the words may change."},
            "code": {"type": "string", "description": "What is wrong, for programs; the words stay."},
            "request_id": {"type": "string", "format": "uuid", "description": "The id of the request, as in the header `X-Request-ID`. Quote it when you report a fault."},
            "detail": {"description": "The message once more; the array of `fields`; or an object that says more."},
            "fields": {
                "type": "array", "description": "With `validation_error`: each wrong field.",
                "items": {
                    "type": "object", "required": ["loc", "msg", "type"],
                    "properties": {
                        "loc": {
                            "type": "array", "items": {"type": ["string", "integer"]},
                            "description": "`body`, `query` or `path`, then the way to the field."
                        },
                        "msg": {"type": "string", "description": "What is wrong with it, for people."},
                        "type": {"type": "string", "description": "The rule that is broken, such as `missing` or `string_too_long`."}
                    }
                }
            },
            "reason": {"type": "string", "description": "With refusals for lack of room: the same as `code`."},
            "resource_class": {"type": "string", "description": "With refusals for lack of room: `call`."},
            "resource": {
                "type": "string", "enum": ["account", "pool", "agent", "trunk", "node"],
                "description": "Whose cap is reached."
            },
            "current": {"type": "integer", "description": "Calls that count against the cap."},
            "cap": {"type": "integer", "description": "How many calls the cap lets run at the same time."},
            "retry_after": {"type": "integer", "description": "Seconds to wait before the next try, as in the header `Retry-After`."}
        }
    })
}

#[cfg(test)]
mod tests;
