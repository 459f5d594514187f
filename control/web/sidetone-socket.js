// A call over the native WebSocket protocol (docs/websocket.md).

import { SidetoneError, hungUp } from './sidetone-error.js';
import { fromBase64, openSpeaker, toBase64 } from './sidetone-sound.js';

// More than this waiting in the socket means that the line is too slow: newer sound is worth more
// than old, so frames are left out (half a second of sound as base64).
const MOST_WAITING = 24_000;
// The server closes the line after `end`; if it does not, the page does, and waits for nobody: where the network is
// gone, a browser takes very long to close.
const CLOSE_MS = 1500;

export class SocketLine {
  constructor(url, told) {
    const address = new URL(url);
    if (told.events.length > 0) address.searchParams.set('events', told.events.join(','));
    this.url = address.href;
    this.told = told;
    this.gain = 1;
  }

  /** Resolves once the session is live. */
  async open() {
    const played = (id, ms) => this.send({ type: 'playback', event_id: id, played_ms: ms });
    this.speaker = await openSpeaker(played, this.told.onWarning);
    if (this.isClosed) {
      this.speaker.close();
      throw hungUp();
    }
    this.speaker.volume = this.gain;
    await new Promise((resolve, reject) => {
      this.socket = new WebSocket(this.url);
      this.socket.onmessage = ({ data }) => {
        const event = JSON.parse(data);
        if (event.type === 'session_started') {
          this.hasJoined = true;
          resolve();
        }
        this.handle(event);
      };
      this.socket.onclose = ({ code, reason }) => {
        this.isOver = true;
        const problem = code === 1000 ? null : closed(code, reason);
        reject(this.isClosed ? hungUp() : (problem ?? closed(code, 'it ended before it began')));
        this.told.onClose(problem);
      };
    });
    await this.told.microphone.frames((pcm) => {
      if (this.socket.bufferedAmount < MOST_WAITING) this.send({ type: 'audio', audio: toBase64(pcm) });
    });
  }

  handle(event) {
    switch (event.type) {
      case 'audio':
        this.speaker.push(event.event_id, fromBase64(event.audio));
        return;
      case 'ping':
        this.send({ type: 'pong', event_id: event.event_id });
        return;
      case 'interruption':
        this.speaker.dropTo(event.up_to_event_id);
        break;
      default:
        break;
    }
    this.told.onEvent(event);
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  level() {
    return this.isClosed ? 0 : (this.speaker?.level() ?? 0);
  }

  set volume(volume) {
    this.gain = volume;
    if (this.speaker) this.speaker.volume = volume;
  }

  // A socket measures nothing of the network.
  async stats() {
    return null;
  }

  async resume() {
    await this.speaker?.resume();
  }

  async end() {
    this.send({ type: 'end' });
    setTimeout(() => {
      this.socket?.close(1000);
      this.told.onClose(null);
    }, CLOSE_MS);
  }

  /** The page goes away: the server takes the closed socket for a hang-up. A session that the socket has not joined
   * would hold its slot until somebody does. */
  leave() {
    this.socket?.close(1000);
    if (this.hasJoined || this.isOver) return undefined;
    return this.told.ask('POST', '/end', {}, { keepalive: true }).catch(() => {});
  }

  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.speaker?.close();
    this.socket?.close();
  }
}

function closed(code, reason) {
  return new SidetoneError(`The line was closed (${code}${reason ? `: ${reason}` : ''})`, { code: `close_${code}` });
}
