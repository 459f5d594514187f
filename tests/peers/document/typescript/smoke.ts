// What a program does with the client: make, list, get, change and delete agents; read an error; turn pages.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Agent = components["schemas"]["Agent"];

const client = createClient<paths>({
  baseUrl: process.env["SIDETONE_URL"] ?? "",
  headers: { "X-API-Key": process.env["SIDETONE_KEY"] ?? "" },
});

async function create(name: string, voice_id: string): Promise<Agent> {
  const { data, error } = await client.POST("/api/v1/agents", {
    body: { name, system_prompt: "Breakfast is at seven.", voice_id },
  });
  assert.ok(data, JSON.stringify(error));
  return data;
}

const voices = await client.GET("/api/v1/voices", { params: { query: { limit: 1 } } });
const voice = voices.data?.items[0]?.id;
assert.ok(voice);

const made: Agent[] = [];
for (const name of ["One", "Two", "Three"]) made.push(await create(name, voice));
const first = made[0];
assert.ok(first);
assert.equal(first.voice_id, voice);

// Pages, until there is no more.
const seen: string[] = [];
for (let offset = 0, more = true; more; offset += 2) {
  const { data } = await client.GET("/api/v1/agents", { params: { query: { limit: 2, offset } } });
  assert.ok(data);
  assert.ok(data.items.length <= 2);
  seen.push(...data.items.map((item) => item.id));
  more = data.has_more;
}
for (const agent of made) assert.ok(seen.includes(agent.id), agent.name);

const path = { params: { path: { agent_id: first.id } } };
const changed = await client.PATCH("/api/v1/agents/{agent_id}", {
  ...path,
  body: { turn_eagerness: "eager", first_message: "Good morning." },
});
assert.equal(changed.data?.turn_eagerness, "eager");
const read = await client.GET("/api/v1/agents/{agent_id}", path);
assert.deepEqual(read.data, changed.data);

// An error that names its field.
const refused = await client.POST("/api/v1/agents", {
  body: { name: "", system_prompt: "x", voice_id: voice },
});
assert.equal(refused.response.status, 422);
assert.equal(refused.error?.code, "validation_error");
assert.deepEqual(refused.error?.fields?.[0]?.loc, ["body", "name"]);
assert.equal(refused.error?.request_id, refused.response.headers.get("x-request-id"));

for (const agent of made) {
  const gone = await client.DELETE("/api/v1/agents/{agent_id}", {
    params: { path: { agent_id: agent.id } },
  });
  assert.equal(gone.response.status, 204);
}
const missing = await client.GET("/api/v1/agents/{agent_id}", path);
assert.equal(missing.response.status, 404);
assert.equal(missing.error?.code, "not_found");
console.log("smoke: good");
