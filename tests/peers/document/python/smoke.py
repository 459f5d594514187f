"""What a program does with the client: make, list, get, change and delete agents; read an error; turn pages."""

import os

from sidetone_client import AuthenticatedClient
from sidetone_client.api.agents import (
    create_agent,
    delete_agent,
    get_agent,
    list_agents,
    update_agent,
)
from sidetone_client.api.voices import list_voices
from sidetone_client.models import Agent, CreateAgent, Error, UpdateAgent
from sidetone_client.models.update_agent_turn_eagerness_type_0 import UpdateAgentTurnEagernessType0

client = AuthenticatedClient(
    base_url=os.environ["SIDETONE_URL"],
    token=os.environ["SIDETONE_KEY"],
    prefix="",
    auth_header_name="X-API-Key",
)

voices = list_voices.sync(client=client, limit=1)
voice = voices.items[0].id


def body(name):
    return CreateAgent(name=name, system_prompt="Breakfast is at seven.", voice_id=voice)


made = [create_agent.sync(client=client, body=body(name)) for name in ("One", "Two", "Three")]
assert all(isinstance(agent, Agent) for agent in made), made
assert made[0].voice_id == voice

# Pages, until there is no more.
seen, offset, more = [], 0, True
while more:
    page = list_agents.sync(client=client, limit=2, offset=offset)
    assert len(page.items) <= 2
    seen += [item.id for item in page.items]
    offset, more = offset + 2, page.has_more
assert {agent.id for agent in made} <= set(seen)

first = made[0].id
eager = UpdateAgent(turn_eagerness=UpdateAgentTurnEagernessType0.EAGER, first_message="Good morning.")
changed = update_agent.sync(client=client, agent_id=first, body=eager)
assert changed.to_dict()["turn_eagerness"] == "eager"
read = get_agent.sync(client=client, agent_id=first)
assert read == changed

# An error that names its field.
refused = create_agent.sync_detailed(client=client, body=body(""))
assert refused.status_code == 422
assert isinstance(refused.parsed, Error) and refused.parsed.code == "validation_error"
assert refused.parsed.fields[0].loc == ["body", "name"]
assert str(refused.parsed.request_id) == refused.headers["x-request-id"]

for agent in made:
    assert delete_agent.sync_detailed(client=client, agent_id=agent.id).status_code == 204
missing = get_agent.sync_detailed(client=client, agent_id=first)
assert missing.status_code == 404 and missing.parsed.code == "not_found"
print("smoke: good")
