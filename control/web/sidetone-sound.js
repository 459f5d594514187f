// Sound in and out of the browser, for both transports. What runs on the audio thread is in worklet.js.

const RATE = 16000;
const WORKLET = new URL('./worklet.js', import.meta.url);

// A context that may not sound before a gesture leaves `resume` pending until there is one.
const RESUME_MS = 500;
const GESTURES = ['pointerdown', 'keydown', 'touchend'];
export const REFUSED = 'The browser does not play sound yet: press a button on the page.';

/** Calls `act` at the next gesture on the page. */
export function atGesture(act) {
  const acted = () => {
    for (const name of GESTURES) removeEventListener(name, acted, true);
    act();
  };
  for (const name of GESTURES) addEventListener(name, acted, true);
}

/** Has the context run. Where the browser refuses, or takes the sound away later (a telephone call on a
 * telephone), `warn` is told, and the next gesture tries again. */
export async function keepRunning(context, warn) {
  let waiting = false;
  const refused = () => {
    if (waiting || context.state === 'running' || context.state === 'closed') return;
    waiting = true;
    warn(REFUSED);
    atGesture(() => {
      waiting = false;
      if (context.state !== 'closed') context.resume().catch(refused);
    });
  };
  context.onstatechange = () => {
    if (context.state === 'interrupted' || context.state === 'suspended') refused();
  };
  const late = new Promise((resolve) => setTimeout(resolve, RESUME_MS));
  await Promise.race([context.resume().catch(() => {}), late]);
  refused();
}

/** How loud an audio node is just now: the root mean square of its last samples, 0 to 1. */
export class Meter {
  constructor(context, node) {
    this.analyser = new AnalyserNode(context, { fftSize: 1024 });
    this.samples = new Float32Array(this.analyser.fftSize);
    node.connect(this.analyser);
  }

  level() {
    this.analyser.getFloatTimeDomainData(this.samples);
    let sum = 0;
    for (const value of this.samples) sum += value * value;
    return Math.sqrt(sum / this.samples.length);
  }
}

/** The caller's voice: a microphone, a stream of the page's own, or silence. */
export class Microphone {
  /** `wanted`: true, false, constraints of getUserMedia, or a MediaStream. Without a microphone the caller
   * is silent and may type; `warn` is told why. */
  static async open(wanted, warn) {
    const microphone = new Microphone();
    microphone.wanted = wanted;
    microphone.warn = warn;
    if (wanted instanceof MediaStream) {
      microphone.stream = wanted;
      microphone.borrowed = true;
    } else if (wanted) {
      microphone.stream = await ask(wanted, warn);
    }
    microphone.context = new AudioContext({ sampleRate: RATE });
    if (!microphone.stream) {
      microphone.stream = microphone.context.createMediaStreamDestination().stream;
      microphone.silent = true;
    }
    try {
      microphone.source = microphone.context.createMediaStreamSource(microphone.stream);
    } catch {
      // This browser does not convert a microphone's rate: take its own, the worklet converts.
      await microphone.context.close();
      microphone.context = new AudioContext();
      microphone.source = microphone.context.createMediaStreamSource(microphone.stream);
    }
    microphone.meter = new Meter(microphone.context, microphone.source);
    microphone.watch();
    await keepRunning(microphone.context, warn);
    return microphone;
  }

  // A device that was taken away ends its track.
  watch() {
    if (this.borrowed || this.silent) return;
    this.track.onended = () => this.again(true);
  }

  // Another microphone, now or when one is plugged in.
  async again(lost) {
    if (this.closed) return;
    if (lost) this.warn('The microphone is gone.');
    const stream = await ask(this.wanted, () => {});
    if (this.closed) {
      for (const track of stream?.getTracks() ?? []) track.stop();
      return;
    }
    if (!stream) {
      navigator.mediaDevices?.addEventListener('devicechange', () => this.again(false), { once: true });
      return;
    }
    const source = this.context.createMediaStreamSource(stream);
    source.connect(this.meter.analyser);
    if (this.capture) source.connect(this.capture);
    this.source.disconnect();
    [this.source, this.stream] = [source, stream];
    if (this.before) this.silence();
    this.watch();
    this.onTrack?.(this.track);
    this.warn('Another microphone is used now.');
  }

  get track() {
    return this.stream.getAudioTracks()[0];
  }

  /** A muted track goes on, as silence. A page's own is touched for this alone, and is then again as the page
   * had it. */
  set muted(muted) {
    if (this.closed || muted === Boolean(this.before)) return;
    if (muted) {
      this.silence();
      return;
    }
    for (const [track, enabled] of this.before) track.enabled = enabled;
    this.before = null;
  }

  silence() {
    this.before = new Map(this.stream.getAudioTracks().map((track) => [track, track.enabled]));
    for (const track of this.before.keys()) track.enabled = false;
  }

  level() {
    return this.closed ? 0 : this.meter.level();
  }

  /** Hands frames of 20 ms, 16 kHz, 16 bit to `onFrame`, until closed. */
  async frames(onFrame) {
    await this.context.audioWorklet.addModule(WORKLET);
    this.capture = new AudioWorkletNode(this.context, 'capture', { numberOfOutputs: 0 });
    this.capture.port.onmessage = ({ data }) => onFrame(data);
    this.source.connect(this.capture);
  }

  close() {
    if (this.closed) return;
    if (this.borrowed) this.muted = false;
    this.closed = true;
    if (!this.borrowed) for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
  }
}

async function ask(wanted, warn) {
  if (!navigator.mediaDevices?.getUserMedia) {
    warn('Browsers give the microphone only to pages on localhost or over HTTPS. You can type instead.');
    return null;
  }
  const natural = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: wanted === true ? natural : { ...natural, ...wanted } });
  } catch (error) {
    warn(`No microphone (${error.message || error.name}). You can type instead.`);
    return null;
  }
}

/** Plays pieces of 16-bit sound in order; `onPlayed(id, ms)` tells how much of a piece was heard. */
export async function openSpeaker(onPlayed, warn) {
  const context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
  await context.audioWorklet.addModule(WORKLET);
  const player = new AudioWorkletNode(context, 'player', { numberOfInputs: 0, outputChannelCount: [1] });
  player.port.onmessage = ({ data }) => onPlayed(data.id, data.playedMs);
  const gain = new GainNode(context);
  const meter = new Meter(context, player);
  player.connect(gain).connect(context.destination);
  await keepRunning(context, warn);
  return {
    push(id, pcm) {
      const samples = Float32Array.from(pcm, (value) => value / 32768);
      player.port.postMessage({ push: { id, samples } }, [samples.buffer]);
    },
    dropTo: (id) => player.port.postMessage({ dropTo: id }),
    level: () => meter.level(),
    set volume(volume) {
      gain.gain.value = volume;
    },
    resume: () => context.resume(),
    close: () => context.close(),
  };
}

export function toBase64(pcm) {
  const bytes = new Uint8Array(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  let text = '';
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}

export function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length & ~1);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return new Int16Array(bytes.buffer);
}
