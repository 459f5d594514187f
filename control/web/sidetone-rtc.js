// A call over WebRTC: offer and answer, candidates as they are found, restart of ICE when the path breaks.

import { SidetoneError, hungUp } from './sidetone-error.js';
import { Meter, REFUSED, atGesture, keepRunning } from './sidetone-sound.js';

// A path that is `disconnected` often comes back by itself; after this it is made anew.
const RESTART_AFTER_MS = 1500;
// A session that cannot be reached for this long is over: the server ends it then, too.
const GIVE_UP_MS = 30_000;
// Candidates come in flocks: those of this time go in one request.
const TRICKLE_MS = 40;
// The server takes no more of them in one request.
const MOST_CANDIDATES = 64;
// A data channel that fills up more than this is not read at the other end.
const MOST_WAITING = 256 * 1024;
const CONNECT_MS = 20_000;
// A server that has not said goodbye after this is asked to end the call by a request, which has as long.
const CLOSE_MS = 2000;
// A request that goes out while the network is away may never be answered: after this it counts as lost, so that there
// are several tries within GIVE_UP_MS.
const ANSWER_MS = 5000;
// A microphone that has given nothing by then is waited for longer, and the server is told that somebody is there.
const STILL_MS = 5000;

export class RtcLine {
  constructor(session, told) {
    this.told = told;
    this.waiting = [];
    this.unsent = [];
    this.gain = 1;
    this.peer = new RTCPeerConnection({
      iceServers: session.ice_config?.iceServers ?? [],
      bundlePolicy: 'max-bundle',
      iceTransportPolicy: told.iceTransportPolicy,
    });
  }

  /** Resolves once sound can travel. */
  async open() {
    const { peer, told } = this;
    this.context = new AudioContext();
    this.element = new Audio();
    this.element.autoplay = true;
    this.element.volume = this.gain;
    const sender = this.offerSound(told.microphone);
    peer.ontrack = ({ track, streams }) => this.hear(streams[0] ?? new MediaStream([track]));
    peer.onicecandidate = ({ candidate }) => this.trickle(candidate);
    this.listen(peer.createDataChannel('events'));
    peer.ondatachannel = ({ channel }) => channel.label === 'events' && this.listen(channel);
    // Whichever fails first: what a closed connection was asked for is never answered.
    await Promise.all([this.connected(told.patience ?? CONNECT_MS), this.exchange()]);
    peer.onconnectionstatechange = () => this.watch();
    // What is under way went out on a network that is no more.
    this.online = () => {
      this.trying?.abort();
      this.trying = null;
      this.restart();
    };
    addEventListener('online', this.online);
    if (sender) this.still = setTimeout(() => this.showLife(sender), STILL_MS);
    await keepRunning(this.context, told.onWarning);
  }

  // Who has no microphone only listens, and says so: the server ends the call of one who says that they send, and sends
  // nothing.
  offerSound(microphone) {
    if (microphone.silent) {
      this.peer.addTransceiver('audio', { direction: 'recvonly' });
      return null;
    }
    const sender = this.peer.addTrack(microphone.track, microphone.stream);
    const unsent = (error) => this.told.onWarning(`The other microphone cannot be sent: ${error.message}`);
    microphone.onTrack = (track) => sender.replaceTrack(track).catch(unsent);
    return sender;
  }

  // No sound may flow before a gesture on the page, or from a stream of the page's own: any message keeps the call.
  async showLife(sender) {
    const reports = [...(await sender.getStats()).values()];
    if (this.isClosed || reports.some(({ type, packetsSent }) => type === 'outbound-rtp' && packetsSent > 0)) return;
    this.told.onWarning('The microphone gives no sound yet.');
    this.send({ type: 'pong', event_id: 0 });
  }

  connected(patience) {
    return new Promise((resolve, reject) => {
      const unreachable = () =>
        reject(new SidetoneError('No network path to the server for WebRTC', { code: 'webrtc_unreachable' }));
      const timer = setTimeout(unreachable, patience);
      this.abandon = () => {
        clearTimeout(timer);
        reject(hungUp());
      };
      this.peer.onconnectionstatechange = () => {
        const state = this.peer.connectionState;
        if (state !== 'connected' && state !== 'failed' && state !== 'closed') return;
        clearTimeout(timer);
        if (state === 'connected') resolve();
        else unreachable();
      };
    });
  }

  // One offer, one answer. An answer to an older offer is dropped: a newer one is under way.
  async exchange(options, signal) {
    const offer = await this.peer.createOffer(options);
    await this.peer.setLocalDescription(offer);
    const round = (this.round ?? 0) + 1;
    this.round = round;
    const wanted = this.told.events.length > 0 ? `?events=${this.told.events.join(',')}` : '';
    const answer = await this.told.ask('POST', `/offer${wanted}`, {
      sdp: this.peer.localDescription.sdp,
      type: 'offer',
      ...(this.pcId ? { pc_id: this.pcId } : {}),
    }, { signal });
    if (this.isClosed || round !== this.round) return;
    this.pcId = answer.pc_id;
    await this.peer.setRemoteDescription({ type: answer.type, sdp: answer.sdp });
    this.flush();
  }

  trickle(candidate) {
    this.waiting.push({
      candidate: candidate?.candidate ?? '',
      sdp_mid: candidate?.sdpMid ?? '0',
      sdp_mline_index: candidate?.sdpMLineIndex ?? 0,
    });
    this.flushing ??= setTimeout(() => this.flush(), TRICKLE_MS);
  }

  // Until the first answer there is no pc_id to name: the candidates wait.
  async flush() {
    clearTimeout(this.flushing);
    this.flushing = null;
    while (this.pcId && this.waiting.length > 0 && !this.isClosed) {
      const candidates = this.waiting.splice(0, MOST_CANDIDATES);
      try {
        await this.told.ask('PATCH', '/ice', { pc_id: this.pcId, candidates }, { signal: AbortSignal.timeout(ANSWER_MS) });
      } catch (error) {
        // The candidates of the offer may suffice; if not, the path is made anew.
        this.told.onWarning(`Candidates were not taken: ${error.message}`);
      }
    }
  }

  watch() {
    const state = this.peer.connectionState;
    clearTimeout(this.again);
    if (state === 'connected') {
      clearTimeout(this.giveUp);
      this.giveUp = null;
      this.told.onState('live');
    } else if (state === 'disconnected') {
      this.lose();
      this.again = setTimeout(() => this.restart(), RESTART_AFTER_MS);
    } else if (state === 'failed') {
      this.lose();
      this.restart();
    }
  }

  lose() {
    this.told.onState('reconnecting');
    this.giveUp ??= setTimeout(
      () => this.told.onClose(new SidetoneError('The connection was lost', { code: 'connection_lost' })),
      GIVE_UP_MS,
    );
  }

  /** A new path for the same call: the recording and the conversation go on. One try at a time. */
  async restart() {
    if (this.isClosed || this.trying) return;
    const trying = new AbortController();
    this.trying = trying;
    clearTimeout(this.again);
    const late = setTimeout(() => trying.abort(), ANSWER_MS);
    try {
      await this.exchange({ iceRestart: true }, trying.signal);
    } catch (error) {
      // A newer one is under way.
      if (this.isClosed || this.trying !== trying) return;
      if (error.status === 404 || error.status === 400 || error.status === 401) {
        // A path that still holds needs no other one: a token may have expired, and the call goes on.
        if (this.peer.connectionState === 'connected') this.told.onWarning(`No new path was made: ${error.message}`);
        else this.told.onClose(error);
        return;
      }
      this.again = setTimeout(() => this.restart(), RESTART_AFTER_MS);
    } finally {
      clearTimeout(late);
      if (this.trying === trying) this.trying = null;
    }
  }

  listen(channel) {
    this.channel = channel;
    channel.onopen = () => {
      for (const message of this.unsent.splice(0)) this.send(message);
    };
    channel.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === 'ping') this.send({ type: 'pong', event_id: event.event_id });
      else this.told.onEvent(event);
    };
  }

  send(message) {
    if (this.channel?.readyState === 'connecting' && this.unsent.length < 64) this.unsent.push(message);
    if (this.channel?.readyState !== 'open' || this.channel.bufferedAmount > MOST_WAITING) return;
    this.channel.send(JSON.stringify(message));
  }

  // Sound goes through an element: browsers feed no remote stream to Web Audio without one.
  hear(stream) {
    this.element.srcObject = stream;
    this.element.play().catch(() => {
      if (this.isClosed) return;
      this.told.onWarning(REFUSED);
      atGesture(() => this.isClosed || this.element.play().catch(() => this.told.onWarning(REFUSED)));
    });
    this.meter = new Meter(this.context, this.context.createMediaStreamSource(stream));
  }

  level() {
    return this.isClosed || !this.meter ? 0 : this.meter.level();
  }

  set volume(volume) {
    this.gain = volume;
    if (this.element) this.element.volume = volume;
  }

  async stats() {
    const told = { rttMs: null, jitterMs: null, lossPct: null, concealedPct: null };
    for (const report of (await this.peer.getStats()).values()) {
      if (report.type === 'candidate-pair' && report.nominated && report.currentRoundTripTime !== undefined) {
        told.rttMs = report.currentRoundTripTime * 1000;
      }
      if (report.type === 'inbound-rtp' && report.kind === 'audio') {
        const all = report.packetsReceived + report.packetsLost;
        told.jitterMs = report.jitter * 1000;
        told.lossPct = all > 0 ? (100 * Math.max(0, report.packetsLost)) / all : 0;
        told.concealedPct = report.totalSamplesReceived > 0
          ? (100 * (report.concealedSamples - (report.silentConcealedSamples ?? 0))) / report.totalSamplesReceived
          : 0;
      }
    }
    return told;
  }

  async resume() {
    await this.context?.resume();
    await this.element?.play();
  }

  // Over the channel it is the caller who hangs up; a request ends the call where there is none.
  async end() {
    if (this.channel?.readyState === 'open') {
      this.send({ type: 'end' });
      await new Promise((resolve) => {
        this.goodbye = resolve;
        setTimeout(resolve, CLOSE_MS);
      });
      if (this.isClosed) return;
    }
    // A server that cannot be asked ends the call of a caller who has gone.
    await this.told.ask('POST', '/end', {}, { signal: AbortSignal.timeout(CLOSE_MS) }).catch(() => {});
    this.told.onClose(null);
  }

  /** The page goes away, or the call never began: tell the server, which resolves once it has ended the call. */
  leave() {
    const told = this.told.ask('POST', '/end', {}, { keepalive: true }).catch(() => {});
    this.close();
    return told;
  }

  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.abandon?.();
    this.goodbye?.();
    this.trying?.abort();
    for (const timer of [this.flushing, this.again, this.giveUp, this.still]) clearTimeout(timer);
    removeEventListener('online', this.online);
    if (this.element) this.element.srcObject = null;
    this.peer.onconnectionstatechange = null;
    this.peer.close();
    this.context?.close();
  }
}
