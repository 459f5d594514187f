// Reads a stereo WAV as it arrives and keeps only the peaks, so that an hour of sound needs no memory.

export const BUCKETS = 800;

/** Fetches `url`; `onPeaks(caller, agent, done)` gets both sides' peaks (0 to 1, `BUCKETS` each) as they grow,
 * `done` from 0 to 1. Gives the length in seconds. */
export async function readPeaks(url, onPeaks, signal) {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(`The recording cannot be read (${response.status}).`);
  const peaks = [new Float32Array(BUCKETS), new Float32Array(BUCKETS)];
  const reader = response.body.getReader();
  let rest = new Uint8Array(0);
  let format = null;
  let frame = 0;
  let shownAt = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const bytes = join(rest, value);
    let from = 0;
    if (!format) {
      format = header(bytes);
      if (!format) {
        rest = bytes;
        continue;
      }
      from = format.data;
    }
    const size = 2 * format.channels;
    const whole = from + Math.floor((bytes.length - from) / size) * size;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = from; at < whole && frame < format.frames; at += size, frame += 1) {
      const bucket = Math.floor((frame * BUCKETS) / format.frames);
      for (let side = 0; side < 2; side += 1) {
        const loud = Math.abs(view.getInt16(at + 2 * Math.min(side, format.channels - 1), true)) / 32768;
        if (loud > peaks[side][bucket]) peaks[side][bucket] = loud;
      }
    }
    rest = bytes.slice(whole);
    if (performance.now() - shownAt > 100) {
      shownAt = performance.now();
      onPeaks(...peaks, frame / format.frames);
    }
  }
  if (!format) throw new Error('The recording is no WAV file.');
  onPeaks(...peaks, 1);
  return format.frames / format.rate;
}

function join(a, b) {
  if (a.length === 0) return b;
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

// RIFF chunks up to `data`; null while they are not all there.
function header(bytes) {
  if (bytes.length < 12) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const name = (at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (name(0) !== 'RIFF' || name(8) !== 'WAVE') throw new Error('The recording is no WAV file.');
  let channels = 2;
  let rate = 16000;
  for (let at = 12; at + 8 <= bytes.length;) {
    const size = view.getUint32(at + 4, true);
    if (name(at) === 'data') return { channels, rate, data: at + 8, frames: Math.max(1, size / (2 * channels)) };
    if (name(at) === 'fmt ' && at + 24 <= bytes.length) {
      channels = view.getUint16(at + 10, true);
      rate = view.getUint32(at + 12, true);
    }
    at += 8 + size + (size & 1);
  }
  return null;
}
