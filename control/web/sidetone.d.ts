// Types of sidetone.js.

export type Transport = 'auto' | 'webrtc' | 'websocket';
export type CallState = 'idle' | 'connecting' | 'live' | 'reconnecting' | 'ended';
export type AgentState = 'listening' | 'thinking' | 'speaking';
export type OptionalEvent = 'agent_response_correction' | 'tool_call' | 'turn_metrics' | 'vad';

/** The answer of `POST /api/v1/conversation/connect`. */
export interface Session {
  session_id: string;
  transport: 'webrtc' | 'websocket';
  /** Only of a WebSocket session: acts as a signed URL, once. */
  ws_url?: string;
  /** Only of a WebRTC session. */
  ice_config?: { iceServers: RTCIceServer[] };
  /** Only of a session without a key: what offer, ice and end are called with. */
  token?: string;
  expires_at?: string;
}

export interface ToolContext {
  toolCallId: string;
  turnId: string;
  call: Call;
}

/** Answers a call of a tool of type `client`: any JSON, up to 60 KiB with what is around it. What is larger, and what
 * is thrown, becomes an error result. Agents cannot be given tools by the API yet, so none is called so far. */
export type ToolHandler = (args: Record<string, unknown>, context: ToolContext) => unknown | Promise<unknown>;

export interface CallOptions {
  /** Who is called. Not needed with `session`. */
  agentId?: string;
  /** A call token from `POST /conversation/token`, minted by your own server. WebRTC only. */
  token?: string;
  /** An API key. Only for pages that the key's owner alone sees, such as the console. */
  apiKey?: string;
  /** A session that your own server opened; then no other credential is needed for a WebSocket. */
  session?: Session;
  /** Origin of the server; the one this module was loaded from when left out. */
  server?: string;
  /** Default `auto`: WebRTC, and with an API key a WebSocket where WebRTC is not to be had. */
  transport?: Transport;
  /** Default `all`. `relay`: by the server's TURN relays alone, so that it never sees the caller's address. */
  iceTransportPolicy?: RTCIceTransportPolicy;
  /** Default true. false: the caller is silent and types. Constraints or a stream of your own are taken too. */
  microphone?: boolean | MediaTrackConstraints | MediaStream;
  /** Values for the agent's placeholders; ignored by the server without an API key. */
  dynamicVariables?: Record<string, string | number | boolean>;
  /** Events that the server sends on demand only. `tool_call` is added when there are `tools`. */
  events?: OptionalEvent[];
  tools?: Record<string, ToolHandler>;
  /** Listeners, as with `Call.on`. */
  on?: Partial<{ [Name in keyof CallEvents]: (event: CallEvents[Name]) => void }>;
}

interface FromServer {
  event_id: number;
  /** Milliseconds since the session began. */
  ts_ms: number;
}

export interface Contribution {
  key: string;
  owner: 'engine' | 'setting' | 'stt' | 'llm' | 'tool' | 'tts' | 'transport';
  start_ms: number;
  duration_ms: number;
}

export interface ServerEvents {
  session_started: FromServer & {
    type: 'session_started'; session_id: string; conversation_id: string; agent_id: string;
    direction: 'inbound' | 'outbound'; protocol: string; audio_format: string; sample_rate: number; frame_ms: number;
    ping_interval_ms: number;
  };
  user_transcript: FromServer & {
    type: 'user_transcript'; text: string; is_final: boolean; turn_id: string;
    start_ms: number | null; end_ms: number | null; confidence: number | null;
  };
  agent_response: FromServer & { type: 'agent_response'; text: string; is_final: boolean; turn_id: string };
  interruption: FromServer & {
    type: 'interruption'; up_to_event_id: number; turn_id: string; spoken_ms: number; estimated_text_spoken: string;
  };
  agent_response_correction: FromServer & {
    type: 'agent_response_correction'; original: string; corrected: string; turn_id: string;
  };
  tool_call: FromServer & {
    type: 'tool_call'; tool_call_id: string; name: string; arguments: Record<string, unknown>; turn_id: string;
  };
  /** Where the time between the caller's last sound and the agent's first went. */
  turn_metrics: FromServer & {
    type: 'turn_metrics'; turn_id: string; latency: { response_ms: number; contributions: Contribution[] };
  };
  vad: FromServer & { type: 'vad'; speaking: boolean; at_ms: number };
  call_ended: FromServer & { type: 'call_ended'; reason: string; status: string; duration_seconds: number };
  error: FromServer & { type: 'error'; code: string; message: string; retry_after?: number; request_id: string | null };
}

export interface CallEvents extends ServerEvents {
  /** Every message of the server, but for sound and pings. */
  event: ServerEvents[keyof ServerEvents];
  state: { state: CallState; previous: CallState };
  agent_state: { state: AgentState };
  muted: { muted: boolean };
  /** Something that a person may want to know; the call goes on. */
  warning: { message: string };
  /** The last event, once. `error` is null after an ordinary end; of a call that failed its `code` is the reason, or
   * what the server said before. */
  ended: { reason: string | null; error: SidetoneError | null; sessionId: string | null };
}

export interface CallStats {
  /** Milliseconds. */
  rttMs: number | null;
  jitterMs: number | null;
  /** Per cent of the agent's packets. */
  lossPct: number | null;
  /** Per cent of the agent's samples that were made up for lost ones. */
  concealedPct: number | null;
}

export declare class Call {
  constructor(options: CallOptions);
  readonly state: CallState;
  readonly agentState: AgentState | null;
  readonly sessionId: string | null;
  readonly transport: 'webrtc' | 'websocket' | null;
  readonly muted: boolean;
  /** Loudness (RMS) of the microphone just now, 0 to 1. */
  readonly inputLevel: number;
  /** Loudness (RMS) of the agent just now, 0 to 1. */
  readonly outputLevel: number;
  /** How loud the agent is played, 0 to 1. */
  volume: number;
  start(): Promise<void>;
  /** The answer takes the listener back. */
  on<Name extends keyof CallEvents>(name: Name, listener: (event: CallEvents[Name]) => void): () => void;
  mute(muted?: boolean): void;
  unmute(): void;
  /** `0-9 * # A-D`, up to 64. */
  sendDigits(digits: string): void;
  /** A turn that the caller typed, 1 to 4000 characters. */
  sendText(text: string): void;
  /** Background for the agent, 1 to 4000 characters; makes no turn. */
  sendContext(text: string): void;
  stats(): Promise<CallStats>;
  /** Plays on after the browser refused to sound. */
  resumeAudio(): Promise<void>;
  /** Hangs up, within seconds also where no network is left; before the call is live `start` then rejects with the code `ended`. */
  end(): Promise<void>;
}

/** Starts a call and resolves once it is live. Call it from a click. */
export declare function startCall(options: CallOptions): Promise<Call>;

/** What the server refused, or what broke. */
export declare class SidetoneError extends Error {
  /** The API's slug, or `network`, `ended`, `webrtc_unreachable`, `connection_lost`, `close_1011` and the like. */
  readonly code: string;
  /** HTTP status; 0 where there is none. */
  readonly status: number;
  /** Seconds. */
  readonly retryAfter: number | null;
  readonly requestId: string | null;
  readonly fields: { loc: (string | number)[]; msg: string; type: string }[];
}
