//! What a request costs: the program's CPU time beside that of a bare axum and sqlx handler with the same
//! queries (`tests/bare`), in one run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures_util::future::join_all;
use kit::server::reqwest_client;
use kit::socket::{agent, native};
use serde_json::json;

use crate::stage;

/// Ours may cost this many times as much.
const MOST: f64 = 1.5;

/// The same of the short run, which only sees whether something went far astray.
const MOST_IN_SHORT: f64 = 4.0;

/// Clients at a time, each with a connection of its own.
const CLIENTS: usize = 4;

/// The bare server, ended with the test.
struct Bare {
    child: Child,
    url: String,
}

impl Bare {
    fn start(database: &Path) -> Self {
        let program = kit::server::program().with_file_name("bare");
        let mut child = Command::new(program)
            .arg(database)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tests/bare is built with the tests");
        let mut url = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        Self { child, url }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request.
#[derive(Clone, Copy)]
enum Ask<'a> {
    Agent(&'a str),
    Connect(&'a str),
}

/// CPU time of all threads of a process so far, ns (`/proc/<pid>/task/*/schedstat`).
fn cpu(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().filter_map(of).sum()
}

/// Asks so often; CPU time a request, µs.
async fn cost(pid: u32, url: &str, key: &str, ask: Ask<'_>, times: usize) -> f64 {
    let clients = (0..CLIENTS).map(|_| reqwest_client());
    let before = cpu(pid);
    join_all(clients.map(async |http| {
        for _ in 0..times / CLIENTS {
            let request = match ask {
                Ask::Agent(id) => http.get(format!("{url}/api/v1/agents/{id}")),
                Ask::Connect(id) => http
                    .post(format!("{url}/api/v1/conversation/connect"))
                    .json(&native(id)),
            };
            let answer = request.header("x-api-key", key).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 200);
            answer.bytes().await.unwrap();
        }
    }))
    .await;
    (cpu(pid) - before) as f64 / times as f64 / 1000.0
}

#[tokio::test]
async fn a_request_costs_little_more_than_its_queries() {
    let _alone = stage::alone().await;
    let (rounds, times) = if stage::soak() { (15, 4000) } else { (7, 800) };
    let many = "1000000";
    let server = stage::setup()
        .set("LIMITS__ACCOUNT_CALLS", many)
        .set("LIMITS__POOL_CALLS", many)
        .set("LIMITS__NODE_CALLS", many)
        .start()
        .await;
    let client = server.client();
    let agent = agent(&client, json!({})).await;
    let copy = server.data.join("copy.db");
    let db = server.database().await;
    let vacuum = format!("vacuum into '{}'", copy.display());
    db.query_built(vacuum).execute().await.unwrap();
    db.close().await;
    let bare = Bare::start(&copy);
    for (what, ask) in [
        ("GET /agents/{id}", Ask::Agent(&agent)),
        ("POST /conversation/connect", Ask::Connect(&agent)),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let our = cost(server.pid(), &server.url, &server.key, ask, times).await;
            let their = cost(bare.child.id(), &bare.url, &server.key, ask, times).await;
            // The first round warms both up.
            if round > 0 {
                ours.push(our);
                theirs.push(their);
            }
        }
        let (ours, theirs) = (stage::median(&mut ours), stage::median(&mut theirs));
        let ratio = ours / theirs;
        println!("{what}: {ours:.0} us of CPU, bare {theirs:.0} us: {ratio:.2} times");
        let most = if stage::soak() { MOST } else { MOST_IN_SHORT };
        assert!(ratio <= most, "{what}: {ratio:.2} times, at most {most}");
    }
}
