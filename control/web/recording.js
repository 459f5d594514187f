// The sound of a call: both sides as waves on one time axis, the turns above and below, interruptions marked.
// A click or the arrow keys go to a place; what is heard is the recording itself.

import { ownAddress } from './api.js';
import { fill, h, icon, s } from './dom.js';
import { bytes, length } from './format.js';
import { failure } from './parts.js';
import { BUCKETS, readPeaks } from './wave-file.js';

const HALF = 60;
// A longer recording is read for its wave only when somebody asks: it may come over a slow line.
const ASK_ABOVE = 64 * 1024 * 1024;
const STEP_SECONDS = 5;

export class Recording {
  /** `link`: the answer of `GET /conversations/{id}/audio`; `seconds`: the length as the call knows it; `renew`
   * gives another link, for one holds for an hour. */
  constructor(link, seconds, turns, renew) {
    this.leaving = new AbortController();
    this.url = ownAddress(link.audio_url);
    this.size = link.size_bytes;
    this.seconds = Math.max(0.1, seconds);
    this.turns = turns;
    this.renew = renew;
    this.onTime = () => {};
    this.sound = new Audio(this.url);
    this.sound.preload = 'metadata';
    this.node = this.make();
    this.listen();
    if (this.size <= ASK_ABOVE) this.read();
    else fill(this.state, h('button.button.small', { type: 'button', onclick: () => this.read() }, `Draw the wave (${bytes(this.size)})`));
  }

  make() {
    this.button = h('button.button.main.icon', { type: 'button', id: 'play', 'aria-label': 'Play', onclick: () => this.toggle() }, icon('play'));
    this.time = h('span.num', { id: 'at' }, `0:00 / ${length(this.seconds)}`);
    this.state = h('span.soft.small');
    this.waves = ['caller', 'agent'].map((side) => s(`path.${side}`, { d: '' }));
    this.head = h('div.playhead');
    this.marks = h('div.marks');
    this.axis = h('div.axis', { 'aria-hidden': 'true' });
    this.scale = h('div.wave-box', {
      role: 'slider', tabindex: 0, id: 'wave', 'aria-label': 'Place in the recording', 'aria-valuemin': 0,
      onkeydown: (event) => this.key(event), onpointerdown: (event) => this.drag(event),
    },
    s('svg', { viewBox: `0 0 ${BUCKETS} ${HALF * 2}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      s('path.middle', { d: `M0 ${HALF}H${BUCKETS}`, 'vector-effect': 'non-scaling-stroke' }), this.waves),
    this.marks, this.head);
    this.lay();
    return h('div.recording',
      h('div.row', this.button, this.time, this.state, h('span.row.tight.push.sides-key', h('span.caller', 'Caller'), h('span.agent', 'Agent')),
        this.file = h('a.button.small', { href: this.url, download: 'call.wav' }, 'Download')),
      h('div.wave-frame', this.scale, this.axis));
  }

  // Turns and interruptions in their places, and a time every so often.
  lay() {
    const at = (value) => `${Math.min(100, (100 * value) / 1000 / this.seconds)}%`;
    const made = [];
    for (const turn of this.turns.filter((one) => one.start_ms !== null)) {
      const end = turn.end_ms ?? turn.start_ms + 400;
      const side = turn.role === 'user' ? 'caller' : 'agent';
      made.push(h(`span.span.${side}`, { title: `${side === 'caller' ? 'Caller' : 'Agent'}: ${turn.text}`, style: { left: at(turn.start_ms), width: at(Math.max(60, end - turn.start_ms)) } }));
      if (turn.interrupted_after_ms !== null && turn.interrupted_after_ms !== undefined) {
        made.push(h('span.cut-mark', { title: 'Interrupted here', style: { left: at(turn.start_ms + turn.interrupted_after_ms) } }));
      }
    }
    fill(this.marks, made);
    const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600].find((one) => this.seconds / one <= 8) ?? 1200;
    fill(this.axis, Array.from({ length: Math.floor(this.seconds / step) + 1 }, (_, x) => x * step)
      .filter((second) => second === 0 || second < this.seconds * 0.97)
      .map((second) => h('span', { style: { left: at(second * 1000) } }, length(second))));
    this.scale.setAttribute('aria-valuemax', this.seconds.toFixed(1));
    this.moved();
  }

  async read() {
    fill(this.state, 'Reading…');
    try {
      const seconds = await readPeaks(this.url, (caller, agent) => this.draw(caller, agent), this.leaving.signal);
      fill(this.state);
      this.node.dataset.drawn = 'true';
      if (Math.abs(seconds - this.seconds) > 0.05) {
        this.seconds = seconds;
        this.lay();
      }
    } catch (error) {
      if (error.name !== 'AbortError') fill(this.state, failure(error));
    }
  }

  // Loudness is drawn by its square root: quiet speech is seen, too.
  draw(caller, agent) {
    const line = (peaks, sign) => {
      let path = `M0 ${HALF}`;
      for (let x = 0; x < peaks.length; x += 1) path += `L${x} ${(HALF + sign * Math.sqrt(peaks[x]) * (HALF - 6)).toFixed(1)}`;
      return `${path}L${BUCKETS} ${HALF}Z`;
    };
    this.waves[0].setAttribute('d', line(caller, -1));
    this.waves[1].setAttribute('d', line(agent, 1));
  }

  listen() {
    const { sound } = this;
    const show = () => {
      this.button.setAttribute('aria-label', sound.paused ? 'Play' : 'Pause');
      fill(this.button, icon(sound.paused ? 'play' : 'pause'));
    };
    sound.addEventListener('play', () => { show(); this.run(); });
    sound.addEventListener('pause', show);
    sound.addEventListener('ended', show);
    sound.addEventListener('seeked', () => this.moved());
    sound.addEventListener('loadedmetadata', () => { this.isRenewed = false; });
    sound.addEventListener('error', () => this.again());
  }

  // A link that holds no more gives way to another; where that does not help either, one is told.
  async again() {
    const { sound } = this;
    const lost = () => fill(this.state, 'The sound cannot be played.');
    if (this.leaving.signal.aborted) return;
    if (this.isRenewed) {
      lost();
      return;
    }
    this.isRenewed = true;
    const [at, plays] = [sound.currentTime, !sound.paused];
    try {
      this.url = ownAddress((await this.renew()).audio_url);
    } catch (error) {
      if (error.name !== 'AbortError') lost();
      return;
    }
    this.file.href = this.url;
    sound.src = this.url;
    sound.currentTime = at;
    if (plays) this.play();
  }

  run() {
    this.moved();
    if (!this.sound.paused) requestAnimationFrame(() => this.run());
  }

  moved() {
    const now = this.sound?.currentTime ?? 0;
    this.head.style.left = `${Math.min(100, (100 * now) / this.seconds)}%`;
    this.time.textContent = `${length(now)} / ${length(this.seconds)}`;
    this.scale.setAttribute('aria-valuenow', now.toFixed(1));
    this.scale.setAttribute('aria-valuetext', `${length(now)} of ${length(this.seconds)}`);
    this.onTime(now * 1000);
  }

  toggle() {
    if (this.sound.paused) this.play();
    else this.sound.pause();
  }

  /** Plays from this place on. */
  playFrom(milliseconds) {
    this.seek(milliseconds / 1000);
    this.play();
  }

  // Who pauses before it sounds wants it so, and what cannot be played tells that by its event.
  play() {
    this.sound.play().catch(() => {});
  }

  seek(seconds) {
    this.sound.currentTime = Math.min(this.seconds, Math.max(0, seconds));
    this.moved();
  }

  key(event) {
    const now = this.sound.currentTime;
    const to = { ArrowLeft: now - STEP_SECONDS, ArrowRight: now + STEP_SECONDS, Home: 0, End: this.seconds }[event.key];
    if (to !== undefined) this.seek(to);
    else if (event.key === ' ' || event.key === 'Enter') this.toggle();
    else return;
    event.preventDefault();
  }

  drag(event) {
    if (event.button !== 0) return;
    const box = this.scale.getBoundingClientRect();
    const go = (move) => this.seek(((move.clientX - box.left) / box.width) * this.seconds);
    go(event);
    this.scale.setPointerCapture(event.pointerId);
    this.scale.onpointermove = go;
    const over = () => { this.scale.onpointermove = this.scale.onpointerup = this.scale.onpointercancel = null; };
    this.scale.onpointerup = () => {
      over();
      this.play();
    };
    // A finger that began to scroll the page is none of ours.
    this.scale.onpointercancel = over;
  }

  close() {
    this.leaving.abort();
    this.sound.pause();
    this.sound.removeAttribute('src');
  }
}
