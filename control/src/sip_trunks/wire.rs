//! Bodies of the trunk routes.

use super::rules::{
    AuthMode, Destinations, FromUser, ListMode, MediaEncryption, OutboundAuth, RegistrationStatus,
    Status, Transport, TrunkType, host_and_port,
};
use super::store::{FailedCall, Failure, RefusedMessage, Registration, Trunk};
use crate::http::validate::{Kind, is_plain};
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, CallId, TrunkId};
use crate::numbers::DialFormat;
use crate::phone_numbers::RoutingRules;
use crate::phone_numbers::wire::PhoneNumberRecord;
use crate::time::Timestamp;

/// Text without markup and control characters.
pub const PLAIN_NAME: Kind = Kind::Pattern {
    name: r"^(?=[\s\S]*\S)[^\u0000-\u001f\u007f-\u009f<>]{1,255}$",
    check: |text| is_plain(text) && !text.trim().is_empty(),
};

/// What a SIP header carries without quoting it.
const USERNAME: Kind = Kind::Pattern {
    name: r"^[!#-&(-;=?A-\[\]-~]{1,128}$",
    check: |text| {
        (1..=128).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"\"'\\<>@".contains(&byte))
    },
};

const PASSWORD: Kind = Kind::Pattern {
    name: r"^[^\u0000-\u001f\u007f-\u009f]{1,128}$",
    check: |text| (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control),
};

const HOST: Kind = Kind::Pattern {
    name: r"^(?=.{1,255}$)(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?|[0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$",
    check: |text| text.len() <= 255 && host_and_port(text).is_some(),
};

const REALM: Kind = Kind::Pattern {
    name: r"^(?=.{1,253}$)(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?|[0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\])$",
    check: |text| {
        text.len() <= 253 && matches!(host_and_port(text), Some((host, None)) if host == text)
    },
};

/// What a block of addresses must be stands in `service.rs`, which knows the setting for laboratories.
const ADDRESSES: Kind = Kind::list(&Kind::Str { min: 1, max: 43 }, 0, 100);

const CALLS: Kind = Kind::int(1, 1_000_000);

const NUMBERS: Kind = Kind::list(&Kind::WIRE_NUMBER, 0, 100);
const NEW_NUMBERS: Kind = Kind::list(&Kind::WIRE_NUMBER, 1, 100);
const EXPIRES: Kind = Kind::int(30, 3600);
const CARRIER_MODES: Kind = Kind::Enum(&["digest", "ip_acl", "digest_plus_ip_acl"]);

const MD5: &str = "Whether the carrier's challenges with MD5 and without qop are answered (default false): whoever \
    sees such an answer may try passwords on it with tables that were made before";
const REDIRECTS: &str = "Whether a call that the carrier redirects (301, 302, 305) is placed anew to the number that it \
    names, over this trunk, as far as the trunk's destinations allow it; at most twice (default false)";
const TRANSPORT: &str = "How SIP goes to the carrier (default udp)";
const ENCRYPTION: &str = "SRTP with keys in the SDP (default allow: as the other side wants)";
const FORMAT: &str = "How the called number is written to the carrier (default e164)";
const ALLOWLIST: &str = "Whom may be called over it";
const CONCURRENT: &str =
    "Calls at the same time (default 10); no more than the platform lets a trunk have";
const PER_HOUR: &str =
    "Calls placed within an hour; no more than the platform lets a trunk have. Null: no limit";

body! {
    /// `POST /sip-trunks/onboard`.
    pub struct OnboardTrunk = "OnboardTrunk";
    required name: String = PLAIN_NAME, "A label";
    required outbound_address: String = HOST, "The carrier's host, or host:port";
    required numbers: Vec<String> = NEW_NUMBERS, "Caller ids to register, as the carrier knows them";
    optional auth_mode: AuthMode = CARRIER_MODES, "How the carrier knows us (default digest)";
    optional auth_username: String = USERNAME, "With auth_password.";
    optional auth_password: String = PASSWORD, "Write-only.";
    default allow_md5_without_qop: bool, MD5;
    default follow_redirects: bool, REDIRECTS;
    optional transport: Transport, TRANSPORT;
    optional media_encryption: MediaEncryption, ENCRYPTION;
    optional outbound_dial_format: DialFormat, FORMAT;
    nullable agent_id: AgentId, "Who answers calls to the numbers";
    nullable inbound: RoutingRules, "What is done when no agent answers";
    optional outbound_enabled: bool, "Whether calls may be placed from the numbers (default true)";
    nullable destination_allowlist: Destinations, ALLOWLIST;
    optional max_concurrent_calls: u32 = CALLS, CONCURRENT;
    nullable calls_per_hour_limit: u32 = CALLS, PER_HOUR;
    default set_as_tenant_default: bool,
        "Whether it becomes the account's default outbound trunk (default false)";
}

body! {
    /// `POST /sip-trunks`.
    pub struct CreateTrunk = "CreateTrunk";
    required name: String = PLAIN_NAME, "A label";
    required kind as "type": TrunkType, "Which way calls go";
    default numbers: Vec<String> = NUMBERS,
        "Outbound: the first is presented as caller id. Inbound: the called numbers that are taken, exactly as the \
         carrier sends them; none for all";
    default allowed_addresses: Vec<String> = ADDRESSES,
        "Where inbound calls come from: public IPv4 addresses, or blocks of /24 to /32; IPv6 ones, or blocks of /64 \
         to /128, where the deployment allows them";
    optional auth_mode: AuthMode,
        "How the two sides know one another (default digest); register on inbound trunks";
    optional outbound_auth: OutboundAuth,
        "auth_mode register: where calls that are placed go (default proxy)";
    optional outbound_from_user: FromUser,
        "auth_mode register: who calls (default number); never changes";
    optional auth_username: String = USERNAME, "With auth_password.";
    optional auth_password: String = PASSWORD, "Write-only.";
    default allow_md5_without_qop: bool, MD5;
    default follow_redirects: bool, REDIRECTS;
    optional outbound_address: String = HOST,
        "The carrier's host, or host:port; required of outbound trunks. auth_mode register: the registrar";
    optional realm: String = REALM,
        "auth_mode register: the domain that is registered with (default the registrar's host)";
    optional register_expires: u32 = EXPIRES, "auth_mode register: seconds (default 120)";
    optional transport: Transport, TRANSPORT;
    optional media_encryption: MediaEncryption, ENCRYPTION;
    optional outbound_dial_format: DialFormat, FORMAT;
    nullable destination_allowlist: Destinations, ALLOWLIST;
    optional max_concurrent_calls: u32 = CALLS, CONCURRENT;
    nullable calls_per_hour_limit: u32 = CALLS, PER_HOUR;
}

body! {
    /// `PATCH /sip-trunks/{id}`.
    pub struct PatchTrunk = "UpdateTrunk";
    optional name: String = PLAIN_NAME, "A label";
    optional numbers: Vec<String> = NUMBERS, "Inbound trunks only";
    optional allowed_addresses: Vec<String> = ADDRESSES, "Inbound trunks only";
    clearable destination_allowlist: Destinations, ALLOWLIST;
    optional max_concurrent_calls: u32 = CALLS, CONCURRENT;
    clearable calls_per_hour_limit: u32 = CALLS, PER_HOUR;
    optional outbound_dial_format: DialFormat, FORMAT;
    optional auth_mode: AuthMode,
        "Inbound trunks only, with the credentials of the new mode; neither to nor from register";
    optional auth_username: String = USERNAME, "With auth_password.";
    optional auth_password: String = PASSWORD, "Write-only.";
    optional allow_md5_without_qop: bool, MD5;
    optional follow_redirects: bool, REDIRECTS;
    optional status: Status, "Whether calls go over it";
}

answer! {
    /// A trunk as it is answered.
    pub struct TrunkRecord = "SipTrunk" of Trunk (active: u32, failed: u32, last_failed: Option<FailedCall>)
        uses(password_sealed, destinations, registration, refused_challenge, refused_message) hides(account) {
        id: TrunkId,
        name: String,
        #[serde(rename = "type")]
        kind: TrunkType,
        numbers: Vec<String>,
        allowed_addresses: Vec<String>,
        auth_mode: AuthMode,
        auth_username: Option<String>,
        /// A password is kept; it is never shown.
        has_credentials: bool = password_sealed.is_some(),
        /// Challenges with MD5 and without qop are answered.
        allow_md5_without_qop: bool,
        /// Calls that the carrier redirects are placed anew.
        follow_redirects: bool,
        outbound_address: Option<String>,
        realm: Option<String>,
        register_expires: Option<u32>,
        outbound_auth: Option<OutboundAuth>,
        outbound_from_user: Option<FromUser>,
        transport: Transport,
        media_encryption: MediaEncryption,
        outbound_dial_format: DialFormat,
        destination_allowlist: Option<DestinationsRecord> = destinations.map(Into::into),
        max_concurrent_calls: u32,
        calls_per_hour_limit: Option<u32>,
        is_default_outbound: bool,
        status: Status,
        /// Null unless the trunk registers.
        registration: Option<RegistrationRecord> = registration.map(Into::into),
        /// Calls over it that are not over.
        active_calls: u32 = active,
        /// Calls over it, made within the last 24 hours, that ended as `failed`, `no-answer` or `busy`.
        failed_calls: u32 = failed,
        /// The one of them that ended last.
        last_failed_call: Option<FailedCallRecord> = last_failed.map(Into::into),
        /// The latest challenge to a request over it that was not answered. The password is given to the trunk's own hosts
        /// alone, in the realm in which they asked first for a REGISTER or for the first INVITE.
        last_refused_challenge: Option<RefusedChallenge> = refused_challenge.map(Into::into),
        /// The latest message from an address of its carrier that was not used: it was malformed, or wanted what is not
        /// known here.
        last_refused_message: Option<RefusedMessageRecord> = refused_message.map(|refused| (*refused).into()),
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

answer! {
    /// Whom a trunk may call.
    pub struct DestinationsRecord = "Destinations" of Destinations {
        mode: ListMode,
        entries: Vec<String>,
    }
}

answer! {
    /// Where a trunk stands with its registrar.
    pub struct RegistrationRecord = "Registration" of Registration uses(last_failure) hides(realms) {
        status: RegistrationStatus,
        expires_at: Option<Timestamp>,
        /// Why the last attempt failed.
        last_error: Option<String>,
        /// The latest failure, also where later attempts succeeded. Null when none has failed since the trunk was made
        /// or set active.
        last_failure: Option<FailureRecord> = last_failure.map(Into::into),
    }
}

answer! {
    /// A registration that failed.
    pub struct FailureRecord = "RegistrationFailure" of Failure {
        at: Timestamp,
        /// The registrar's response code; null when it gave no response.
        code: Option<u16>,
        reason: String,
    }
}

answer! {
    /// A challenge that was not answered, so that its request failed.
    pub struct RefusedChallenge = "RefusedChallenge" of Failure {
        at: Timestamp,
        /// 401 or 407.
        code: Option<u16>,
        /// The method of the request, and why.
        reason: String,
    }
}

answer! {
    /// A message of a carrier that was not used.
    pub struct RefusedMessageRecord = "RefusedMessage" of RefusedMessage {
        at: Timestamp,
        /// Where it came from, address and port.
        source: String,
        /// The method of a request; the code and method of a response, such as `200 INVITE`.
        method: String,
        /// The Call-ID of the message; empty when it had none, or may be of another account.
        call_id: String,
        /// The field that is at fault; null where it is none in particular.
        header: Option<String>,
        /// What it was answered with; null when it got no answer.
        code: Option<u16>,
        reason: String,
    }
}

answer! {
    /// A call over a trunk that failed.
    pub struct FailedCallRecord = "FailedCall" of FailedCall uses(call, at, code) {
        call_id: CallId = call,
        ended_at: Timestamp = at,
        #[schemars(extend("enum" = ["failed", "no-answer", "busy"]))]
        status: String,
        /// The final response of SIP; null when there was none.
        sip_code: Option<u32> = code,
    }
}

/// What onboarding made.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct OnboardedTrunk {
    pub trunk: TrunkRecord,
    pub phone_numbers: Vec<PhoneNumberRecord>,
}
