//! Suppressions: numbers that are not called (document 2, call-trigger errors).
//!
//! An entry is `active` until it is released. Entries that the account added may be released; those
//! that record the person's own request, or a STOP they texted, may not. To other resources this is
//! [`check`], which a dispatcher asks before it dials, and [`suppress`].

pub mod http;
pub mod rules;
pub mod store;
pub mod wire;

pub use rules::Source;
pub use store::suppress;

use serde_json::json;

use crate::http::ApiError;
use crate::ids::AccountId;
use crate::node::Node;
use crate::numbers::spelling::{canonical, with_prefix};

/// How long a client waits before it asks again while the list cannot be read, seconds.
const RETRY_AFTER: u32 = 5;

/// Refuses a number that is on the list, in whichever spelling: 403 `number_suppressed`. A list that cannot be
/// read refuses as well (503 `suppression_check_unavailable`): no call is placed on a guess.
pub async fn check(app: &Node, account: AccountId, phone_number: &str) -> Result<(), ApiError> {
    let number = canonical(phone_number);
    // Entries of before a prefix behind the country code was refused have it.
    let with_prefix = with_prefix(&number);
    let found = store::active(&app.db, account, &number, with_prefix.as_deref());
    let found = match found.await {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(%error, "the do-not-call list cannot be read");
            return Err(ApiError::Unavailable {
                code: "suppression_check_unavailable",
                message: "The do-not-call list cannot be read: the call is not placed".to_owned(),
                retry_after: RETRY_AFTER,
            });
        }
    };
    // What cannot be released is the stronger reason.
    let strongest = found
        .into_iter()
        .min_by_key(|entry| (entry.source.releasable(), entry.created_at));
    match strongest {
        None => Ok(()),
        Some(entry) => Err(ApiError::Refused {
            code: "number_suppressed",
            message: "This number is on the do-not-call list".to_owned(),
            detail: json!({
                "suppression_id": entry.id,
                "source": entry.source.name(),
                "releasable": entry.source.releasable(),
            }),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use crate::testing::TestApp;

    #[tokio::test]
    async fn a_number_on_the_list_is_refused_with_its_strongest_reason() {
        let test = TestApp::new().await;
        let (app, number) = (&test.app, "+15550100");
        assert!(check(app, test.account, number).await.is_ok());
        for source in [Source::Manual, Source::SmsStop] {
            suppress(&app.db, &app.clock, test.account, number, source, None)
                .await
                .unwrap();
        }
        let error = check(app, test.account, number).await.unwrap_err();
        assert_eq!(
            (error.status().as_u16(), error.code()),
            (403, "number_suppressed")
        );
        let body = error.body("id");
        assert_eq!(
            (&body["detail"]["source"], &body["detail"]["releasable"]),
            (&json!("sms_stop"), &json!(false))
        );
        let (other, _) = test.other_account().await;
        assert!(check(app, other, number).await.is_ok());
    }

    #[tokio::test]
    async fn a_number_on_the_list_is_refused_in_whichever_spelling() {
        let (right, long) = ("+4930123456", "+49030123456");
        for listed in [right, long] {
            let test = TestApp::new().await;
            let (app, account) = (&test.app, test.account);
            for asked in [right, long] {
                assert!(check(app, account, asked).await.is_ok());
            }
            suppress(&app.db, &app.clock, account, listed, Source::Manual, None)
                .await
                .unwrap();
            for asked in [right, long] {
                assert!(
                    check(app, account, asked).await.is_err(),
                    "{asked} of {listed}"
                );
            }
            assert!(check(app, account, "+4930123457").await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_places_no_call() {
        let test = TestApp::new().await;
        let broken = "alter table suppressions rename to elsewhere";
        test.app.db.query(broken).execute().await.unwrap();
        let error = check(&test.app, test.account, "+15550100")
            .await
            .unwrap_err();
        assert_eq!(
            (error.status().as_u16(), error.code(), error.retry_after()),
            (503, "suppression_check_unavailable", Some(RETRY_AFTER))
        );
    }
}
