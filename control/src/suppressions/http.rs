//! Routes of suppressions (document 2, call-trigger errors).

use axum::Json;

use super::rules::Source;
use super::store::{self, Suppression};
use super::wire::{CreateSuppression, SuppressionRecord, SuppressionsQuery};
use crate::http::page::UpTo;
use crate::http::{
    Access, ApiError, Body, Context, Created, Endpoint, Found, Id, List, Made, Page, Query, Reply,
    Scope,
};
use crate::ids::SuppressionId;
use crate::node::Node;

const READ: Access = Access::Scopes(&[Scope::CallsRead]);
const WRITE: Access = Access::Scopes(&[Scope::CallsWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get("/suppressions", READ, list)
            .query::<SuppressionsQuery>()
            .page::<UpTo<200>>()
            .answers::<List<SuppressionRecord>>()
            .summary("Numbers that are not called, newest first")
            .operation(
                "listSuppressions",
                "Lists the account's do-not-call list, released entries among them. Filter by \
                 number to learn why `placeCall` refuses one.",
            ),
        Endpoint::post("/suppressions", WRITE, create)
            .body::<CreateSuppression>()
            .answers::<SuppressionRecord>()
            .or_409("conflict: the number is on the list for this reason")
            .summary("Put a number on the do-not-call list")
            .operation(
                "createSuppression",
                "Puts a number on the do-not-call list: from the answer on no call is placed to \
                 it, however it is spelled. An entry with `source` `person_request` cannot be \
                 released. A number that is on the list from this source already is 409.",
            ),
        Endpoint::one::<Suppression, SuppressionRecord>("/suppressions/{suppression_id}", READ)
            .summary("One entry")
            .operation(
                "getSuppression",
                "Answers one entry of the do-not-call list, active or released. It tells who \
                 wanted it and why.",
            ),
        Endpoint::post("/suppressions/{suppression_id}/release", WRITE, release)
            .returns(http::StatusCode::OK)
            .answers::<SuppressionRecord>()
            .or_403("suppression_not_releasable: the entry records the person's own request")
            .summary("Take an entry that the account added off the list")
            .operation(
                "releaseSuppression",
                "Takes an entry off the list that the account itself added; the number can be \
                 called when no other entry names it. What the person asked for is 403 \
                 `suppression_not_releasable`. An entry that is released already is answered as \
                 it is.",
            ),
    ]
}

async fn list(
    cx: Context<Node>,
    Query(query): Query<SuppressionsQuery>,
    page: Page<UpTo<200>>,
) -> Result<List<SuppressionRecord>, ApiError> {
    let entries = cx.rows::<Suppression>();
    let found = entries
        .whose_if("phone_number", query.phone_number)
        .whose_if("status", query.status);
    Ok(List::of(found.page(page).await?, page))
}

async fn create(cx: Context<Node>, Body(body): Body<CreateSuppression>) -> Made<SuppressionRecord> {
    let source = body.source.unwrap_or(Source::Manual);
    let (number, reason) = (body.phone_number.as_str(), body.reason.as_deref());
    store::suppress(&cx.db, &cx.clock, cx.account, number, source, reason)
        .await?
        .map(|entry| Created(entry.into()))
        .ok_or_else(|| ApiError::conflict("conflict", "This number is on the list for this reason"))
}

async fn release(cx: Context<Node>, Id(id): Id<SuppressionId>) -> Reply<SuppressionRecord> {
    let entries = || cx.rows::<Suppression>();
    if !entries().get(id).await?.found()?.source.releasable() {
        return Err(ApiError::Forbidden {
            code: "suppression_not_releasable",
            message: "This entry records the person's own request and cannot be released".into(),
        });
    }
    store::release(&cx.db, cx.account, id, cx.clock.now()).await?;
    Ok(Json(entries().get(id).await?.found()?.into()))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use crate::testing::TestApp;

    #[tokio::test]
    async fn an_entry_that_the_account_added_may_be_released() {
        let test = TestApp::new().await;
        let body = json!({"phone_number": "+15550100", "reason": "asked by mail"});
        let (status, made) = test.call("POST", "/suppressions", Some(body.clone())).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        assert_eq!(
            (&made["source"], &made["status"], &made["released_at"]),
            (&json!("manual"), &json!("active"), &json!(null))
        );
        let (status, again) = test.call("POST", "/suppressions", Some(body.clone())).await;
        assert_eq!(
            (status, &again["code"]),
            (StatusCode::CONFLICT, &json!("conflict"))
        );
        let path = format!("/suppressions/{}", made["id"].as_str().unwrap_or(""));
        let (_, read) = test.call("GET", &path, None).await;
        assert_eq!(read, made);
        let release = format!("{path}/release");
        let (status, released) = test.call("POST", &release, None).await;
        assert_eq!(
            (status, &released["status"]),
            (StatusCode::OK, &json!("released"))
        );
        assert_eq!(test.call("POST", &release, None).await.1, released);
        // Released, it may be put on the list again, and both are kept.
        let (status, _) = test.call("POST", "/suppressions", Some(body)).await;
        assert_eq!(status, StatusCode::CREATED);
        let (_, listed) = test
            .call("GET", "/suppressions?phone_number=%2B15550100", None)
            .await;
        assert_eq!(listed["total"], 2);
        let (_, listed) = test.call("GET", "/suppressions?status=active", None).await;
        assert_eq!(listed["total"], 1);
    }

    #[tokio::test]
    async fn a_persons_own_request_stays() {
        let test = TestApp::new().await;
        let body = json!({"phone_number": "+15550100", "source": "person_request"});
        let (_, made) = test.call("POST", "/suppressions", Some(body)).await;
        let path = format!(
            "/suppressions/{}/release",
            made["id"].as_str().unwrap_or("")
        );
        let (status, refused) = test.call("POST", &path, None).await;
        assert_eq!(
            (status, &refused["code"]),
            (StatusCode::FORBIDDEN, &json!("suppression_not_releasable"))
        );
        let (_, other) = test.other_account().await;
        let (status, _) = test.call_as(&other, "POST", &path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_number_must_be_e164_and_the_source_one_of_two() {
        let test = TestApp::new().await;
        for (body, wrong) in [
            (json!({}), "phone_number"),
            (json!({"phone_number": "0123"}), "phone_number"),
            (json!({"phone_number": "+05550100"}), "phone_number"),
            (
                json!({"phone_number": "+15550100", "source": "sms_stop"}),
                "source",
            ),
            (
                json!({"phone_number": "+15550100", "status": "released"}),
                "status",
            ),
        ] {
            let (status, answer) = test.call("POST", "/suppressions", Some(body)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!(answer["detail"][0]["loc"], json!(["body", wrong]));
        }
    }
}
