//! The whole application: the node, and what only some of its resources use. Routes and commands put it together and
//! hold it; a resource takes the part that it works on.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::FromRef;

use crate::calls::bridge::telephone::{Calling, Telephone};
use crate::http::document::Written;
use crate::node::{Node, Parts};
use crate::sip_trunks::Trunks;
use crate::supervisor::Fault;
use crate::tts::{SoundBudget, Tts};

/// How often it is looked whether a thread has died.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The application. Cheap to clone.
#[derive(Clone, Debug)]
pub struct App(Arc<Whole>);

/// Its parts.
#[derive(Debug)]
pub struct Whole {
    pub node: Node,
    /// The SIP stack, once it listens.
    pub telephone: Telephone,
    /// Sound on its way to clients who asked for a text.
    pub tts: Arc<SoundBudget>,
    /// The OpenAPI document as it is sent: made when it is first asked for.
    pub openapi: OnceLock<Written>,
}

impl App {
    pub fn new(parts: Parts) -> Self {
        let node = Node::new(parts);
        Self(Arc::new(Whole {
            telephone: Telephone::default(),
            tts: SoundBudget::new(node.config.speech.tts_memory_mib),
            openapi: OnceLock::new(),
            node,
        }))
    }

    /// What died that lives as long as the process. Asked, too, are the threads of engine and stack, which know nothing
    /// of it.
    pub fn fault(&self) -> Option<Fault> {
        while let Some((name, how)) = self.engine.fallen() {
            self.supervisor.ended(&format!("thread {name}"), how);
        }
        self.telephone.look_after(&self.supervisor);
        self.supervisor.fault()
    }

    /// Resolves when something has died that lives as long as the process.
    pub async fn failed(&self) -> Fault {
        loop {
            if let Some(fault) = self.fault() {
                return fault;
            }
            // A thread tells nobody of its end.
            let _ = tokio::time::timeout(LOOK_EVERY, self.supervisor.failed()).await;
        }
    }
}

impl Deref for App {
    type Target = Whole;

    fn deref(&self) -> &Whole {
        &self.0
    }
}

impl Deref for Whole {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl FromRef<App> for Node {
    fn from_ref(app: &App) -> Self {
        app.node.clone()
    }
}

impl FromRef<App> for Calling {
    fn from_ref(app: &App) -> Self {
        Self {
            node: app.node.clone(),
            telephone: app.telephone.clone(),
        }
    }
}

impl FromRef<App> for Trunks {
    fn from_ref(app: &App) -> Self {
        Self {
            node: app.node.clone(),
            stack: Arc::new(app.telephone.clone()),
        }
    }
}

impl FromRef<App> for Tts {
    fn from_ref(app: &App) -> Self {
        Self {
            node: app.node.clone(),
            desk: Arc::clone(&app.tts),
        }
    }
}
