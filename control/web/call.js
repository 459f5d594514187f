// One call over the native WebSocket protocol: sockets and sound here, what to show is told to `view`.

import { fromBase64, microphoneAllowed, openMicrophone, openSpeaker, rms, toBase64 } from './audio.js';

// More than this waiting in the socket means that the line is too slow: newer sound is worth more
// than old, so frames are left out (half a second of sound as base64).
const MOST_WAITING = 24_000;

export class Call {
  constructor(api, agentId, view) {
    this.api = api;
    this.agentId = agentId;
    this.view = view;
  }

  async start() {
    if (microphoneAllowed()) {
      try {
        this.microphone = await openMicrophone((pcm) => this.heard(pcm));
      } catch (error) {
        this.view.note(`No microphone (${error.message || error.name}). You can type instead.`);
      }
    } else {
      this.view.note('Browsers give the microphone only to pages on localhost or over HTTPS. You can type instead.');
    }
    this.speaker = await openSpeaker(
      (id, ms) => this.send({ type: 'playback', event_id: id, played_ms: ms }),
      (level) => this.view.level('them', level),
    );
    const session = await this.api.connect(this.agentId);
    await this.open(ownAddress(session.ws_url));
  }

  // Resolves once the session is live.
  open(address) {
    return new Promise((resolve, reject) => {
      this.socket = new WebSocket(address);
      this.socket.onmessage = ({ data }) => {
        const event = JSON.parse(data);
        if (event.type === 'session_started') resolve();
        this.handle(event);
      };
      this.socket.onclose = ({ code, reason }) => {
        const text = this.problem ?? (code === 1000 || this.ended ? null : `The line was closed (${code}${reason ? `: ${reason}` : ''}).`);
        reject(new Error(text ?? 'The line was closed.'));
        this.finish(text);
      };
    });
  }

  handle(event) {
    switch (event.type) {
      case 'audio':
        this.speaker.push(event.event_id, fromBase64(event.audio));
        break;
      case 'interruption':
        this.speaker.dropTo(event.up_to_event_id);
        this.view.interrupted(event.turn_id, event.estimated_text_spoken, event.spoken_ms);
        break;
      case 'ping':
        this.send({ type: 'pong', event_id: event.event_id });
        break;
      case 'user_transcript':
        this.view.said('user', event.turn_id, event.text, event.is_final);
        break;
      case 'agent_response':
        this.view.said('agent', event.turn_id, event.text, event.is_final);
        break;
      case 'turn_metrics':
        this.view.answered(event.turn_id, event.latency ?? event);
        break;
      case 'call_ended':
        this.ended = event.reason;
        break;
      case 'error':
        this.problem = event.message;
        this.view.note(event.message);
        break;
      default:
        break;
    }
  }

  heard(pcm) {
    this.view.level('you', rms(pcm));
    if (this.socket?.readyState === WebSocket.OPEN && this.socket.bufferedAmount < MOST_WAITING) {
      this.send({ type: 'audio', audio: toBase64(pcm) });
    }
  }

  type(text) {
    this.send({ type: 'user_message', text });
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  hangUp() {
    this.ended = this.ended ?? 'caller_hangup';
    this.send({ type: 'end' });
    this.microphone?.close();
    this.microphone = null;
    // The server closes the line; if it does not, the page does.
    setTimeout(() => this.socket?.close(1000), 1500);
  }

  finish(problem) {
    if (this.over) return;
    this.over = true;
    this.microphone?.close();
    this.speaker?.close();
    this.socket?.close();
    this.view.over(this.ended ?? null, problem);
  }
}

// The server names its public address; the page talks to the host that it was loaded from, which the
// content security policy allows and which is surely reachable.
function ownAddress(wsUrl) {
  const url = new URL(wsUrl);
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  url.host = location.host;
  url.searchParams.set('events', 'turn_metrics');
  return url.href;
}
