//! What may be dialled, and what the end of a call means that nobody answered. Pure.

use sip::event::EndedBy;

use crate::calls::rules::{CallStatus, ConversationStatus};
use crate::ids::PhoneNumberId;
use crate::numbers::digits;
use crate::phone_numbers::{PhoneNumber, Provider};
use crate::sip_trunks::{FromUser, Trunk};
use crate::time::Timestamp;

/// How long a call rings when the request does not say, and the bounds of what it may say; seconds.
pub const RING_SECONDS: u32 = 30;
pub const RING_SECONDS_RANGE: (i64, i64) = (5, 90);

/// The largest metadata of a call, bytes of JSON: as much as an agent may have.
pub const METADATA_LIMIT: usize = 16 * 1024;

/// Why nothing is dialled from a number (document 1, Errors 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    Required,
    NotRegistered,
    Disabled,
}

impl Unfit {
    /// The word of the API.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "from_number_required",
            Self::NotRegistered => "not_registered",
            Self::Disabled => "outbound_disabled",
        }
    }

    /// The same for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Required => "from_number is required: a number of this account to call from",
            Self::NotRegistered => "from_number is not registered to this account",
            Self::Disabled => {
                "from_number may not place calls: set outbound_enabled with PATCH /phone-numbers/{id}"
            }
        }
    }
}

/// Whether this number of the account may place calls. On numbers of a telephony vendor
/// `outbound_enabled` has no effect (document 3).
pub fn may_call_from(number: &PhoneNumber) -> Result<(), Unfit> {
    match number.provider {
        Provider::Sip if !number.outbound_enabled => Err(Unfit::Disabled),
        _ => Ok(()),
    }
}

/// Who the carrier is told is calling.
#[derive(Clone, PartialEq, Eq)]
pub struct CallerId {
    /// The user of From.
    pub user: String,
    /// The number itself, where From has a user name (RFC 3325, P-Preferred-Identity).
    pub preferred: Option<String>,
}

/// The caller id of a call from this number over this trunk, written as the carrier was told it: in the
/// trunk's own list, else as the number was registered. A number that is neither of the trunk's list
/// nor linked to it stays behind the trunk's first number, which is the one that the carrier knows.
pub fn caller_id(trunk: &Trunk, number: &PhoneNumber) -> CallerId {
    let same = |listed: &&String| digits(listed) == digits(&number.phone_number);
    let presented = match trunk.numbers.iter().find(same) {
        Some(listed) => listed,
        None if number.trunk_id == Some(trunk.id) => &number.phone_number,
        None => trunk.numbers.first().unwrap_or(&number.phone_number),
    };
    match (trunk.outbound_from_user, &trunk.auth_username) {
        (Some(FromUser::Username), Some(name)) => CallerId {
            user: name.clone(),
            preferred: Some(presented.clone()),
        },
        _ => CallerId {
            user: presented.clone(),
            preferred: None,
        },
    }
}

/// A forwarded call that is not over, and the call that came in for which it was made.
#[derive(Clone, Debug)]
pub struct LiveForward {
    pub caller: Option<String>,
    pub called: Option<String>,
    pub number: Option<PhoneNumberId>,
    /// The caller and the callee of the call that went out, and whether somebody answered it.
    pub from: Option<String>,
    pub to: Option<String>,
    pub answered: bool,
    /// When the call that came in was there, and when the one that went out.
    pub came: Timestamp,
    pub went: Timestamp,
}

/// How a call ended that nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub status: CallStatus,
    /// A word of the API's `end_reason`.
    pub reason: &'static str,
    /// A word of the API's `ended_by`.
    pub ended_by: &'static str,
    /// The final response: the carrier's, or ours.
    pub sip_code: Option<u16>,
}

impl Unanswered {
    const NO_ANSWER: Self = Self::of(CallStatus::NoAnswer, "no_answer", "system");
    const BUSY: Self = Self::of(CallStatus::Busy, "busy", "system");
    const DECLINED: Self = Self::of(CallStatus::Busy, "declined", "caller");
    const INVALID: Self = Self::of(CallStatus::Failed, "invalid_number", "system");
    const CARRIER: Self = Self::of(CallStatus::Failed, "carrier_error", "system");

    /// An API client, or the server that ends, let go of it while it rang.
    pub const fn canceled(ended_by: &'static str) -> Self {
        Self::of(CallStatus::Canceled, "ended_by_api", ended_by)
    }

    /// A call that came in and rang, and that nobody took: with this final response of ours.
    pub const fn not_taken(code: u16) -> Self {
        let meant = match code {
            486 => Self::BUSY,
            _ => Self::NO_ANSWER,
        };
        Self {
            sip_code: Some(code),
            ..meant
        }
    }

    /// A caller who gave up while it rang (RFC 3261 section 9.2: 487).
    pub const fn caller_left() -> Self {
        Self {
            sip_code: Some(487),
            ..Self::of(CallStatus::Canceled, "caller_hangup", "caller")
        }
    }

    /// The answer could not be used, or the call did not reach the carrier.
    pub const fn carrier_error() -> Self {
        Self::CARRIER
    }

    /// The call could not be led on, by no fault of the carrier or the callee.
    pub const fn engine_error() -> Self {
        Self::of(CallStatus::Failed, "engine_error", "system")
    }

    const fn of(status: CallStatus, reason: &'static str, ended_by: &'static str) -> Self {
        Self {
            status,
            reason,
            ended_by,
            sip_code: None,
        }
    }

    /// Whose state the conversation is left in.
    pub const fn conversation(&self) -> ConversationStatus {
        match self.status {
            CallStatus::Failed => ConversationStatus::Failed,
            _ => ConversationStatus::Abandoned,
        }
    }
}

/// What the end of an INVITE means. The codes are those of RFC 3261 section 21, RFC 8197 and RFC 8688;
/// what stands behind them in the telephone network is in RFC 3398 section 8.2.6.1 and in the other
/// direction in 7.2.4.1. `by`: who ended it; [`EndedBy::Network`] has a code that our own stack made up.
/// `rang`: the carrier had said that it is on its way (101 to 199).
pub fn outcome(by: EndedBy, code: Option<u16>, rang: bool) -> Unanswered {
    let meant = match (by, code) {
        // It rang as long as it may; 408 is the stack's own word for that.
        (EndedBy::Local, Some(408)) if rang => return Unanswered::NO_ANSWER,
        // The carrier never answered, or the call never left.
        (EndedBy::Local | EndedBy::Network, _) | (_, None) => return Unanswered::CARRIER,
        (EndedBy::Remote, Some(code)) => match code {
            // Nobody there: temporarily unavailable; a proxy's timer; a request that a proxy ended.
            408 | 480 | 487 => Unanswered::NO_ANSWER,
            // Busy here; busy everywhere.
            486 | 600 => Unanswered::BUSY,
            // Declined; unwanted; rejected on the callee's behalf.
            603 | 607 | 608 => Unanswered::DECLINED,
            // Not found; gone; address incomplete; ambiguous; URI that is too long or of an unknown
            // kind; exists nowhere.
            404 | 410 | 414 | 416 | 484 | 485 | 604 => Unanswered::INVALID,
            // Redirections are not followed: a carrier that means them would have callers pay for
            // another number. The rest are refusals and faults of the carrier.
            _ => Unanswered::CARRIER,
        },
    };
    Unanswered {
        sip_code: code,
        ..meant
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{AccountId, PhoneNumberId, TrunkId};
    use crate::sip_trunks::{AuthMode, DialFormat, MediaEncryption, Status, Transport, TrunkType};
    use crate::time::Timestamp;

    fn number(
        provider: Provider,
        outbound_enabled: bool,
        trunk_id: Option<TrunkId>,
    ) -> PhoneNumber {
        PhoneNumber {
            id: PhoneNumberId::NIL,
            account: AccountId::NIL,
            phone_number: "+4930123456".to_owned(),
            provider,
            friendly_name: String::new(),
            agent_id: None,
            outbound_enabled,
            trunk_id,
            routing_rules: None,
            telco_account_id: None,
            messaging_account_id: None,
            sms_sender: false,
            sms_sender_default: false,
            sms_inbound: false,
            replies_acknowledged_at: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    pub(crate) fn trunk(numbers: &[&str]) -> Trunk {
        Trunk {
            id: TrunkId(Uuid::from_u128(7)),
            account: AccountId::NIL,
            name: "carrier".to_owned(),
            kind: TrunkType::Outbound,
            numbers: numbers.iter().map(|&text| text.to_owned()).collect(),
            allowed_addresses: Vec::new(),
            auth_mode: AuthMode::Digest,
            auth_username: Some("acme".to_owned()),
            password_sealed: None,
            allow_md5_without_qop: false,
            follow_redirects: false,
            outbound_address: Some("sip.carrier.example".to_owned()),
            realm: None,
            register_expires: None,
            outbound_auth: None,
            outbound_from_user: None,
            transport: Transport::Udp,
            media_encryption: MediaEncryption::Allow,
            outbound_dial_format: DialFormat::E164,
            destinations: None,
            max_concurrent_calls: 10,
            calls_per_hour_limit: None,
            is_default_outbound: false,
            status: Status::Active,
            registration: None,
            refused_challenge: None,
            refused_message: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    #[test]
    fn a_number_must_be_enabled_unless_it_is_a_vendors() {
        assert_eq!(may_call_from(&number(Provider::Sip, true, None)), Ok(()));
        assert_eq!(
            may_call_from(&number(Provider::Sip, false, None)),
            Err(Unfit::Disabled)
        );
        assert_eq!(may_call_from(&number(Provider::Telco, false, None)), Ok(()));
    }

    #[test]
    fn the_carrier_is_shown_the_number_as_it_was_given() {
        let own = Some(TrunkId(Uuid::from_u128(7)));
        for (listed, linked, shown) in [
            (&["4930123456"][..], own, "4930123456"),
            (&["4989999"], own, "+4930123456"),
            (&[], own, "+4930123456"),
            // Over the agent's trunk or the default one: the carrier does not know the number.
            (&["4989999", "4930123456"], None, "4930123456"),
            (&["4989999"], None, "4989999"),
            (&[], None, "+4930123456"),
        ] {
            let shows = caller_id(&trunk(listed), &number(Provider::Sip, true, linked));
            assert_eq!(shows.user, shown, "{listed:?}");
            assert_eq!(shows.preferred, None);
        }
        let mut registers = trunk(&[]);
        registers.outbound_from_user = Some(FromUser::Username);
        let shows = caller_id(&registers, &number(Provider::Sip, true, own));
        assert_eq!(shows.user, "acme");
        assert_eq!(shows.preferred.as_deref(), Some("+4930123456"));
    }

    #[test]
    fn every_final_response_has_its_meaning() {
        for (code, status, reason) in [
            (300, "failed", "carrier_error"),
            (302, "failed", "carrier_error"),
            (401, "failed", "carrier_error"),
            (403, "failed", "carrier_error"),
            (404, "failed", "invalid_number"),
            (407, "failed", "carrier_error"),
            (408, "no-answer", "no_answer"),
            (410, "failed", "invalid_number"),
            (480, "no-answer", "no_answer"),
            (484, "failed", "invalid_number"),
            (486, "busy", "busy"),
            (487, "no-answer", "no_answer"),
            (488, "failed", "carrier_error"),
            (500, "failed", "carrier_error"),
            (503, "failed", "carrier_error"),
            (600, "busy", "busy"),
            (603, "busy", "declined"),
            (604, "failed", "invalid_number"),
            (607, "busy", "declined"),
            (608, "busy", "declined"),
        ] {
            let end = outcome(EndedBy::Remote, Some(code), false);
            assert_eq!((end.status.name(), end.reason), (status, reason), "{code}");
            assert_eq!(end.sip_code, Some(code));
            let failed = end.conversation() == ConversationStatus::Failed;
            assert_eq!(failed, status == "failed", "{code}");
        }
    }

    #[test]
    fn what_no_carrier_said_has_no_code() {
        for (by, code, rang, reason) in [
            (EndedBy::Local, Some(408), true, "no_answer"),
            // Nobody's telephone ever rang.
            (EndedBy::Local, Some(408), false, "carrier_error"),
            (EndedBy::Local, Some(404), false, "carrier_error"),
            (EndedBy::Network, Some(408), true, "carrier_error"),
            (EndedBy::Network, Some(503), false, "carrier_error"),
            (EndedBy::Remote, None, true, "carrier_error"),
        ] {
            let end = outcome(by, code, rang);
            assert_eq!(
                (end.reason, end.sip_code),
                (reason, None),
                "{by:?} {code:?}"
            );
        }
    }
}
