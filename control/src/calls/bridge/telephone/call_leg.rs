//! One leg of an inbound call: its record, and its slot while the leg lives.

use std::sync::Arc;

use super::called::Called;
use crate::admission::{Lease, Renewal, Request};
use crate::calls::dial::store as dial;
use crate::calls::journal::Owner;
use crate::calls::lifecycle;
use crate::calls::live::{Canceled, Dialling};
use crate::calls::rules::Ending;
use crate::http::ApiError;
use crate::ids::{AccountId, CallId};
use crate::node::Node;

/// The caller's leg while it rings or is forwarded, or the leg of the callee to whom it is forwarded.
pub(super) struct CallLeg {
    app: Node,
    pub(super) account: AccountId,
    pub(super) id: CallId,
    pub(super) dialling: Arc<Dialling>,
    /// One that only rings has none.
    lease: Option<Lease>,
}

impl CallLeg {
    /// A leg that goes out, with its slot.
    pub(super) async fn take(app: &Node, wish: Request) -> Result<Self, ApiError> {
        let (account, id, slot) = (wish.account, wish.lease, Renewal::from(&wish));
        let lease = app.admit(wish).await?;
        let dialling = Arc::new(Dialling::new(account, slot));
        // Renewed, and found by who ends it.
        app.live.dial(id, Arc::clone(&dialling));
        Ok(Self {
            app: app.clone(),
            account,
            id,
            dialling,
            lease: Some(lease),
        })
    }

    /// A call that came in and rings: who ends it finds it, and a process that ends waits for it. `None`: as many
    /// ring over its trunk as it may have calls.
    pub(super) fn ring(app: &Node, called: &Called) -> Option<Self> {
        let (account, trunk) = (called.account, called.room());
        let id = CallId::new(&app.clock);
        let dialling = Arc::new(Dialling::came_in(account, trunk.map(|(trunk, _)| trunk)));
        // A number with rules came over a trunk.
        let most = trunk.map_or(0, |(_, most)| most);
        let room = app.live.ring(id, Arc::clone(&dialling), most);
        room.then(|| Self {
            app: app.clone(),
            account,
            id,
            dialling,
            lease: None,
        })
    }

    /// Takes the slot of a call that rings.
    pub(super) async fn hold(&mut self, wish: Request) -> Result<(), ApiError> {
        let slot = Renewal::from(&wish);
        self.lease = Some(self.app.admit(wish).await?);
        self.dialling.hold(slot);
        Ok(())
    }

    /// Writes its end.
    pub(super) async fn write(&self, ending: Ending) {
        let owner = Owner {
            account: self.account,
            call: self.id,
            incarnation: self.app.incarnation.number,
        };
        lifecycle::write_end(&self.app, owner, ending).await;
    }

    /// Writes down that it is answered. `false`: it is not this process's any more.
    pub(super) async fn answered(&self) -> bool {
        let (app, now) = (&self.app, self.app.clock.now());
        let number = app.incarnation.number;
        match dial::answered(&app.db, self.account, self.id, number, now).await {
            Ok(ours) => {
                self.dialling.answered(app.clock.moment());
                ours
            }
            Err(error) => {
                tracing::error!(%error, "the answer to a call could not be written down");
                false
            }
        }
    }
}

impl Drop for CallLeg {
    fn drop(&mut self) {
        self.app.live.dialled(self.id);
    }
}

/// Who ended the call, as its record names them.
pub(super) const fn name(by: Canceled) -> &'static str {
    match by {
        Canceled::Api => "api",
        Canceled::Drain | Canceled::Blocked => "system",
    }
}
