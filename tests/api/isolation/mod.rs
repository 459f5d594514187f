//! Every route by every method, asked by every kind of caller for every kind of id: an account learns
//! nothing of another's rows, not even that they are there, and changes none of them.

mod callers;
mod timing;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use control::http::Access;
use control::http::endpoint::Operation;
use control::routes;
use http::Method;
use kit::client::Answer;
use kit::socket::native;
use serde_json::{Value, json};
use uuid::Uuid;

use self::callers::{Caller, Standing};
use self::world::{Account, MARK, World, is_keyed, kind, with_ids};
use crate::grid::{ADMIN, body_for};

/// An id in a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    /// Of the caller's own account.
    Own,
    /// Of the account that is to be kept apart.
    Anothers,
    /// Of nobody.
    Unknown,
    /// Of that account, but of another kind of row.
    Misplaced,
    Malformed(&'static str),
}

const ALL: [Which; 8] = [
    Which::Unknown,
    Which::Anothers,
    Which::Misplaced,
    Which::Own,
    Which::Malformed("not-a-uuid"),
    Which::Malformed("%27%20or%201%3D1%20--"),
    Which::Malformed("..%2F..%2Fagents"),
    Which::Malformed("%00"),
];

impl Which {
    fn id(self, world: &World, kind: &str) -> String {
        match self {
            Self::Own if kind != "token" => world.other.row(kind).to_owned(),
            Self::Malformed(text) => text.to_owned(),
            // Voices are everybody's, and no account owns a token.
            _ if ["voice", "token"].contains(&kind) => Uuid::new_v4().to_string(),
            Self::Anothers => world.first.row(kind).to_owned(),
            Self::Misplaced if kind == "agent" => world.first.row("call").to_owned(),
            Self::Misplaced => world.first.row("agent").to_owned(),
            Self::Own | Self::Unknown => Uuid::new_v4().to_string(),
        }
    }
}

/// Every method of HTTP that a client may try.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// One question, told by route, caller and id.
struct Asked<'a> {
    what: String,
    /// `None`: the path exists, the method does not.
    endpoint: Option<&'a Operation>,
    method: Method,
    caller: &'a Caller,
    which: Which,
    names: bool,
}

#[tokio::test]
async fn nobody_learns_of_another_accounts_rows() {
    let world = World::new().await;
    let callers = callers::all(&world).await;
    let before = world.first.seen().await;
    assert!(before.len() > 15, "{:?}", before.keys());
    assert!(
        before.values().any(|body| body.to_string().contains(MARK)),
        "the rows show no mark"
    );
    let endpoints = routes::endpoints();
    let mut paths: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for endpoint in &endpoints {
        paths
            .entry(endpoint.full_path())
            .or_default()
            .push(endpoint);
    }
    let mut cases = 0;
    for (path, mounted) in &paths {
        let names = path.split('/').any(|part| kind(path, part).is_some());
        for method in METHODS {
            // HEAD is GET without a body.
            let as_mounted = if method == Method::HEAD {
                &Method::GET
            } else {
                &method
            };
            let endpoint = mounted
                .iter()
                .find(|one| one.method == *as_mounted)
                .copied();
            for caller in &callers {
                let mut unknown = None;
                let ids = match endpoint {
                    _ if !names => 1,
                    // A method that does not exist does not look at the id.
                    None => 2,
                    Some(_) => ALL.len(),
                };
                for which in ALL.into_iter().take(ids) {
                    let asked = Asked {
                        what: format!("{method} {path}, {}, {which:?}", caller.name),
                        endpoint,
                        method: method.clone(),
                        caller,
                        which,
                        names,
                    };
                    if !asked.is_harmless() {
                        continue;
                    }
                    let answer = asked.send(&world, mounted[0]).await;
                    asked.check(&world, &answer);
                    // Whatever the credential is worth: the answer does not tell whose id it was.
                    match which {
                        Which::Unknown => unknown = Some(bare(&answer)),
                        // Document 2 answers 403 there.
                        Which::Anothers if path.ends_with("/offer") => {}
                        Which::Anothers | Which::Misplaced => {
                            assert_eq!(Some(bare(&answer)), unknown, "{}", asked.what);
                        }
                        _ => {}
                    }
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases over {} paths", paths.len());
    assert!(cases >= 3000, "only {cases} cases");
    assert_eq!(world.first.seen().await, before, "rows have changed");
    assert!(world.first.is_live(), "the live call was ended");
}

impl Asked<'_> {
    /// What a caller may do to its own rows is done in the tests of the resource.
    fn is_harmless(&self) -> bool {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&self.method);
        let own = self.which == Which::Own && self.caller.standing == Standing::Whole;
        reads || !own
    }

    async fn send(&self, world: &World, any: &Operation) -> Answer {
        let endpoint = self.endpoint.unwrap_or(any);
        let path = with_ids(endpoint, |kind| self.which.id(world, kind));
        let bodiless = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];
        let body = (!bodiless.contains(&self.method)).then(|| body_for(endpoint).to_string());
        let headers: Vec<(&str, &str)> = self.caller.headers();
        let client = world.server.anonymous();
        client
            .send_with(
                self.method.clone(),
                &format!("/{path}"),
                body.map(String::into_bytes),
                &headers,
            )
            .await
    }

    fn check(&self, world: &World, answer: &Answer) {
        let (what, status) = (&self.what, answer.status);
        assert!(status < 500, "{what}: {status} {}", answer.body);
        shows_nothing(&world.first, answer, what);
        let expected: &[u16] = match (self.endpoint.map(|e| e.access), self.caller.standing) {
            _ if self.method == Method::OPTIONS => &[204],
            (None, _) => &[405],
            (Some(Access::None), _) => return,
            // Keys are no credential there, and no id was signed.
            (Some(Access::SignedUrl), _) => &[400, 401, 403, 404, 422, 426],
            (Some(Access::Admin), _) => &[401],
            (Some(_), Standing::Nobody) => &[401],
            // The handler itself judges who may, after the form of the id.
            (Some(Access::Signed), Standing::Anonymous) => &[401, 422],
            (Some(Access::Signed), Standing::Scopeless) => &[403, 422],
            // Without a key the body says whom it is about, so its form is judged first.
            (Some(Access::PublicAgent(_)), Standing::Anonymous) => &[401, 422],
            (Some(_), Standing::Scopeless) => &[403],
            (Some(_), Standing::Anonymous) => &[401],
            (Some(_), Standing::Whole) => match self.which {
                _ if !self.names => return,
                Which::Anothers if self.what.contains("/offer,") => &[403],
                // What is not there is deleted already.
                Which::Unknown | Which::Anothers | Which::Misplaced
                    if self.what.starts_with("DELETE") && self.what.contains("/sip-trunks/") =>
                {
                    &[204]
                }
                Which::Unknown | Which::Anothers | Which::Misplaced => &[404],
                // The session at hand is one of a socket.
                Which::Own if self.what.contains("/offer,") => &[409],
                Which::Own => &[200],
                // A voice may be named by its slug, which may be any text.
                Which::Malformed(_) => &[404, 422],
            },
        };
        assert!(
            expected.contains(&status),
            "{what}: {status} {}",
            answer.body
        );
    }
}

/// The answer without what is of this request alone.
fn bare(answer: &Answer) -> (u16, Value, BTreeSet<String>) {
    let mut body = answer.body.clone();
    if let Some(map) = body.as_object_mut() {
        map.remove("request_id");
    }
    let names = answer.headers.keys().map(ToString::to_string).collect();
    (answer.status, body, names)
}

/// Neither a text nor an id of the account stands in the answer.
fn shows_nothing(account: &Account, answer: &Answer, what: &str) {
    let mut text = String::from_utf8_lossy(&answer.bytes).into_owned();
    for value in answer.headers.values() {
        text += value.to_str().unwrap_or_default();
    }
    assert!(!text.contains(MARK), "{what}: {text}");
    for id in account.ids() {
        assert!(!text.contains(id), "{what}: {id} in {text}");
    }
}

#[tokio::test]
async fn an_id_of_another_account_opens_nothing_in_a_body_a_query_or_a_token() {
    let world = World::new().await;
    let before = world.first.seen().await;
    let (theirs, client) = (&world.first, &world.other.client);
    let random = Uuid::new_v4().to_string();
    let agent = theirs.row("agent");

    // A body that names an agent.
    let connect = |id: &str| native(id);
    let answers = [
        client.post("/conversation/connect", &connect(agent)).await,
        client
            .post("/conversation/connect", &connect(&random))
            .await,
    ];
    assert_eq!(bare(&answers[0]), bare(&answers[1]));
    assert!((400..500).contains(&answers[0].status));
    // Filters that name a row, and a word that only the other account said.
    for list in [
        format!("/calls?agent_id={agent}"),
        format!("/conversations/search?q=hello&agent_id={agent}"),
        format!("/conversations/search?q={MARK}"),
    ] {
        let found = client.get(&list).await.expect(200);
        assert_eq!(found.body["total"], 0, "{list}");
        shows_nothing(theirs, &found, &list);
    }
    let search = format!("/conversations/search?q={MARK}");
    let own = theirs.client.get(&search).await.expect(200);
    assert!(own.body["total"].as_i64() > Some(0), "nothing to be found");
    for list in routes::endpoints() {
        if list.page.is_none() || !is_keyed(&list) {
            continue;
        }
        let path = with_ids(&list, |kind| world.other.row(kind).to_owned());
        let path = format!("/{path}?q=hello&limit=100");
        shows_nothing(theirs, &client.get(&path).await.expect(200), &path);
    }

    // A URL that was signed for a row of one's own, on another's.
    let (mine, call) = (world.other.row("call"), theirs.row("call"));
    let link = client.get(&format!("/conversations/{mine}/audio")).await;
    let token = link.expect(200).text("token");
    let heard = |id: &str, token: &str| format!("/conversations/{id}/audio.wav?token={token}");
    let anonymous = world.server.anonymous();
    anonymous.get(&heard(mine, &token)).await.expect(200);
    let answers = [
        anonymous.get(&heard(call, &token)).await.expect(401),
        anonymous.get(&heard(&random, &token)).await.expect(401),
    ];
    assert_eq!(bare(&answers[0]), bare(&answers[1]));
    // A key of one's own beside it opens no more.
    client.get(&heard(call, &token)).await.expect(404);
    let (mine, recording) = (world.other.row("recording"), theirs.row("recording"));
    let link = client.get(&format!("/recordings/{mine}/audio")).await;
    let url = link.expect(200).text("audio_url");
    anonymous.get(&url).await.expect(200);
    for id in [recording, random.as_str()] {
        let answer = anonymous.get(&url.replace(mine, id)).await.expect(401);
        shows_nothing(theirs, &answer, "another's recording");
    }
    // To take back a token of another's conversation is to ask for an unknown one.
    let token = theirs
        .client
        .get(&format!("/conversations/{call}/audio"))
        .await
        .expect(200)
        .text("token");
    let revoke = json!({"token": token});
    for id in [call, random.as_str()] {
        let path = format!("/conversations/{id}/audio/revoke");
        client.post(&path, &revoke).await.expect(404);
    }
    anonymous.get(&heard(call, &token)).await.expect(200);
    // The administrator's token is no key, and a key no administrator's token.
    let admin = world.server.anonymous().with_bearer(ADMIN);
    for route in routes::endpoints().iter().filter(|route| is_keyed(route)) {
        let path = with_ids(route, |kind| theirs.row(kind).to_owned());
        let body = b"{}".to_vec();
        let answer = admin
            .send(route.method.clone(), &format!("/{path}"), Some(body))
            .await;
        assert_eq!(answer.status, 401, "{path}");
    }
    client.get("/admin/accounts").await.expect(401);
    assert_eq!(world.first.seen().await, before, "rows have changed");
    assert!(world.first.is_live());
}
