// Sound in and out of the browser, for both transports. What runs on the audio thread is in worklet.js.

const RATE = 16000;
const WORKLET = new URL('./worklet.js', import.meta.url);

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
    await microphone.context.resume();
    return microphone;
  }

  get track() {
    return this.stream.getAudioTracks()[0];
  }

  /** A muted track goes on, as silence. */
  set muted(muted) {
    for (const track of this.stream.getAudioTracks()) track.enabled = !muted;
  }

  level() {
    return this.closed ? 0 : this.meter.level();
  }

  /** Hands frames of 20 ms, 16 kHz, 16 bit to `onFrame`, until closed. */
  async frames(onFrame) {
    await this.context.audioWorklet.addModule(WORKLET);
    const capture = new AudioWorkletNode(this.context, 'capture', { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) => onFrame(data);
    this.source.connect(capture);
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    if (this.borrowed) this.muted = false;
    else for (const track of this.stream.getTracks()) track.stop();
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
export async function openSpeaker(onPlayed) {
  const context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
  await context.audioWorklet.addModule(WORKLET);
  const player = new AudioWorkletNode(context, 'player', { numberOfInputs: 0, outputChannelCount: [1] });
  player.port.onmessage = ({ data }) => onPlayed(data.id, data.playedMs);
  const gain = new GainNode(context);
  const meter = new Meter(context, player);
  player.connect(gain).connect(context.destination);
  await context.resume();
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
