// sidetone.js: a call with an agent from a web page, over WebRTC or a WebSocket.
//
//   import { startCall } from '/web/sidetone.js';
//   const call = await startCall({ agentId, token, on: { agent_response: ({ text }) => console.log(text) } });
//
// docs/sidetone-js.md tells the rest, sidetone.d.ts has the types. No dependency, no build step.

import { SidetoneError, hungUp, known } from './sidetone-error.js';
import { RtcLine } from './sidetone-rtc.js';
import { SocketLine } from './sidetone-socket.js';
import { Microphone } from './sidetone-sound.js';

export { SidetoneError };

const OPTIONAL_EVENTS = ['agent_response_correction', 'tool_call', 'turn_metrics', 'vad'];
// What a line sees of the state of the agent is checked this often: fine enough for a light on a page.
const LOOK_MS = 100;
// Louder than this is a voice: about −50 dBFS.
const AUDIBLE = 0.003;
// An agent that was silent for this long has finished speaking; pauses between sentences are shorter.
const SPOKEN_MS = 600;
// An answer whose text is there has begun to sound by then, or did so before the text came, which an outage held up.
const HEARD_MS = 3000;
// The largest message with a tool's result, in bytes: a server closes the socket at a frame over 64 KiB.
const MOST_RESULT = 60 * 1024;
// The longest reason of a tool that failed, in characters.
const MOST_REASON = 4000;
// With these the server says why it ends the call, or does not begin it; after any other error the call goes on.
const FATAL = new Set([
  'session_not_joinable', 'admission_rejected', 'service_unavailable', 'billing_blocked', 'call_failed',
]);
// A session that cannot be reached over WebRTC within this time is tried over a socket (transport `auto`).
const RTC_PATIENCE_MS = 5000;
// A server that has not ended such a session after this is not waited for.
const LEAVE_MS = 1000;

/** Starts a call and resolves once it is live. Call it from a click: browsers let no page sound before one. */
export async function startCall(options) {
  const call = new Call(options);
  await call.start();
  return call;
}

/** One call. `on` may be used before `start`, so that no event is missed. */
export class Call {
  #listeners = new Map();
  #line = null;
  #microphone = null;
  #look = null;
  #loudAt = 0;
  #answeredAt = null;
  #over = false;
  #problem = null;
  #reason = null;
  #failed = false;
  // A page that comes back out of the browser's cache finds its call ended.
  #unload = () => {
    this.#line?.leave();
    this.#finish(null);
  };

  constructor(options = {}) {
    this.options = {
      server: new URL(import.meta.url).origin,
      transport: 'auto',
      iceTransportPolicy: 'all',
      microphone: true,
      events: [],
      tools: {},
      ...options,
    };
    if (!this.options.agentId && !this.options.session) {
      throw new TypeError('agentId is missing: name the agent to call, or pass a session that your server opened');
    }
    this.state = 'idle';
    this.agentState = null;
    this.sessionId = null;
    this.transport = null;
    for (const [name, listener] of Object.entries(options.on ?? {})) this.on(name, listener);
  }

  /** Calls `listener` for each event of this name; the answer takes it back. */
  on(name, listener) {
    const all = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, all.add(listener));
    return () => all.delete(listener);
  }

  async start() {
    if (this.state !== 'idle') throw new SidetoneError('This call was started already', { code: 'already_started' });
    this.#become('connecting');
    addEventListener('pagehide', this.#unload);
    try {
      this.#microphone = await Microphone.open(this.options.microphone, (message) => this.#warn(message));
      if (this.#over) throw hungUp();
      this.#microphone.muted = this.muted;
      await this.#connect();
    } catch (error) {
      const cause = this.#over && !(error instanceof SidetoneError) ? hungUp() : known(error);
      this.#finish(cause);
      // The browser may have given it after the call was over.
      this.#microphone?.close();
      throw cause;
    }
    if (this.#over) throw this.#problem ?? hungUp();
    this.#look = setInterval(() => this.#listen(), LOOK_MS);
    this.#become('live');
    this.#agent('listening');
  }

  // The session that was handed over, or one over the transport that was asked for. `auto` is WebRTC where
  // browser, server and network offer it; a socket needs a key, so without one there is no second way.
  async #connect() {
    const { session, transport } = this.options;
    if (session) return this.#open(session, session.ws_url ? session.ws_url : null);
    if (transport === 'websocket') return this.#overSocket();
    const canFall = transport === 'auto' && Boolean(this.options.apiKey);
    if (typeof RTCPeerConnection === 'undefined') {
      if (canFall) return this.#overSocket();
      throw new SidetoneError('This browser has no WebRTC', { code: 'webrtc_missing' });
    }
    try {
      return await this.#overRtc(canFall);
    } catch (error) {
      const fits = error.code === 'validation_error' || error.code === 'webrtc_unreachable' || error.status === 404
        || error.status === 501;
      if (!canFall || this.#over || !fits || wrongAgent(error)) throw error;
      return this.#overSocket();
    }
  }

  async #overRtc(canFall) {
    const session = await this.#ask('POST', '/conversation/connect', this.#body('webrtc'));
    return this.#open(session, null, canFall ? RTC_PATIENCE_MS : undefined);
  }

  async #overSocket() {
    const session = await this.#ask('POST', '/conversation/connect', {
      ...this.#body('websocket'),
      protocol: 'native',
      audio_format: 'pcm_16000',
    });
    // The server names its public address; this page reached it under another name, perhaps.
    const url = new URL(session.ws_url);
    const own = new URL(this.options.server);
    url.protocol = own.protocol === 'https:' ? 'wss:' : 'ws:';
    url.host = own.host;
    return this.#open(session, url.href);
  }

  #body(transport) {
    const { agentId, dynamicVariables } = this.options;
    return { agent_id: agentId, transport, ...(dynamicVariables ? { dynamic_variables: dynamicVariables } : {}) };
  }

  async #open(session, wsUrl, patience) {
    this.sessionId = session.session_id;
    if (session.token) this.options.token ??= session.token;
    if (this.#over) {
      // Hung up while the server was asked for the session: it is given back, where there is a right to.
      const { token, apiKey } = this.options;
      if (token || apiKey) this.#ask('POST', `/conversation/${session.session_id}/end`, {}).catch(() => {});
      throw hungUp();
    }
    const told = {
      microphone: this.#microphone,
      events: this.#events(),
      iceTransportPolicy: this.options.iceTransportPolicy,
      patience,
      onEvent: (event) => this.#handle(event),
      onState: (state) => this.#become(state),
      onClose: (problem) => this.#finish(problem),
      onWarning: (message) => this.#warn(message),
      ask: (method, path, body, more) => this.#ask(method, `/conversation/${session.session_id}${path}`, body, more),
    };
    this.transport = wsUrl ? 'websocket' : 'webrtc';
    this.#line = wsUrl ? new SocketLine(wsUrl, told) : new RtcLine(session, told);
    this.#line.volume = this.#volume;
    try {
      await this.#line.open();
    } catch (error) {
      // Its slot may be the one that another way needs.
      const late = new Promise((resolve) => setTimeout(resolve, LEAVE_MS));
      if (!this.#over) await Promise.race([this.#line.leave(), late]);
      throw error;
    }
  }

  #events() {
    const { events, tools } = this.options;
    const wanted = new Set(events);
    if (Object.keys(tools).length > 0) wanted.add('tool_call');
    return OPTIONAL_EVENTS.filter((name) => wanted.has(name));
  }

  #handle(event) {
    if (this.#over) return;
    switch (event.type) {
      case 'user_transcript':
        if (event.is_final) {
          this.#answeredAt = null;
          this.#agent('thinking');
        }
        break;
      case 'agent_response':
        this.#answeredAt ??= performance.now();
        break;
      case 'interruption':
        this.#loudAt = 0;
        this.#agent('listening');
        break;
      case 'tool_call':
        this.#runTool(event);
        break;
      case 'call_ended':
        this.#reason = event.reason;
        this.#failed = event.status === 'failed';
        break;
      case 'error':
        if (!FATAL.has(event.code)) break;
        this.#problem = new SidetoneError(event.message, {
          code: event.code,
          retryAfter: event.retry_after ?? null,
          requestId: event.request_id ?? null,
        });
        break;
      default:
        break;
    }
    this.#emit(event.type, event);
    this.#emit('event', event);
    if (event.type === 'call_ended' && this.transport === 'webrtc') this.#finish(null);
  }

  async #runTool({ tool_call_id: id, name, arguments: given, turn_id: turnId }) {
    const handler = this.options.tools[name];
    if (!handler) return;
    const answer = { type: 'tool_result', tool_call_id: id, result: null, is_error: false };
    try {
      answer.result = (await handler(given ?? {}, { toolCallId: id, turnId, call: this })) ?? null;
      if (JSON.stringify(answer.result) === undefined) throw new TypeError('the result is no JSON');
      const bytes = new TextEncoder().encode(JSON.stringify(answer)).length;
      if (bytes > MOST_RESULT) throw new RangeError(`the result is larger than ${MOST_RESULT / 1024} KiB`);
    } catch (error) {
      answer.result = String(error?.message ?? error).slice(0, MOST_REASON);
      answer.is_error = true;
    }
    this.#line?.send(answer);
  }

  // Who speaks is heard, so that it is right at the moment the caller hears it.
  #listen() {
    const now = performance.now();
    if (this.outputLevel > AUDIBLE) {
      this.#loudAt = now;
      this.#agent('speaking');
    } else if (this.agentState === 'speaking' && now - this.#loudAt > SPOKEN_MS) {
      this.#agent('listening');
    } else if (this.agentState === 'thinking' && this.#answeredAt !== null && now - this.#answeredAt > HEARD_MS) {
      this.#agent('listening');
    }
  }

  #agent(state) {
    if (this.agentState === state || this.#over) return;
    this.agentState = state;
    this.#emit('agent_state', { state });
  }

  #become(state) {
    if (this.state === state || this.#over) return;
    const previous = this.state;
    this.state = state;
    this.#emit('state', { state, previous });
  }

  #emit(name, value) {
    for (const listener of this.#listeners.get(name) ?? []) {
      try {
        listener(value);
      } catch (error) {
        // A listener's mistake is its own: it must not end the call.
        console.error(error);
      }
    }
  }

  #warn(message) {
    if (!this.#over) this.#emit('warning', { message });
  }

  /** Presses keys: `0-9 * # A-D`. */
  sendDigits(digits) {
    this.#line?.send({ type: 'dtmf', digits: String(digits) });
  }

  /** A turn that the caller typed. */
  sendText(text) {
    this.#line?.send({ type: 'user_message', text });
  }

  /** Background for the agent; makes no turn. */
  sendContext(text) {
    this.#line?.send({ type: 'contextual_update', text });
  }

  /** Silences the microphone, or opens it again. The agent hears silence, the line stays. */
  mute(muted = true) {
    this.muted = muted;
    if (this.#microphone) this.#microphone.muted = muted;
    this.#emit('muted', { muted });
  }

  unmute() {
    this.mute(false);
  }

  muted = false;
  #volume = 1;

  /** How loud the agent is played, 0 to 1. */
  get volume() {
    return this.#volume;
  }

  set volume(volume) {
    this.#volume = Math.min(1, Math.max(0, Number(volume) || 0));
    if (this.#line) this.#line.volume = this.#volume;
  }

  /** Loudness (RMS) of the microphone just now, 0 to 1. */
  get inputLevel() {
    return this.#microphone && !this.muted ? this.#microphone.level() : 0;
  }

  /** Loudness (RMS) of the agent just now, 0 to 1. */
  get outputLevel() {
    return this.#line?.level() ?? 0;
  }

  /** How well the audio travels: `{rttMs, jitterMs, lossPct, concealedPct}`, null where nothing is measured. */
  async stats() {
    return (await this.#line?.stats()) ?? { rttMs: null, jitterMs: null, lossPct: null, concealedPct: null };
  }

  /** Plays on after the browser refused to sound (event `warning`); call it from a click. */
  async resumeAudio() {
    await this.#line?.resume();
  }

  /** Hangs up. Resolves when the call is over. */
  async end() {
    if (this.#over) return;
    if (!this.#line || this.state === 'connecting') {
      this.#line?.leave();
      this.#finish(null);
      return;
    }
    this.#reason ??= 'caller_hangup';
    const over = new Promise((resolve) => this.on('ended', resolve));
    this.#microphone?.close();
    await this.#line.end();
    await over;
  }

  #finish(problem) {
    if (this.#over) return;
    const error = this.#failed ? (this.#problem ?? failure(this.#reason))
      : this.#reason ? null : (this.#problem ?? problem ?? null);
    this.#problem = error;
    this.#become('ended');
    this.#over = true;
    clearInterval(this.#look);
    removeEventListener('pagehide', this.#unload);
    this.#microphone?.close();
    this.#line?.close();
    this.#emit('ended', { reason: this.#reason, error, sessionId: this.sessionId });
  }

  async #ask(method, path, body, { keepalive = false, signal } = {}) {
    const { server, apiKey, token } = this.options;
    let response;
    let answer;
    try {
      response = await fetch(new URL(`/api/v1${path}`, server), {
        method,
        keepalive,
        signal,
        headers: {
          'Content-Type': 'application/json',
          ...(token ? { Authorization: `Bearer ${token}` } : apiKey ? { 'X-API-Key': apiKey } : {}),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      answer = await response.json().catch(() => ({}));
      // An answer that was cut off is none.
      signal?.throwIfAborted();
    } catch {
      throw new SidetoneError('The server does not answer', { code: 'network' });
    }
    if (response.ok) return answer;
    const fields = Array.isArray(answer.fields) ? answer.fields : [];
    const wait = Number(response.headers.get('Retry-After') ?? answer.retry_after);
    throw new SidetoneError(answer.error ?? `The server answered ${response.status}`, {
      code: answer.code,
      status: response.status,
      retryAfter: Number.isFinite(wait) && wait > 0 ? wait : null,
      requestId: answer.request_id ?? null,
      fields,
    });
  }
}

// The server has ended the call, for something broke.
function failure(reason) {
  return new SidetoneError(`The call failed (${reason})`, { code: reason });
}

// A refusal that another transport would not change.
function wrongAgent(error) {
  return error.code === 'validation_error' ? !error.fields.some((field) => field.loc?.includes('transport')) : error.code === 'not_found';
}
