// A call with an agent from this page: what is said, who speaks, how loud, and where the time of each answer
// goes. Sound and lines are sidetone.js; here is only what one sees.

import { fill, h, icon } from './dom.js';
import { DASH, length, ms, percent, title, words } from './format.js';
import { failure, ghosts, head, load } from './parts.js';
import { Call } from './sidetone.js';
import { Transcript } from './transcript.js';

const EVENTS = ['turn_metrics', 'vad'];
const STATES = { listening: 'Listening', thinking: 'Thinking', speaking: 'Speaking' };
const LINES = [['auto', 'Best line'], ['webrtc', 'WebRTC'], ['websocket', 'WebSocket']];
const KEYPAD = ['1', '2', '3', '4', '5', '6', '7', '8', '9', '*', '0', '#'];

export function page({ api, id, name }) {
  const leaving = new AbortController();
  const place = h('div.stack.gap');
  const own = { node: place, unsaved: null, close: null };
  let talk = null;
  own.close = () => {
    leaving.abort();
    talk?.close();
  };
  load(place, async () => {
    const agent = await api.get(`/agents/${id}`, { signal: leaving.signal });
    name(`Talk to ${agent.name}`);
    talk = new Talk(api, agent, own);
    return talk.nodes();
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(1, '30rem')] });
  return own;
}

class Talk {
  constructor(api, agent, own) {
    Object.assign(this, { api, agent, own, call: null, answers: [] });
    this.transcript = new Transcript();
  }

  nodes() {
    this.orb = h('div.orb', { data: { state: 'idle' }, 'aria-hidden': 'true' }, h('i'), h('i'), h('b'));
    this.state = h('p.says', { role: 'status', id: 'state', data: { state: 'idle' } }, 'Ready');
    this.line = h('p.soft.small.num', { id: 'line' }, 'The microphone opens when the call starts.');
    this.transport = h('select', { id: 'transport', 'aria-label': 'How the sound travels' }, LINES.map(([value, text]) => h('option', { value }, text)));
    this.button = h('button.button.main.tall', { type: 'button', id: 'call', onclick: () => (this.call ? this.call.end() : this.start()) }, icon('calls'), h('span', 'Start the call'));
    this.mute = h('button.button.icon', { type: 'button', id: 'mute', 'aria-label': 'Mute the microphone', 'aria-pressed': 'false', disabled: true, onclick: () => this.call?.mute(!this.call.muted) }, icon('mic'));
    this.keypad = h('details.keypad',
      h('summary.button.icon', { 'aria-label': 'Keypad' }, icon('keypad')),
      h('div.keys', KEYPAD.map((key) => h('button.button', { type: 'button', disabled: true, onclick: () => this.press(key) }, key))));
    this.meters = { you: meter('You', 'you'), agent: meter('Agent', 'them') };
    this.facts = { time: h('dd.num', { id: 'clock' }, '0:00'), turns: h('dd.num', { id: 'turns' }, '0'), median: h('dd.num', { id: 'median' }, DASH) };
    this.problem = h('div', { id: 'problem', hidden: true });
    this.after = h('p.row', { hidden: true });
    this.text = h('input', { id: 'text', maxlength: 4000, placeholder: 'Or type to the agent…', disabled: true, autocomplete: 'off', 'aria-label': 'Type to the agent' });
    this.sendButton = h('button.button.icon', { type: 'submit', disabled: true, 'aria-label': 'Send' }, icon('send'));
    this.greet();
    return [
      head(this.agent.name, { back: { href: '#/agents', text: 'Agents' }, lead: `Speaks ${title(this.agent.language)}.`, actions: [h('a.button', { href: `#/agents/${this.agent.id}` }, 'Settings')] }),
      this.whole = h('div.talk',
        h('section.card.stage', { 'aria-label': 'Call' },
          this.orb, this.state, this.line,
          h('div.row.controls', this.mute, this.button, this.keypad),
          this.problem, this.after,
          h('div.meters', this.meters.you.node, this.meters.agent.node),
          h('div.choice', this.transport),
          h('dl.trio', h('div', h('dt', 'Time'), this.facts.time), h('div', h('dt', 'Turns'), this.facts.turns), h('div', h('dt', 'Median answer'), this.facts.median))),
        h('section.card.words', { 'aria-label': 'What is said' }, this.transcript.node,
          h('form.type', { onsubmit: (event) => this.type(event) }, this.text, this.sendButton))),
    ];
  }

  greet() {
    this.transcript.clear(h('li', h('div.empty', h('p', 'What you and the agent say appears here, with the time that each answer took and where it went.'))));
  }

  async start() {
    fill(this.problem);
    this.problem.hidden = true;
    this.after.hidden = true;
    this.greet();
    this.answers = [];
    this.show();
    const call = new Call({ agentId: this.agent.id, apiKey: this.api.key, events: EVENTS, transport: this.transport.value });
    this.call = call;
    this.own.unsaved = () => ({ title: 'Hang up?', text: 'The call ends when you leave this page.', leave: 'Hang up and leave' });
    call.on('state', ({ state }) => this.become(state));
    call.on('agent_state', ({ state }) => this.agentState(state));
    call.on('muted', ({ muted }) => this.muted(muted));
    call.on('warning', ({ message }) => this.transcript.note(message));
    call.on('user_transcript', (said) => { this.transcript.said('user', said.turn_id, said.text, said.is_final); this.show(); });
    call.on('agent_response', (said) => { this.transcript.said('assistant', said.turn_id, said.text, said.is_final); this.show(); });
    call.on('interruption', (cut) => this.transcript.interrupted(cut.turn_id, cut.estimated_text_spoken, cut.spoken_ms));
    call.on('turn_metrics', ({ turn_id: turn, latency }) => this.answered(turn, latency));
    call.on('error', ({ message }) => this.transcript.note(message));
    call.on('ended', (ended) => this.ended(call, ended));
    this.look = requestAnimationFrame(() => this.frame(call));
    this.clock = setInterval(() => this.tick(call), 500);
    try {
      await call.start();
    } catch {
      // `ended` has told it.
    }
  }

  become(state) {
    if (state === 'connecting') {
      this.orb.dataset.state = 'connecting';
      this.says('connecting', 'Connecting…');
      this.transport.disabled = true;
      this.whole.dataset.call = 'on';
      this.button.className = 'button stop tall';
      fill(this.button, icon('calls'), h('span', 'Hang up'));
    }
    if (state === 'reconnecting') this.says('reconnecting', 'Reconnecting…');
    if (state === 'live') {
      this.began ??= performance.now();
      this.agentState(this.call?.agentState ?? 'listening');
      this.enable(true);
    }
  }

  agentState(state) {
    if (!this.began) return;
    this.orb.dataset.state = state;
    this.says('live', STATES[state]);
  }

  says(state, text) {
    this.state.dataset.state = state;
    this.state.textContent = text;
  }

  enable(on) {
    for (const control of [this.text, this.sendButton, this.mute, ...this.keypad.querySelectorAll('button')]) control.disabled = !on;
  }

  muted(muted) {
    this.mute.setAttribute('aria-pressed', String(muted));
    this.mute.setAttribute('aria-label', muted ? 'Unmute the microphone' : 'Mute the microphone');
    fill(this.mute, icon(muted ? 'micoff' : 'mic'));
  }

  press(key) {
    this.call?.sendDigits(key);
    this.transcript.note(`Pressed ${key}`);
  }

  type(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    if (!text || !this.call) return;
    this.call.sendText(text);
    this.text.value = '';
  }

  answered(turn, latency) {
    if (!Number.isFinite(latency?.response_ms)) return;
    this.transcript.answered(turn, latency);
    this.answers.push(latency.response_ms);
    this.show();
  }

  show() {
    this.facts.turns.textContent = String(this.transcript.count);
    const sorted = [...this.answers].sort((a, b) => a - b);
    this.facts.median.textContent = sorted.length > 0 ? ms(sorted[Math.floor((sorted.length - 1) / 2)]) : DASH;
  }

  // Levels follow the sound, once a painted frame.
  frame(call) {
    if (this.call !== call) return;
    const [you, agent] = [loud(call.inputLevel), loud(call.outputLevel)];
    this.meters.you.show(you);
    this.meters.agent.show(agent);
    this.orb.style.setProperty('--agent', agent.toFixed(3));
    this.orb.style.setProperty('--you', you.toFixed(3));
    this.look = requestAnimationFrame(() => this.frame(call));
  }

  async tick(call) {
    if (!this.began || this.call !== call) return;
    this.facts.time.textContent = length((performance.now() - this.began) / 1000);
    const { rttMs, lossPct } = await call.stats();
    if (this.call !== call) return;
    const way = call.transport === 'webrtc' ? 'WebRTC' : 'WebSocket';
    this.line.textContent = [`Over ${way}`, rttMs !== null && `${ms(rttMs)} round trip`, lossPct !== null && `${percent(lossPct)} lost`].filter(Boolean).join(' · ');
  }

  ended(call, { reason, error, sessionId }) {
    cancelAnimationFrame(this.look);
    clearInterval(this.clock);
    if (this.began) this.transcript.note(reason ? `The call ended: ${words(reason)}.` : 'The call ended.');
    this.call = null;
    this.own.unsaved = null;
    this.orb.dataset.state = 'idle';
    this.says(error ? 'failed' : 'idle', error ? 'Ended' : 'Ready');
    this.line.textContent = 'The microphone opens when the call starts.';
    this.meters.you.show(0);
    this.meters.agent.show(0);
    this.enable(false);
    this.muted(false);
    this.transport.disabled = false;
    delete this.whole.dataset.call;
    this.button.className = 'button main tall';
    fill(this.button, icon('calls'), h('span', 'Start the call'));
    if (error) {
      fill(this.problem, failure(error));
      this.problem.hidden = false;
    }
    if (this.began && sessionId) {
      fill(this.after, h('a.button', { href: `#/calls/${sessionId}` }, 'Look at this call'));
      this.after.hidden = false;
    }
    this.began = null;
  }

  close() {
    this.call?.end();
  }
}

function meter(name, id) {
  const bar = h('span.meter', { id, role: 'meter', 'aria-label': name, 'aria-valuemin': 0, 'aria-valuemax': 1, 'aria-valuenow': 0 }, h('i'));
  return {
    node: h('div', h('span', name), bar),
    show(level) {
      bar.style.setProperty('--level', level.toFixed(2));
      bar.setAttribute('aria-valuenow', level.toFixed(1));
    },
  };
}

// 0 at −50 dBFS, 1 at 0 dBFS: a meter that moves with speech.
const loud = (rms) => (rms > 0 ? Math.max(0, Math.min(1, 1 + (20 * Math.log10(rms)) / 50)) : 0);
