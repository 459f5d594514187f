// Two processors that run on the browser's audio thread.
//
// `capture` turns the microphone into frames of 20 ms, 16 kHz, 16 bit, and posts them.
// `player` plays the agent's pieces in order, drops what an interruption takes back, and reports what
// was truly played.

const RATE = 16000;
const FRAME = 320;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.frame = new Int16Array(FRAME);
    this.filled = 0;
    // A microphone may come at another rate than 16 kHz: low-pass, then read between the samples.
    this.step = sampleRate / RATE;
    this.taps = this.step > 1 ? lowPass(7200 / sampleRate, 48) : null;
    this.past = new Float32Array(this.taps ? this.taps.length - 1 : 0);
    this.at = 0;
    this.last = 0;
  }

  process(inputs) {
    const channel = inputs[0]?.[0];
    if (!channel) return true;
    const input = this.taps ? this.filter(channel) : channel;
    if (this.step === 1) {
      for (const value of input) this.put(value);
      return true;
    }
    // `at` is the place of the next sample, counted from `last`, the sample before this block.
    while (this.at < input.length) {
      const whole = Math.floor(this.at);
      const before = whole === 0 ? this.last : input[whole - 1];
      this.put(before + (input[whole] - before) * (this.at - whole));
      this.at += this.step;
    }
    this.at -= input.length;
    this.last = input[input.length - 1];
    return true;
  }

  filter(channel) {
    const joined = new Float32Array(this.past.length + channel.length);
    joined.set(this.past);
    joined.set(channel, this.past.length);
    const out = new Float32Array(channel.length);
    for (let i = 0; i < out.length; i += 1) {
      let sum = 0;
      for (let k = 0; k < this.taps.length; k += 1) sum += this.taps[k] * joined[i + k];
      out[i] = sum;
    }
    this.past = joined.slice(channel.length);
    return out;
  }

  put(value) {
    this.frame[this.filled] = Math.max(-32768, Math.min(32767, Math.round(value * 32767)));
    this.filled += 1;
    if (this.filled === FRAME) {
      const full = this.frame;
      this.frame = new Int16Array(FRAME);
      this.filled = 0;
      this.port.postMessage(full, [full.buffer]);
    }
  }
}

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.pieces = [];
    this.offset = 0;
    this.sinceReport = 0;
    this.fading = 0;
    this.port.onmessage = ({ data }) => {
      if (data.push) this.pieces.push({ id: data.push.id, samples: data.push.samples });
      else if (data.dropTo !== undefined) this.drop(data.dropTo);
    };
  }

  // Everything up to that event goes. The piece in hand fades within 5 ms, so that it does not click.
  drop(upTo) {
    const current = this.pieces[0];
    const rest = this.pieces.filter((piece) => piece.id > upTo);
    if (current && current.id <= upTo) {
      this.report(current, this.offset);
      const end = Math.min(current.samples.length, this.offset + 80);
      const tail = current.samples.slice(this.offset, end);
      for (let i = 0; i < tail.length; i += 1) tail[i] *= 1 - i / tail.length;
      rest.unshift({ id: null, samples: tail });
      this.offset = 0;
    }
    this.pieces = rest;
  }

  report(piece, played) {
    if (piece.id === null) return;
    this.port.postMessage({ id: piece.id, playedMs: Math.round((played * 1000) / RATE) });
    this.sinceReport = 0;
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    for (let i = 0; i < out.length; i += 1) {
      const piece = this.pieces[0];
      if (!piece) break;
      const value = piece.samples[this.offset] ?? 0;
      out[i] = value;
      this.offset += 1;
      if (this.offset >= piece.samples.length) {
        this.report(piece, piece.samples.length);
        this.pieces.shift();
        this.offset = 0;
      }
    }
    for (let c = 1; c < outputs[0].length; c += 1) outputs[0][c].set(out);
    this.sinceReport += out.length;
    if (this.sinceReport > RATE / 10) {
      const piece = this.pieces[0];
      if (piece && piece.id !== null) this.report(piece, this.offset);
      this.sinceReport = 0;
    }
    return true;
  }
}

// Windowed sinc (Hann), unity gain at 0 Hz.
function lowPass(cutoff, order) {
  const taps = new Float32Array(order + 1);
  let sum = 0;
  for (let i = 0; i <= order; i += 1) {
    const x = i - order / 2;
    const sinc = x === 0 ? 2 * cutoff : Math.sin(2 * Math.PI * cutoff * x) / (Math.PI * x);
    taps[i] = sinc * (0.5 - 0.5 * Math.cos((2 * Math.PI * i) / order));
    sum += taps[i];
  }
  return taps.map((tap) => tap / sum);
}

registerProcessor('capture', Capture);
registerProcessor('player', Player);
