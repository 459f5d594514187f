//! What a key may do.

use serde::{Serialize, Serializer};

use crate::words::words;

words! {
    /// One permission. The names are the API's.
    pub enum Scope {
        AgentsRead = "agents:read",
        AgentsWrite = "agents:write",
        CallsRead = "calls:read",
        CallsWrite = "calls:write",
        ConversationsRead = "conversations:read",
        RecordingsRead = "recordings:read",
        RecordingsWrite = "recordings:write",
        TranscribeUse = "transcribe:use",
        TtsUse = "tts:use",
        VoicesRead = "voices:read",
        VoicesWrite = "voices:write",
        PhoneNumbersRead = "phone_numbers:read",
        PhoneNumbersWrite = "phone_numbers:write",
        TelcoAccountsRead = "telco_accounts:read",
        TelcoAccountsWrite = "telco_accounts:write",
        SmsMessagesRead = "sms_messages:read",
        SmsMessagesWrite = "sms_messages:write",
        SmsInboxRead = "sms_inbox:read",
        SmsInboxWrite = "sms_inbox:write",
        SmsCampaignsRead = "sms_campaigns:read",
        SmsCampaignsWrite = "sms_campaigns:write",
        MessagingAccountsRead = "messaging_accounts:read",
        MessagingAccountsWrite = "messaging_accounts:write",
        ChatappAccountsRead = "chatapp_accounts:read",
        ChatappAccountsWrite = "chatapp_accounts:write",
        ChatappMessagesWrite = "chatapp_messages:write",
        ChatappInboxRead = "chatapp_inbox:read",
        ChatappInboxWrite = "chatapp_inbox:write",
        CarrierAccountsRead = "carrier_accounts:read",
        CarrierAccountsWrite = "carrier_accounts:write",
        CollabRead = "collab:read",
        CollabWrite = "collab:write",
        IntegrationsRead = "integrations:read",
        IntegrationsWrite = "integrations:write",
        SipTrunksRead = "sip_trunks:read",
        SipTrunksWrite = "sip_trunks:write",
        UsageRead = "usage:read",
        UsageWrite = "usage:write",
        ModelsRead = "models:read",
        ApiKeysRead = "api_keys:read",
        ApiKeysWrite = "api_keys:write",
    }
}

impl Scope {
    /// Whether a key made without a list of scopes has this one. Those that spend money, clone
    /// voices or make keys are granted deliberately.
    pub const fn in_default_bundle(self) -> bool {
        !matches!(
            self,
            Self::VoicesWrite
                | Self::SmsCampaignsWrite
                | Self::ChatappMessagesWrite
                | Self::ChatappInboxWrite
                | Self::ApiKeysRead
                | Self::ApiKeysWrite
        )
    }

    const fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// A set of scopes. As text: names in the API's order, with spaces between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u64);

impl Scopes {
    /// What a key gets that asked for nothing in particular.
    pub fn default_bundle() -> Self {
        Scope::ALL
            .iter()
            .copied()
            .filter(|scope| scope.in_default_bundle())
            .collect()
    }

    /// Everything.
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    pub const fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The first scope of these that `other` lacks.
    pub fn beyond(self, other: Self) -> Option<Scope> {
        self.iter().find(|scope| !other.has(*scope))
    }

    /// In the API's order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .iter()
            .copied()
            .filter(move |scope| self.has(*scope))
    }
}

impl schemars::JsonSchema for Scopes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Scopes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "array", "items": {"type": "string", "enum": Scope::NAMES}, "uniqueItems": true,
            "description": "What a key may do, in the order of this list."
        })
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            write!(f, "{}{scope}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Scopes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scope = |name: &str| {
            name.parse::<Scope>()
                .map_err(|_| format!("no scope {name}"))
        };
        text.split_ascii_whitespace().map(scope).collect()
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn names_round_trip_and_fit_the_set() {
        assert!(Scope::ALL.len() <= 64);
        assert_eq!(
            Scopes::all().to_string().parse::<Scopes>().unwrap(),
            Scopes::all()
        );
        assert!("agents:fly".parse::<Scopes>().is_err());
    }

    #[test]
    fn the_console_offers_every_scope() {
        let page = include_str!("../../web/page-keys.js");
        for scope in Scope::ALL {
            let word = format!("'{scope}'");
            assert!(page.contains(&word), "{word} is in none of its AREAS");
        }
    }

    #[test]
    fn the_default_bundle_leaves_out_what_is_granted_deliberately() {
        let left_out: Vec<&str> = Scope::ALL
            .iter()
            .filter(|scope| !Scopes::default_bundle().has(**scope))
            .map(|scope| scope.name())
            .collect();
        assert_eq!(
            left_out,
            [
                "voices:write",
                "sms_campaigns:write",
                "chatapp_messages:write",
                "chatapp_inbox:write",
                "api_keys:read",
                "api_keys:write"
            ]
        );
    }

    #[test]
    fn what_goes_beyond_is_named() {
        let few: Scopes = [Scope::AgentsRead].into_iter().collect();
        let more: Scopes = [Scope::AgentsRead, Scope::CallsRead].into_iter().collect();
        assert_eq!(more.beyond(few), Some(Scope::CallsRead));
        assert_eq!(few.beyond(more), None);
    }
}
