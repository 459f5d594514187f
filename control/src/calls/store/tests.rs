//! Which calls a list finds.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::time::Duration;

use super::*;
use crate::testing::{TestApp, call_over_socket};

async fn add(test: &TestApp, change: impl FnOnce(NewCall<'static>) -> NewCall<'static>) -> CallId {
    let (app, id) = (&test.app, CallId::new(&test.app.clock));
    let call = change(call_over_socket(id, AgentId::new(&app.clock)));
    let mut tx = app.db.begin_write().await.unwrap();
    insert(&mut tx, test.account, &call, app.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    app.clock.advance(Duration::from_secs(1));
    id
}

#[tokio::test]
async fn a_list_is_narrowed_by_all_that_is_asked() {
    let test = TestApp::new().await;
    let later = test.app.clock.now().plus(Duration::from_secs(1));
    let came = |call| NewCall {
        from_number: Some("+4930123456"),
        ..call
    };
    let went = |call| NewCall {
        direction: Direction::Outbound,
        channel: Channel::Sip,
        to_number: Some("4930123456"),
        ..call
    };
    let first = add(&test, came).await;
    let second = add(&test, went).await;
    let third = add(&test, |call| call).await;
    let phone = Some("+4930123456".to_owned());
    let all = Filter::default;
    for (filter, expected) in [
        (all(), vec![third, second, first]),
        (
            Filter {
                phone: phone.clone(),
                ..all()
            },
            vec![second, first],
        ),
        (
            Filter {
                phone,
                direction: Some(Direction::Outbound),
                ..all()
            },
            vec![second],
        ),
        (
            Filter {
                from: Some(later),
                ..all()
            },
            vec![third, second],
        ),
        (
            Filter {
                to: Some(later),
                ..all()
            },
            vec![first],
        ),
        (
            Filter {
                status: Some(CallStatus::Completed),
                ..all()
            },
            vec![],
        ),
        (
            Filter {
                agent: Some(AgentId::NIL),
                ..all()
            },
            vec![],
        ),
        (
            Filter {
                said: vec!["hello".to_owned()],
                ..all()
            },
            vec![],
        ),
    ] {
        let (rows, total) = list(&test.app.db, test.account, &filter, 10, 0)
            .await
            .unwrap();
        let found: Vec<CallId> = rows.into_iter().map(|row| row.id).collect();
        assert_eq!(total, found.len() as u64);
        assert_eq!(found, expected);
    }
    let (other, _) = test.other_account().await;
    let (_, total) = list(&test.app.db, other, &all(), 10, 0).await.unwrap();
    assert_eq!(total, 0);
}
