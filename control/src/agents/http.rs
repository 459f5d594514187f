//! Routes of agents (document 2, Agents).

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use serde_json::{Map, Value};

use super::{
    rules::{Agent, Refused, Status, World, change, copied},
    store::{self, Update},
    wire::{
        AgentItem, AgentRecord, CreateAgent, DeleteAgentQuery, DuplicateAgent, UpdateAgent,
        field_error,
    },
};
use crate::{
    catalogue::voices,
    http::{
        Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Query, Scope, page::AgentsPage,
    },
    ids::{AccountId, AgentId, PhoneNumberId, TrunkId},
    models,
    node::Node,
    phone_numbers, sip_trunks,
};

const NO_NUMBER: &str = "`sms_sender_number_id` is no number of the account";

/// The routes, in the order of the document.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get("/agents", Access::Scopes(&[Scope::AgentsRead]), list)
            .summary("Agents, newest first")
            .operation(
                "listAgents",
                "Lists the account's agents in short: name, voice, language and state. Settings \
                 are in `getAgent`.",
            )
            .page::<AgentsPage>()
            .answers::<List<AgentItem>>(),
        Endpoint::post("/agents", Access::Scopes(&[Scope::AgentsWrite]), create)
            .summary("Create an agent")
            .operation(
                "createAgent",
                "Creates an agent that can take calls at once; only a name, a prompt and a voice \
                 are needed, and every other setting has its default. The voice, the model, the \
                 trunk and the text sender that it names must exist. 422 names every field that \
                 is wrong, and those that do not go together.",
            )
            .body::<CreateAgent>()
            .answers::<AgentRecord>()
            .refuses(StatusCode::NOT_FOUND, "not_found", NO_NUMBER),
        Endpoint::get(
            "/agents/{agent_id}",
            Access::Scopes(&[Scope::AgentsRead]),
            get,
        )
        .summary("One agent")
        .operation(
            "getAgent",
            "Answers the agent with all of its settings, unset ones with their defaults. It also \
             tells which numbers the agent answers and which placeholders of its prompts nothing \
             fills.",
        )
        .answers::<AgentRecord>(),
        Endpoint::patch(
            "/agents/{agent_id}",
            Access::Scopes(&[Scope::AgentsWrite]),
            update,
        )
        .summary("Change an agent: only the fields that are given")
        .operation(
            "updateAgent",
            "Changes the settings that are given and leaves the others; null takes a setting \
             back to its default. Calls that are live keep the settings that they began with. \
             The result must be as good as a new agent: 422 names every field that is not.",
        )
        .body::<UpdateAgent>()
        .answers::<AgentRecord>()
        .refuses(StatusCode::NOT_FOUND, "not_found", NO_NUMBER),
        Endpoint::delete(
            "/agents/{agent_id}",
            Access::Scopes(&[Scope::AgentsWrite]),
            delete,
        )
        .summary("Delete an agent; refused while it is on a live call or a number, unless forced")
        .operation(
            "deleteAgent",
            "Deletes the agent for good. While it is on a live call or answers a number, that is \
             409 `agent_in_use`; with `force` it is deleted all the same, its calls go on to \
             their end, and its numbers stay without an agent. Its calls and conversations are \
             kept.",
        )
        .query::<DeleteAgentQuery>()
        .refuses(
            StatusCode::CONFLICT,
            "agent_in_use",
            "the agent is on a live call or answers a number, and `force` is not given",
        ),
        Endpoint::post(
            "/agents/{agent_id}/duplicate",
            Access::Scopes(&[Scope::AgentsWrite]),
            duplicate,
        )
        .summary("Copy an agent, without what is its own: numbers, trunks, public access")
        .operation(
            "duplicateAgent",
            "Creates an agent with the settings of this one, under a name of its own. The copy \
             answers no number, names no trunk or text sender and is not public. Only an active \
             agent can be copied.",
        )
        .body::<DuplicateAgent>()
        .answers::<AgentRecord>()
        .refuses(
            StatusCode::CONFLICT,
            "agent_not_ready",
            "the agent is not active",
        ),
    ]
}

async fn list(
    State(app): State<Node>,
    caller: Caller,
    page: Page<AgentsPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (agents, total) = store::list(&app.db, caller.account, page.limit, page.offset).await?;
    Ok(Json(List::new(
        agents.into_iter().map(AgentItem::from).collect(),
        total,
        page,
    )))
}

async fn create(
    State(app): State<Node>,
    caller: Caller,
    Body(body): Body<CreateAgent>,
) -> Result<impl IntoResponse, ApiError> {
    let world = world_of(&app, caller.account, &body.0).await?;
    let (stored, settings) = change(&Map::new(), &body.0, &world).map_err(refusal)?;
    let mut tx = app.db.begin_write().await?;
    let agent = store::create(
        &mut tx,
        caller.account,
        AgentId::new(&app.clock),
        stored,
        settings,
        app.clock.now(),
    )
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(AgentRecord::from(agent))))
}

async fn get(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<AgentId>,
) -> Result<impl IntoResponse, ApiError> {
    let agent = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Json(record(&app, caller.account, agent).await?))
}

async fn update(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<AgentId>,
    Body(body): Body<UpdateAgent>,
) -> Result<impl IntoResponse, ApiError> {
    let world = world_of(&app, caller.account, &body.0).await?;
    let now = app.clock.now();
    match store::update(&app.db, caller.account, id, &body.0, &world, now).await? {
        Update::Done(agent) => Ok(Json(record(&app, caller.account, *agent).await?)),
        Update::NoSuchAgent => Err(ApiError::NotFound),
        Update::Refused(refused) => Err(refusal(refused)),
    }
}

async fn delete(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<AgentId>,
    Query(query): Query<DeleteAgentQuery>,
) -> Result<impl IntoResponse, ApiError> {
    // A call is only written while its agent is held, so none begins between check and delete.
    let mut tx = app.db.begin_write().await?;
    if !store::delete(&mut tx, caller.account, id).await? {
        return Err(ApiError::NotFound);
    }
    if !query.force && store::agent_is_live(&mut tx, caller.account, id).await? {
        return Err(ApiError::Conflict {
            code: "agent_in_use",
            message: "The agent is on a live call: end the call or pass force=true".into(),
        });
    }
    let numbers =
        phone_numbers::store::leave_agent(&mut tx, caller.account, id, app.clock.now()).await?;
    if !query.force && numbers > 0 {
        return Err(ApiError::Conflict {
            code: "agent_in_use",
            message: "The agent answers a phone number: give it another or pass force=true".into(),
        });
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn duplicate(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<AgentId>,
    Body(body): Body<DuplicateAgent>,
) -> Result<impl IntoResponse, ApiError> {
    let agent = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if agent.status != Status::Active {
        return Err(ApiError::conflict(
            "agent_not_ready",
            format!("The agent is {}", agent.status.name()),
        ));
    }
    let (stored, settings) = copied(&agent, body.name.as_deref()).map_err(refusal)?;
    let mut tx = app.db.begin_write().await?;
    let copy = store::create(
        &mut tx,
        caller.account,
        AgentId::new(&app.clock),
        stored,
        settings,
        app.clock.now(),
    )
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(AgentRecord::from(copy))))
}

/// What the rules have to know of this installation.
pub(super) fn world(app: &Node) -> World<'_> {
    World {
        voice: |key| voices::find(key).map(|voice| voice.id),
        model: |id| models::resolve(id).is_some(),
        trunk: None,
        sender: None,
        egress: &app.config.egress.allow,
    }
}

/// The same, with the trunk and the number that a change names.
async fn world_of<'a>(
    app: &'a Node,
    account: AccountId,
    change: &Map<String, Value>,
) -> Result<World<'a>, ApiError> {
    let named = change.get("outbound_trunk_id").and_then(Value::as_str);
    let trunk = match named.and_then(|text| text.parse::<TrunkId>().ok()) {
        Some(id) => sip_trunks::store::get(&app.db, account, id).await?,
        None => None,
    };
    let fits = trunk.filter(|trunk| {
        trunk.kind == sip_trunks::TrunkType::Outbound && trunk.status == sip_trunks::Status::Active
    });
    let named = change.get("sms_sender_number_id").and_then(Value::as_str);
    let number = match named.and_then(|text| text.parse::<PhoneNumberId>().ok()) {
        Some(id) => phone_numbers::store::get(&app.db, account, id).await?,
        None => None,
    };
    Ok(World {
        trunk: fits.map(|trunk| trunk.id.0),
        sender: number.map(|number| (number.id.0, number.sms_sender)),
        ..world(app)
    })
}

/// The record with the numbers that the agent answers.
async fn record(app: &Node, account: AccountId, agent: Agent) -> Result<AgentRecord, ApiError> {
    let numbers = phone_numbers::store::of_agent(&app.db, account, agent.id).await?;
    Ok(AgentRecord {
        phone_number_ids: numbers,
        ..AgentRecord::from(agent)
    })
}

fn refusal(refused: Refused) -> ApiError {
    match refused {
        Refused::Fields(problems) => {
            ApiError::Fields(problems.into_iter().map(field_error).collect())
        }
        Refused::UnknownNumber => ApiError::Missing {
            code: "not_found",
            message: "sms_sender_number_id: no such number".into(),
        },
        Refused::Unreadable(error) => ApiError::internal(error),
    }
}
