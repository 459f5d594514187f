//! `sidetone openapi`: prints the OpenAPI document, as the server would give it.

use std::io::Write;

use super::Failure;
use crate::config::Config;
use crate::http::openapi::document;
use crate::routes;

pub(super) fn run(config: Config) -> Result<(), Failure> {
    let document = document(
        &routes::endpoints(),
        routes::EVENTS,
        &config.server.public_url,
    );
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
