//! Bodies of the trunk routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{
    AuthMode, Destinations, DialFormat, FromUser, ListMode, MediaEncryption, OutboundAuth,
    RegistrationStatus, Status, Transport, TrunkType, host_and_port, is_destination,
    is_wire_number,
};
use super::store::{Failed, FailedCall, Failure, Registration, Traffic, Trunk};
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::http::{Patch, Wire};
use crate::ids::{AgentId, CallId, TrunkId};
use crate::phone_numbers::RoutingRules;
use crate::phone_numbers::wire::{PhoneNumberRecord, ROUTING_RULES};
use crate::time::Timestamp;

/// Text without markup and control characters.
pub const PLAIN_NAME: Kind = Kind::Pattern {
    name: r"^(?=[\s\S]*\S)[^\u0000-\u001f\u007f-\u009f<>]{1,255}$",
    check: |text| is_plain(text) && !text.trim().is_empty(),
};

/// Whether this is plain text of at most 255 characters.
pub fn is_plain(text: &str) -> bool {
    text.chars().count() <= 255 && !text.chars().any(|c| c.is_control() || "<>".contains(c))
}

/// A number as a carrier knows it: E.164 or digits.
pub const NUMBER: Kind = Kind::Pattern {
    name: r"^(\+[1-9][0-9]{1,14}|[0-9]{3,20})$",
    check: is_wire_number,
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
const ADDRESSES: Kind = Kind::List {
    item: &Kind::Str { min: 1, max: 43 },
    min: 0,
    max: 100,
};

const DESTINATIONS: Kind = Kind::Object(&[
    Field::req(
        "mode",
        Kind::Enum(ListMode::NAMES),
        "Whether only the entries may be called, or all others.",
    ),
    Field::req(
        "entries",
        Kind::List {
            item: &Kind::Pattern {
                name: r"^\+[1-9][0-9]{0,14}$",
                check: is_destination,
            },
            min: 0,
            max: 1000,
        },
        "Numbers, or how they begin: +49, +4930123456.",
    ),
]);

const CALLS: Kind = Kind::Int {
    min: 1,
    max: 1_000_000,
};

const AUTH_USERNAME: Field = Field::opt("auth_username", USERNAME, "With auth_password.");
const AUTH_PASSWORD: Field = Field::opt("auth_password", PASSWORD, "Write-only.");
const MD5_WITHOUT_QOP: Field = Field::opt(
    "allow_md5_without_qop",
    Kind::Bool,
    "Whether the carrier's challenges with MD5 and without qop are answered (default false): whoever sees such an \
     answer may try passwords on it with tables that were made before",
);
const TRANSPORT: Field = Field::opt(
    "transport",
    Kind::Enum(Transport::NAMES),
    "How SIP goes to the carrier (default udp)",
);
const MEDIA_ENCRYPTION: Field = Field::opt(
    "media_encryption",
    Kind::Enum(MediaEncryption::NAMES),
    "SRTP with keys in the SDP (default allow: as the other side wants)",
);
const DIAL_FORMAT: Field = Field::opt(
    "outbound_dial_format",
    Kind::Enum(DialFormat::NAMES),
    "How the called number is written to the carrier (default e164)",
);
const ALLOWLIST: Field = Field::opt(
    "destination_allowlist",
    DESTINATIONS,
    "Whom may be called over it",
)
.nullable();
const CONCURRENT: Field = Field::opt(
    "max_concurrent_calls",
    CALLS,
    "Calls at the same time (default 10); no more than the platform lets a trunk have",
);
const PER_HOUR: Field = Field::opt(
    "calls_per_hour_limit",
    CALLS,
    "Calls placed within an hour; no more than the platform lets a trunk have. Null: no limit",
)
.nullable();

/// `POST /sip-trunks/onboard`.
#[derive(Deserialize)]
pub struct OnboardTrunk {
    pub name: String,
    pub outbound_address: String,
    pub numbers: Vec<String>,
    pub auth_mode: Option<String>,
    pub auth_username: Option<String>,
    pub auth_password: Option<String>,
    #[serde(default)]
    pub allow_md5_without_qop: bool,
    pub transport: Option<String>,
    pub media_encryption: Option<String>,
    pub outbound_dial_format: Option<String>,
    pub agent_id: Option<AgentId>,
    pub inbound: Option<RoutingRules>,
    pub outbound_enabled: Option<bool>,
    pub destination_allowlist: Option<Destinations>,
    pub max_concurrent_calls: Option<u32>,
    pub calls_per_hour_limit: Option<u32>,
    #[serde(default)]
    pub set_as_tenant_default: bool,
}

impl Wire for OnboardTrunk {
    const SCHEMA: &'static Schema = &Schema {
        name: "OnboardTrunk",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("name", PLAIN_NAME, "A label"),
            Field::req("outbound_address", HOST, "The carrier's host, or host:port"),
            Field::req(
                "numbers",
                Kind::List {
                    item: &NUMBER,
                    min: 1,
                    max: 100,
                },
                "Caller ids to register, as the carrier knows them",
            ),
            Field::opt(
                "auth_mode",
                Kind::Enum(&["digest", "ip_acl", "digest_plus_ip_acl"]),
                "How the carrier knows us (default digest)",
            ),
            AUTH_USERNAME,
            AUTH_PASSWORD,
            MD5_WITHOUT_QOP,
            TRANSPORT,
            MEDIA_ENCRYPTION,
            DIAL_FORMAT,
            Field::opt("agent_id", Kind::Uuid, "Who answers calls to the numbers").nullable(),
            Field::opt(
                "inbound",
                ROUTING_RULES,
                "What is done when no agent answers",
            )
            .nullable(),
            Field::opt(
                "outbound_enabled",
                Kind::Bool,
                "Whether calls may be placed from the numbers (default true)",
            ),
            ALLOWLIST,
            CONCURRENT,
            PER_HOUR,
            Field::opt(
                "set_as_tenant_default",
                Kind::Bool,
                "Whether it becomes the account's default outbound trunk (default false)",
            ),
        ],
    };
}

/// `POST /sip-trunks`.
#[derive(Deserialize)]
pub struct CreateTrunk {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub numbers: Vec<String>,
    #[serde(default)]
    pub allowed_addresses: Vec<String>,
    pub auth_mode: Option<String>,
    pub outbound_auth: Option<String>,
    pub outbound_from_user: Option<String>,
    pub auth_username: Option<String>,
    pub auth_password: Option<String>,
    #[serde(default)]
    pub allow_md5_without_qop: bool,
    pub outbound_address: Option<String>,
    pub realm: Option<String>,
    pub register_expires: Option<u32>,
    pub transport: Option<String>,
    pub media_encryption: Option<String>,
    pub outbound_dial_format: Option<String>,
    pub destination_allowlist: Option<Destinations>,
    pub max_concurrent_calls: Option<u32>,
    pub calls_per_hour_limit: Option<u32>,
}

const NUMBERS: Kind = Kind::List {
    item: &NUMBER,
    min: 0,
    max: 100,
};

impl Wire for CreateTrunk {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateTrunk",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("name", PLAIN_NAME, "A label"),
            Field::req("type", Kind::Enum(TrunkType::NAMES), "Which way calls go"),
            Field::opt(
                "numbers",
                NUMBERS,
                "Outbound: the first is presented as caller id. Inbound: the called numbers that are \
                 taken, exactly as the carrier sends them; none for all",
            ),
            Field::opt(
                "allowed_addresses",
                ADDRESSES,
                "Where inbound calls come from: public IPv4 addresses, or blocks of /24 to /32; IPv6 ones, or blocks \
                 of /64 to /128, where the deployment allows them",
            ),
            Field::opt(
                "auth_mode",
                Kind::Enum(AuthMode::NAMES),
                "How the two sides know one another (default digest); register on inbound trunks",
            ),
            Field::opt(
                "outbound_auth",
                Kind::Enum(OutboundAuth::NAMES),
                "auth_mode register: where calls that are placed go (default proxy)",
            ),
            Field::opt(
                "outbound_from_user",
                Kind::Enum(FromUser::NAMES),
                "auth_mode register: who calls (default number); never changes",
            ),
            AUTH_USERNAME,
            AUTH_PASSWORD,
            MD5_WITHOUT_QOP,
            Field::opt(
                "outbound_address",
                HOST,
                "The carrier's host, or host:port; required of outbound trunks. auth_mode register: \
                 the registrar",
            ),
            Field::opt(
                "realm",
                REALM,
                "auth_mode register: the domain that is registered with (default the registrar's host)",
            ),
            Field::opt(
                "register_expires",
                Kind::Int { min: 30, max: 3600 },
                "auth_mode register: seconds (default 120)",
            ),
            TRANSPORT,
            MEDIA_ENCRYPTION,
            DIAL_FORMAT,
            ALLOWLIST,
            CONCURRENT,
            PER_HOUR,
        ],
    };
}

/// `PATCH /sip-trunks/{id}`.
#[derive(Deserialize)]
pub struct PatchTrunk {
    pub name: Option<String>,
    pub numbers: Option<Vec<String>>,
    pub allowed_addresses: Option<Vec<String>>,
    #[serde(default)]
    pub destination_allowlist: Patch<Destinations>,
    pub max_concurrent_calls: Option<u32>,
    #[serde(default)]
    pub calls_per_hour_limit: Patch<u32>,
    pub outbound_dial_format: Option<String>,
    pub auth_mode: Option<String>,
    pub auth_username: Option<String>,
    pub auth_password: Option<String>,
    pub allow_md5_without_qop: Option<bool>,
    pub status: Option<String>,
}

impl Wire for PatchTrunk {
    const SCHEMA: &'static Schema = &Schema {
        name: "UpdateTrunk",
        unknown: Unknown::Refuse,
        fields: &[
            Field::opt("name", PLAIN_NAME, "A label"),
            Field::opt("numbers", NUMBERS, "Inbound trunks only"),
            Field::opt("allowed_addresses", ADDRESSES, "Inbound trunks only"),
            ALLOWLIST,
            CONCURRENT,
            PER_HOUR,
            DIAL_FORMAT,
            Field::opt(
                "auth_mode",
                Kind::Enum(AuthMode::NAMES),
                "Inbound trunks only, with the credentials of the new mode; neither to nor from register",
            ),
            AUTH_USERNAME,
            AUTH_PASSWORD,
            MD5_WITHOUT_QOP,
            Field::opt(
                "status",
                Kind::Enum(Status::NAMES),
                "Whether calls go over it",
            ),
        ],
    };
}

/// A trunk as it is answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SipTrunk")]
pub struct TrunkRecord {
    pub id: TrunkId,
    pub name: String,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = TrunkType::NAMES))]
    pub kind: &'static str,
    pub numbers: Vec<String>,
    pub allowed_addresses: Vec<String>,
    #[schemars(extend("enum" = AuthMode::NAMES))]
    pub auth_mode: &'static str,
    pub auth_username: Option<String>,
    /// A password is kept; it is never shown.
    pub has_credentials: bool,
    /// Challenges with MD5 and without qop are answered.
    pub allow_md5_without_qop: bool,
    pub outbound_address: Option<String>,
    pub realm: Option<String>,
    pub register_expires: Option<u32>,
    #[schemars(extend("enum" = ["proxy", "direct", null]))]
    pub outbound_auth: Option<&'static str>,
    #[schemars(extend("enum" = ["number", "username", null]))]
    pub outbound_from_user: Option<&'static str>,
    #[schemars(extend("enum" = Transport::NAMES))]
    pub transport: &'static str,
    #[schemars(extend("enum" = MediaEncryption::NAMES))]
    pub media_encryption: &'static str,
    #[schemars(extend("enum" = DialFormat::NAMES))]
    pub outbound_dial_format: &'static str,
    pub destination_allowlist: Option<DestinationsRecord>,
    pub max_concurrent_calls: u32,
    pub calls_per_hour_limit: Option<u32>,
    pub is_default_outbound: bool,
    #[schemars(extend("enum" = Status::NAMES))]
    pub status: &'static str,
    /// Null unless the trunk registers.
    pub registration: Option<RegistrationRecord>,
    /// Calls over it that are not over.
    pub active_calls: u32,
    /// Calls over it, made within the last 24 hours, that ended as `failed`, `no-answer` or `busy`.
    pub failed_calls: u32,
    /// The one of them that ended last.
    pub last_failed_call: Option<FailedCallRecord>,
    /// The latest challenge to a request over it that was not answered. The password is given to the trunk's own hosts
    /// alone, in the realm in which they asked first for a REGISTER or for the first INVITE.
    pub last_refused_challenge: Option<RefusedChallenge>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Whom a trunk may call.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Destinations")]
pub struct DestinationsRecord {
    #[schemars(extend("enum" = ListMode::NAMES))]
    pub mode: &'static str,
    pub entries: Vec<String>,
}

/// Where a trunk stands with its registrar.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Registration")]
pub struct RegistrationRecord {
    #[schemars(extend("enum" = RegistrationStatus::NAMES))]
    pub status: &'static str,
    pub expires_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// The latest failure, also where later attempts succeeded. Null when none has failed since the trunk was made
    /// or set active.
    pub last_failure: Option<FailureRecord>,
}

/// A registration that failed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RegistrationFailure")]
pub struct FailureRecord {
    pub at: Timestamp,
    /// The registrar's response code; null when it gave no response.
    pub code: Option<u16>,
    pub reason: String,
}

/// A challenge that was not answered, so that its request failed.
#[derive(Serialize, JsonSchema)]
pub struct RefusedChallenge {
    pub at: Timestamp,
    /// 401 or 407.
    pub code: Option<u16>,
    /// The method of the request, and why.
    pub reason: String,
}

/// A call over a trunk that failed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FailedCall")]
pub struct FailedCallRecord {
    pub call_id: CallId,
    pub ended_at: Timestamp,
    #[schemars(extend("enum" = ["failed", "no-answer", "busy"]))]
    pub status: String,
    /// The final response of SIP; null when there was none.
    pub sip_code: Option<u32>,
}

impl TrunkRecord {
    /// The record of a trunk over which such calls go and went.
    pub fn new(trunk: Trunk, traffic: Traffic) -> Self {
        let Traffic { active, failed } = traffic;
        let (failed_calls, last_failed_call) = match failed {
            Some(Failed { calls, last }) => (calls, Some(FailedCallRecord::from(last))),
            None => (0, None),
        };
        let Trunk {
            id,
            account: _,
            name,
            kind,
            numbers,
            allowed_addresses,
            auth_mode,
            auth_username,
            password_sealed,
            allow_md5_without_qop,
            outbound_address,
            realm,
            register_expires,
            outbound_auth,
            outbound_from_user,
            transport,
            media_encryption,
            outbound_dial_format,
            destinations,
            max_concurrent_calls,
            calls_per_hour_limit,
            is_default_outbound,
            status,
            registration,
            refused_challenge,
            created_at,
            updated_at,
        } = trunk;
        Self {
            id,
            name,
            kind: kind.name(),
            numbers,
            allowed_addresses,
            auth_mode: auth_mode.name(),
            auth_username,
            has_credentials: password_sealed.is_some(),
            allow_md5_without_qop,
            outbound_address,
            realm,
            register_expires,
            outbound_auth: outbound_auth.map(OutboundAuth::name),
            outbound_from_user: outbound_from_user.map(FromUser::name),
            transport: transport.name(),
            media_encryption: media_encryption.name(),
            outbound_dial_format: outbound_dial_format.name(),
            destination_allowlist: destinations.map(|list| DestinationsRecord {
                mode: list.mode.name(),
                entries: list.entries,
            }),
            max_concurrent_calls,
            calls_per_hour_limit,
            is_default_outbound,
            status: status.name(),
            registration: registration.map(RegistrationRecord::from),
            active_calls: active,
            failed_calls,
            last_failed_call,
            last_refused_challenge: refused_challenge.map(RefusedChallenge::from),
            created_at,
            updated_at,
        }
    }
}

impl From<Registration> for RegistrationRecord {
    fn from(registration: Registration) -> Self {
        let Registration {
            status,
            expires_at,
            last_error,
            last_failure,
        } = registration;
        Self {
            status: status.name(),
            expires_at,
            last_error,
            last_failure: last_failure.map(FailureRecord::from),
        }
    }
}

impl From<FailedCall> for FailedCallRecord {
    fn from(failed: FailedCall) -> Self {
        let FailedCall {
            call,
            at,
            status,
            code,
        } = failed;
        Self {
            call_id: call,
            ended_at: at,
            status,
            sip_code: code,
        }
    }
}

impl From<Failure> for FailureRecord {
    fn from(failure: Failure) -> Self {
        let Failure { at, code, reason } = failure;
        Self { at, code, reason }
    }
}

impl From<Failure> for RefusedChallenge {
    fn from(refused: Failure) -> Self {
        let Failure { at, code, reason } = refused;
        Self { at, code, reason }
    }
}

/// What onboarding made.
#[derive(Serialize, JsonSchema)]
pub struct OnboardedTrunk {
    pub trunk: TrunkRecord,
    pub phone_numbers: Vec<PhoneNumberRecord>,
}
