//! The OpenAPI 3.1 document, made from the endpoint tables and the schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::endpoint::{Access, Endpoint};
use super::validate::{Field, Kind, Unknown};

/// The document of these endpoints on the server at `public_url`.
pub fn document(endpoints: &[Endpoint], public_url: &str) -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut schemas: BTreeMap<&str, Value> = BTreeMap::new();
    for endpoint in endpoints {
        if let Some(schema) = endpoint.body {
            schemas.insert(schema.name, object(schema.fields, schema.unknown));
        }
        let path = paths.entry(endpoint.full_path()).or_default();
        path.insert(
            endpoint.method.as_str().to_ascii_lowercase(),
            operation(endpoint),
        );
    }
    let mut schemas: Map<String, Value> = schemas
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    schemas.insert("Error".to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sidetone",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Voice agents that talk in real time. Times are ISO 8601 in UTC with microseconds; ids are UUIDs."
        },
        "servers": [{"url": public_url}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "bearer": {"type": "http", "scheme": "bearer"}
            }
        }
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters = path_parameters(endpoint.path);
    for field in endpoint.query.map_or(&[][..], |schema| schema.fields) {
        parameters.push(json!({
            "name": field.name, "in": "query", "required": field.required, "description": field.doc,
            "schema": kind(&field.kind, field.nullable)
        }));
    }
    if let Some((default, max, min)) = endpoint.page {
        parameters.push(json!({
            "name": "limit", "in": "query",
            "schema": {"type": "integer", "minimum": min, "maximum": max, "default": default}
        }));
        parameters.push(json!({
            "name": "offset", "in": "query", "schema": {"type": "integer", "minimum": 0, "default": 0}
        }));
    }
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.path.split('/').nth(1).unwrap_or("")],
        "parameters": parameters,
        "responses": responses(endpoint),
        "security": security(endpoint.access),
    });
    if let Some(schema) = endpoint.body {
        operation["requestBody"] = json!({
            "required": schema.fields.iter().any(|field| field.required),
            "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{}", schema.name)}}}
        });
    }
    if let Access::Scopes(scopes) | Access::AnyScope(scopes) = endpoint.access {
        operation["x-scopes"] = json!(scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>());
    }
    operation
}

fn operation_id(endpoint: &Endpoint) -> String {
    let words: Vec<String> = endpoint
        .path
        .split(['/', '-', '.'])
        .map(|part| part.trim_matches(['{', '}']).to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    format!(
        "{}_{}",
        endpoint.method.as_str().to_ascii_lowercase(),
        words.join("_")
    )
}

fn path_parameters(path: &str) -> Vec<Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

fn responses(endpoint: &Endpoint) -> Value {
    let mut responses = Map::new();
    responses.insert(
        endpoint.success.as_str().to_owned(),
        json!({"description": "Done"}),
    );
    let mut add = |status: &str, text: &str| {
        responses.insert(
            status.to_owned(),
            json!({
                "description": text,
                "headers": {"X-Request-ID": {"schema": {"type": "string", "format": "uuid"}}},
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            }),
        );
    };
    if endpoint.access != Access::None {
        add("401", "Missing or invalid credential");
        add(
            "429",
            "Too many requests, or a cap is reached; see Retry-After",
        );
    }
    if matches!(endpoint.access, Access::Scopes(_) | Access::AnyScope(_)) {
        add("403", "The key lacks a scope");
    }
    if endpoint.path.contains('{') {
        add("404", "Not found in this account");
    }
    if endpoint.body.is_some() {
        add("413", "The body is too large");
        add("415", "The body is not JSON");
    }
    if endpoint.body.is_some()
        || endpoint.query.is_some()
        || endpoint.page.is_some()
        || endpoint.path.contains('{')
    {
        add(
            "422",
            "Something in the request is wrong; `fields` says what",
        );
    }
    add("500", "Internal error");
    Value::Object(responses)
}

fn security(access: Access) -> Value {
    match access {
        Access::Scopes(_) | Access::AnyScope(_) => json!([{"apiKey": []}, {"bearer": []}]),
        Access::Signed => json!([{}, {"apiKey": []}, {"bearer": []}]),
        Access::Admin => json!([{"bearer": []}]),
        Access::SignedUrl | Access::None => json!([]),
    }
}

fn object(fields: &[Field], unknown: Unknown) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut schema = kind(&field.kind, field.nullable);
            schema["description"] = field.doc.into();
            (field.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": unknown == Unknown::Ignore
    })
}

/// A kind as JSON Schema (draft 2020-12).
fn kind(of: &Kind, nullable: bool) -> Value {
    let mut schema = match of {
        Kind::Str { min, max } => json!({"type": "string", "minLength": min, "maxLength": max}),
        Kind::Pattern { name, .. } => json!({"type": "string", "x-rule": name}),
        Kind::Enum(words) => json!({"type": "string", "enum": words}),
        Kind::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Num { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Uuid => json!({"type": "string", "format": "uuid"}),
        Kind::E164 => json!({"type": "string", "pattern": r"^\+[1-9]\d{1,14}$"}),
        Kind::HttpsUrl => json!({"type": "string", "format": "uri", "pattern": "^https://"}),
        Kind::Hostname => json!({"type": "string", "format": "hostname"}),
        Kind::List { item, min, max } => {
            json!({"type": "array", "items": kind(item, false), "minItems": min, "maxItems": max})
        }
        Kind::Object(fields) => object(fields, Unknown::Refuse),
        Kind::Scalars { max, key_rule, .. } => json!({
            "type": "object", "maxProperties": max, "x-key-rule": key_rule,
            "additionalProperties": {"type": ["string", "number", "boolean"]}
        }),
        Kind::AnyObject => json!({"type": "object"}),
        Kind::Any => json!({}),
        Kind::Timestamp => json!({"type": "string", "format": "date-time"}),
    };
    if nullable {
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.push(Value::Null);
        }
        if let Some(Value::String(one)) = schema.get("type") {
            schema["type"] = json!([one, "null"]);
        }
    }
    schema
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error", "code", "request_id"],
        "properties": {
            "error": {"type": "string"},
            "code": {"type": "string", "description": "A stable slug"},
            "request_id": {"type": "string", "format": "uuid"},
            "detail": {},
            "fields": {"type": "array", "items": {"type": "object", "properties": {
                "loc": {"type": "array"}, "msg": {"type": "string"}, "type": {"type": "string"}
            }}},
            "reason": {"type": "string"}, "resource_class": {"type": "string"}, "retry_after": {"type": "integer"},
            "resource": {"type": "string", "enum": ["account", "pool", "agent", "trunk", "node"]},
            "current": {"type": "integer"}, "cap": {"type": "integer"}
        }
    })
}
