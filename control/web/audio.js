// Microphone in, agent out. The work itself is done in worklet.js, on the audio thread.

const RATE = 16000;

/// Whether this page may use a microphone at all: browsers give it to localhost and HTTPS only.
export const microphoneAllowed = () => Boolean(navigator.mediaDevices?.getUserMedia);

/// Opens the microphone. `onFrame(Int16Array)` gets 20 ms at a time.
export async function openMicrophone(onFrame) {
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
  });
  let context = new AudioContext({ sampleRate: RATE });
  let source;
  try {
    source = context.createMediaStreamSource(stream);
  } catch {
    // This browser does not convert a microphone's rate: take its own, the worklet converts.
    await context.close();
    context = new AudioContext();
    source = context.createMediaStreamSource(stream);
  }
  await context.audioWorklet.addModule('/web/worklet.js');
  const capture = new AudioWorkletNode(context, 'capture', { numberOfOutputs: 0 });
  capture.port.onmessage = ({ data }) => onFrame(data);
  source.connect(capture);
  await context.resume();
  return {
    close() {
      for (const track of stream.getTracks()) track.stop();
      return context.close();
    },
  };
}

/// Opens the loudspeaker. `onPlayed(id, ms)` tells how much of a piece was played, `onLevel(rms)` how
/// loud it is.
export async function openSpeaker(onPlayed, onLevel) {
  const context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
  await context.audioWorklet.addModule('/web/worklet.js');
  const player = new AudioWorkletNode(context, 'player', { numberOfInputs: 0, outputChannelCount: [1] });
  player.port.onmessage = ({ data }) => {
    if (data.level !== undefined) onLevel(data.level);
    else onPlayed(data.id, data.playedMs);
  };
  player.connect(context.destination);
  await context.resume();
  return {
    push(id, pcm) {
      const samples = Float32Array.from(pcm, (value) => value / 32768);
      player.port.postMessage({ push: { id, samples } }, [samples.buffer]);
    },
    dropTo(id) {
      player.port.postMessage({ dropTo: id });
    },
    close: () => context.close(),
  };
}

/// Loudness of 16-bit samples, 0 to 1.
export function rms(pcm) {
  let sum = 0;
  for (const value of pcm) sum += value * value;
  return Math.sqrt(sum / Math.max(1, pcm.length)) / 32768;
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
