//! Why a number is not called. Pure.

/// Who wanted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The account added it.
    Manual,
    /// The person asked for it.
    PersonRequest,
    /// The person texted STOP.
    SmsStop,
}

impl Source {
    pub const NAMES: &'static [&'static str] = &["manual", "person_request", "sms_stop"];
    /// Those that a client may write.
    pub const WRITABLE: &'static [&'static str] = &["manual", "person_request"];

    /// The word of the API.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether the account may take it off the list again.
    pub const fn releasable(self) -> bool {
        matches!(self, Self::Manual)
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Manual, Self::PersonRequest, Self::SmsStop]
            .into_iter()
            .find(|source| source.name() == name)
            .ok_or_else(|| format!("no source {name}"))
    }
}
