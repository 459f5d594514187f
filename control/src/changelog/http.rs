//! The route of the change log (document 1, Versioning).

use std::sync::OnceLock;

use axum::response::Response;
use bytes::Bytes;

use super::rules::{Day, parse};
use crate::http::page::Items;
use crate::http::resource::json;
use crate::http::{Access, Endpoint};
use crate::node::Node;

/// The log itself.
pub const CHANGES: &str = include_str!("../../CHANGES.md");

/// The route. What changed is no secret.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get("/changelog", Access::None, list)
            .summary("Changes that clients can see, newest first")
            .operation(
                "listChanges",
                "Lists what has changed in this API, by day. `requires_action` marks what an \
                 existing integration may have to follow. It needs no key.",
            )
            .answers::<Items<Day>>(),
    ]
}

async fn list() -> Response {
    json(written())
}

/// The log as it is sent: read once.
fn written() -> Bytes {
    static WRITTEN: OnceLock<Bytes> = OnceLock::new();
    let write = || {
        let items = Items {
            items: parse(CHANGES),
        };
        // Words and switches always print.
        Bytes::from(serde_json::to_vec(&items).unwrap_or_default())
    };
    WRITTEN.get_or_init(write).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_read_once() {
        assert_eq!(written().as_ptr(), written().as_ptr());
        assert!(written().starts_with(b"{\"items\":[{"));
    }
}
