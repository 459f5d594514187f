//! The voices' routes as a service.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};

use super::catalogue::{all, id_of, offered};
use crate::testing::TestApp;

async fn keys(test: &TestApp, query: &str) -> Vec<String> {
    let (status, list) = test.call("GET", &format!("/voices?{query}"), None).await;
    assert_eq!(status, 200, "{list}");
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|voice| voice["voice_key"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn countries_are_a_closed_set_of_149_by_code() {
    let test = TestApp::new().await;
    let (status, set) = test.call("GET", "/voices/countries", None).await;
    assert_eq!(status, 200);
    let items = set["items"].as_array().unwrap();
    assert_eq!(items.len(), 149);
    let codes: Vec<&str> = items
        .iter()
        .map(|country| country["code"].as_str().unwrap())
        .collect();
    assert!(codes.is_sorted() && codes.contains(&"FR"));
    assert_eq!(
        items[0],
        json!({"code": "AE", "name": "United Arab Emirates"})
    );
}

#[tokio::test]
async fn every_token_of_the_vocabulary_is_a_filter() {
    let test = TestApp::new().await;
    let (status, vocabulary) = test.call("GET", "/voices/tag-vocabulary", None).await;
    assert_eq!(status, 200);
    let categories: Vec<&String> = vocabulary.as_object().unwrap().keys().collect();
    assert_eq!(
        categories,
        [
            "business_persona",
            "delivery_style",
            "tone",
            "voice_texture"
        ]
    );
    for (category, tokens) in vocabulary.as_object().unwrap() {
        for token in tokens
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_str().unwrap())
        {
            let expected: Vec<&str> = offered()
                .filter(|voice| voice.tags.contains(&token))
                .map(|voice| voice.key)
                .collect();
            assert_eq!(
                keys(&test, &format!("tag={token}")).await,
                expected,
                "{category} {token}"
            );
        }
    }
}

#[tokio::test]
async fn pages_of_voices_follow_one_another_newest_first() {
    let test = TestApp::new().await;
    let whole = keys(&test, "").await;
    let expected: Vec<&str> = offered().map(|voice| voice.key).collect();
    assert_eq!(whole, expected);
    let mut pages = Vec::new();
    for offset in (0..whole.len()).step_by(5) {
        pages.extend(keys(&test, &format!("limit=5&offset={offset}")).await);
    }
    assert_eq!(pages, whole);
    assert!(keys(&test, "offset=500").await.is_empty());
}

#[tokio::test]
async fn a_voice_is_found_by_id_and_by_legacy_key() {
    let test = TestApp::new().await;
    let (_, by_key) = test.call("GET", "/voices/scripted-tone", None).await;
    let id = id_of("scripted-tone").to_string();
    let (status, by_id) = test.call("GET", &format!("/voices/{id}"), None).await;
    assert_eq!((status.as_u16(), &by_id), (200, &by_key));
    let names: Vec<&String> = by_id.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "country",
            "created_at",
            "description",
            "dialect_styles",
            "gender",
            "id",
            "is_private",
            "language",
            "name",
            "preview_url",
            "status",
            "supports_dialect_style",
            "tags",
            "updated_at",
            "voice_key",
        ]
    );
    let unknown = uuid::Uuid::from_u128(7).to_string();
    for nobody in ["default", "nobody", unknown.as_str()] {
        let (status, answer) = test.call("GET", &format!("/voices/{nobody}"), None).await;
        assert_eq!(
            (status.as_u16(), &answer["code"]),
            (404, &json!("not_found")),
            "{nobody}"
        );
    }
}

#[tokio::test]
async fn a_voice_tells_whether_it_has_dialect_styles_and_the_filter_follows() {
    let test = TestApp::new().await;
    let with = keys(&test, "supports_dialect_style=true").await;
    let without = keys(&test, "supports_dialect_style=false").await;
    assert_eq!(with.len() + without.len(), offered().count());
    assert_eq!(with.len(), 4);
    for key in &with {
        let (_, voice) = test.call("GET", &format!("/voices/{key}"), None).await;
        assert_eq!(
            (&voice["supports_dialect_style"], &voice["dialect_styles"]),
            (&Value::Bool(true), &json!(["formal", "mixed", "local"]))
        );
    }
    assert!(all().len() >= offered().count());
}
