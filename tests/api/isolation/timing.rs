//! How long an answer takes does not tell either whether the row is there.

use std::time::Instant;

use control::routes;
use http::Method;
use uuid::Uuid;

use super::world::{World, is_keyed, kind, with_ids};
use crate::grid::body_for;

/// The most that the medians may be apart, microseconds.
const APART: i64 = 1000;

#[tokio::test]
async fn an_unknown_id_and_another_accounts_take_the_same_time() {
    let soak = std::env::var_os("SIDETONE_SOAK").is_some();
    let rounds = if soak { 1000 } else { 60 };
    let world = World::new().await;
    // Of all routes, and of each.
    let (mut pairs, mut all) = (Vec::new(), Vec::new());
    let mut worst = (0, String::new());
    for endpoint in routes::endpoints() {
        let path = endpoint.full_path();
        let named: Vec<_> = path.split('/').filter_map(|p| kind(&path, p)).collect();
        if !is_keyed(&endpoint) || named.is_empty() || named.contains(&"voice") {
            continue;
        }
        // A trunk that is not there is deleted already.
        let absent = match endpoint.method == Method::DELETE && path.contains("/sip-trunks/") {
            true => 204,
            false => 404,
        };
        let bodiless = [Method::GET, Method::DELETE].contains(&endpoint.method);
        let body = (!bodiless).then(|| body_for(&endpoint).to_string().into_bytes());
        let ask = async |path: String| {
            let (method, body) = (endpoint.method.clone(), body.clone());
            let began = Instant::now();
            let answer = world.other.client.send(method, &path, body).await;
            let took = began.elapsed().as_micros();
            answer.expect(absent);
            i64::try_from(took).unwrap_or(i64::MAX)
        };
        let anothers = format!(
            "/{}",
            with_ids(&endpoint, |kind| world.first.row(kind).into())
        );
        let unknown = || format!("/{}", with_ids(&endpoint, |_| Uuid::new_v4().to_string()));
        let (mut theirs, mut nobodys) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // In turn, so that whatever else the machine does meets both.
            if round % 2 == 0 {
                theirs.push(ask(anothers.clone()).await);
                nobodys.push(ask(unknown()).await);
            } else {
                nobodys.push(ask(unknown()).await);
                theirs.push(ask(anothers.clone()).await);
            }
        }
        let differences = theirs.iter().zip(&nobodys).map(|(a, b)| a - b);
        pairs.extend(differences);
        let apart = median(&mut theirs) - median(&mut nobodys);
        if apart.abs() > worst.0 {
            worst = (apart.abs(), format!("{} {path}", endpoint.method));
        }
        all.push(apart);
    }
    println!(
        "{} routes, {rounds} pairs each: medians at most {} us apart ({}), in the median {} us",
        all.len(),
        worst.0,
        worst.1,
        median(&mut all)
    );
    assert!(all.len() > 15, "only {} routes", all.len());
    let apart = median(&mut pairs);
    assert!(apart.abs() < APART, "{apart} us apart");
    // A few dozen pairs of one route say little on a machine with other work.
    assert!(
        !soak || worst.0 < APART,
        "{} us apart: {}",
        worst.0,
        worst.1
    );
}

fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}
