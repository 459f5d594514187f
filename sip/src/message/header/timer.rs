//! Session-Expires (RFC 4028 4).

use std::fmt;

use crate::message::scan::{self, Params};

/// Who refreshes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresher {
    /// The client of the request that the header stands in or answers.
    Uac,
    Uas,
}

impl Refresher {
    fn parse(text: &str) -> Option<Self> {
        let known = [("uac", Self::Uac), ("uas", Self::Uas)];
        let own = known.iter().find(|(own, _)| text.eq_ignore_ascii_case(own));
        own.map(|(_, refresher)| *refresher)
    }
}

/// How long a session lives without a refresh, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExpires {
    pub seconds: u32,
    pub refresher: Option<Refresher>,
}

impl SessionExpires {
    pub fn parse(text: &str) -> Option<Self> {
        let (seconds, params) = text.split_once(';').unwrap_or((text, ""));
        let seconds = u32::try_from(scan::number(scan::trim(seconds))?).ok()?;
        // What is unknown there says nothing, and the interval holds (RFC 3261 7.3.1).
        let refresher = Params::parse(params).and_then(|params| params.get("refresher"));
        let refresher = refresher.and_then(|refresher| Refresher::parse(&refresher));
        Some(Self { seconds, refresher })
    }
}

impl fmt::Display for SessionExpires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seconds)?;
        match self.refresher {
            Some(Refresher::Uac) => f.write_str(";refresher=uac"),
            Some(Refresher::Uas) => f.write_str(";refresher=uas"),
            None => Ok(()),
        }
    }
}
