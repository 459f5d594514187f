// A page's call with sidetone.js, as its types have it; Node, which runs it, holds them against the module.
import { Call, SidetoneError, startCall } from "./sidetone.js";
import type { CallOptions, CallStats } from "./sidetone.js";

const options: CallOptions = {
  agentId: "5f0c0000-0000-7000-8000-000000000000",
  server: "https://voice.example.com",
  transport: "auto",
  iceTransportPolicy: "relay",
  microphone: { deviceId: "default" },
  dynamicVariables: { name: "Ann", visits: 3, known: true },
  events: ["turn_metrics", "vad"],
  tools: {
    async show({ id }, { call }) {
      call.sendContext(`The caller looks at ${String(id)}.`);
      return { shown: true };
    },
  },
  on: { ended: ({ reason, error }) => console.log(reason, error?.code ?? null) },
};

export async function talk(): Promise<CallStats> {
  const call = await startCall(options);
  const quiet = call.on("user_transcript", ({ text, start_ms }) => console.log(text, start_ms ?? "not measured"));
  call.on("turn_metrics", ({ latency }) => console.log(latency.contributions.map((part) => part.owner)));
  call.on("error", ({ code, request_id }) => console.log(code, request_id ?? "no request"));
  call.on("event", (event) => {
    if (event.type === "session_started") console.log(event.sample_rate);
  });
  // @ts-expect-error: there is no such event.
  call.on("no_such_event", () => {});
  // @ts-expect-error: the state is told, not set.
  call.state = "live";
  call.volume = 0.5;
  call.sendDigits("12#");
  quiet();
  try {
    await call.end();
  } catch (error) {
    if (error instanceof SidetoneError) console.log(error.code, error.retryAfter, error.fields.length);
  }
  return call.stats();
}

// The compiler holds these lists against the types.
const members: Record<keyof Call, true> = {
  state: true,
  agentState: true,
  sessionId: true,
  transport: true,
  muted: true,
  inputLevel: true,
  outputLevel: true,
  volume: true,
  start: true,
  on: true,
  mute: true,
  unmute: true,
  sendDigits: true,
  sendText: true,
  sendContext: true,
  stats: true,
  resumeAudio: true,
  end: true,
};
const parts: Record<Exclude<keyof SidetoneError, keyof Error>, true> = {
  code: true,
  status: true,
  retryAfter: true,
  requestId: true,
  fields: true,
};

const call = new Call(options);
for (const name of Object.keys(members)) if (!(name in call)) throw new Error(`the module has no ${name}`);
// What the constructor was given is not for pages.
const inner = ["constructor", "options"];
for (const name of [...Object.getOwnPropertyNames(Call.prototype), ...Object.keys(call)]) {
  if (!(name in members) && !inner.includes(name)) throw new Error(`no type tells of ${name}`);
}
for (const name of Object.keys(parts)) {
  if (!(name in new SidetoneError("no"))) throw new Error(`the module's error has no ${name}`);
}
console.log("page: good");
