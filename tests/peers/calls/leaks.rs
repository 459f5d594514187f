//! Many short calls, one after the other: none leaves memory or a file behind.

use std::time::Duration;

use futures_util::future::join_all;
use kit::server::Server;
use kit::socket::{Caller, native};
use tokio::time::{Instant, sleep};

use crate::stage;

/// Calls at a time.
const TOGETHER: usize = 20;

/// Row 59.
#[tokio::test]
async fn short_calls_leave_neither_memory_nor_files_behind() {
    let _together = stage::together().await;
    // What a run of a few hundred shows is a call that is kept; what grows slowly needs thousands.
    let (calls, most) = if stage::soak() {
        (5_000, 1.0)
    } else {
        (300, 24.0)
    };
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, serde_json::json!({})).await;
    // Pools, threads and caches take what they need.
    let warm = calls / 5;
    short_calls(&server, &agent, warm).await;
    let files = files(&server);
    let mut points = vec![(0.0, memory(&server))];
    let mut done = 0;
    while done < calls {
        short_calls(&server, &agent, calls / 10).await;
        done += calls / 10;
        points.push((done as f64, memory(&server)));
    }
    let slope = slope(&points);
    let until = Instant::now() + Duration::from_secs(20);
    while self::files(&server) > files && Instant::now() < until {
        sleep(Duration::from_millis(100)).await;
    }
    let left = self::files(&server);
    println!(
        "{done} calls: {slope:.2} KiB of memory a call, {files} files open before, {left} after: {points:?}"
    );
    assert!(left <= files, "{files} files were open, {left} are");
    assert!(slope < most, "{slope:.2} KiB a call: {points:?}");
}

/// So many calls, each group written down before the next begins: more than the disk takes would wait in
/// memory.
async fn short_calls(server: &Server, agent: &str, count: usize) {
    let client = &server.client();
    let mut left = count;
    while left > 0 {
        let now = left.min(TOGETHER);
        left -= now;
        join_all((0..now).map(async |_| {
            let mut caller = Caller::call(client, &native(agent)).await;
            caller.listen(200).await;
            caller.hang_up().await;
        }))
        .await;
        settled(server).await;
    }
}

/// Waits until no call lives and none is being written down.
async fn settled(server: &Server) {
    let client = server.client();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let calls = client
            .get("/calls?status=in_progress&limit=1")
            .await
            .expect(200);
        let recordings = client.get("/recordings?limit=100").await.expect(200);
        let items = recordings.body["items"].as_array().unwrap();
        let uploading = items.iter().any(|r| r["status"] == "uploading");
        if calls.body["total"] == 0 && !uploading {
            return;
        }
        assert!(Instant::now() < until, "not settled: {}", calls.body);
        sleep(Duration::from_millis(50)).await;
    }
}

fn memory(server: &Server) -> f64 {
    server.memory_kib() as f64
}

fn files(server: &Server) -> usize {
    let folder = format!("/proc/{}/fd", server.pid());
    std::fs::read_dir(folder).expect("the server runs").count()
}

/// KiB a call: the median of the slopes between all pairs of points (Theil and Sen), which one odd point
/// does not move.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mut slopes = Vec::new();
    for (place, (x, y)) in points.iter().enumerate() {
        for (later_x, later_y) in &points[place + 1..] {
            slopes.push((later_y - y) / (later_x - x));
        }
    }
    stage::median(&mut slopes)
}
