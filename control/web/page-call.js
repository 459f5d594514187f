// One call: its sound, its words, where the time of each answer went, and how the line was.

import { channel, party } from './call-rows.js';
import { fill, h, icon, refill } from './dom.js';
import { DASH, length, money, ms, percent, title, when, words } from './format.js';
import { badge, empty, facts, failure, ghosts, head, load, toast } from './parts.js';
import { Recording } from './recording.js';
import { sipCode } from './telephone-names.js';
import { cut } from './transcript.js';
import { waterfall } from './waterfall.js';

// A call that still runs, or whose recording or webhook is not through yet, is looked at again: what comes after the
// end may take long, a webhook three days, so the looks at that become rare.
const AGAIN_MS = 2000;
const RARELY_MS = 60_000;
const RUNNING = ['queued', 'ringing', 'in_progress'];
// A delivery that failed is tried again; one that is given up has another name.
const UNDELIVERED = ['pending', 'delivering', 'failed'];

export function page({ api, id, name }) {
  const leaving = new AbortController();
  const place = h('div.stack.gap');
  let view = null;
  load(place, async () => {
    const ask = (path) => api.get(path, { signal: leaving.signal });
    const call = await ask(`/calls/${id}`);
    // The trunk may be deleted by now, or not be this key's business.
    const trunk = call.trunk_id && await ask(`/sip-trunks/${call.trunk_id}`).catch((error) => { if ([403, 404].includes(error.status)) return null; throw error; });
    name(`Call with ${call.agent_name || 'no agent'}`);
    view = new View(call, trunk, api, ask);
    return view.nodes();
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '18rem' } }), ghosts(1, '15rem'), ghosts(2, '18rem')] });
  return {
    node: place,
    close() {
      leaving.abort();
      view?.close();
    },
  };
}

class View {
  constructor(call, trunk, api, ask) {
    Object.assign(this, { call, trunk, api, ask, recording: null, opening: false, isLost: false, isClosed: false, looks: 0, asked: 0, rows: [] });
  }

  nodes() {
    const { call } = this;
    this.sound = h('div.pad');
    this.talk = h('div');
    this.times = h('div.pad');
    this.state = h('span.row.tight');
    this.events = h('div.pad');
    this.net = h('div.pad');
    this.top = h('div.pad');
    this.fillFacts();
    this.fillTurns();
    this.fillSound();
    this.fillDiagnostics();
    this.again();
    const hangUp = h('button.button.danger', { type: 'button', hidden: !RUNNING.includes(call.status), onclick: () => this.hangUp() }, 'Hang up');
    this.hangUpButton = hangUp;
    const section = (heading, body, id) => h('section.card', { 'aria-labelledby': id }, h('header', h('h2', { id }, heading)), body);
    return [
      head(`${call.agent_name || 'No agent'}, ${when(call.started_at ?? call.created_at)}`, { back: { href: '#/calls', text: 'Calls' }, lead: this.state, actions: [hangUp, call.agent_id ? h('a.button', { href: `#/talk/${call.agent_id}` }, 'Talk to this agent') : null] }),
      section('Recording', this.sound, 'title-sound'),
      h('div.halves',
        section('What was said', this.talk, 'title-said'),
        h('div.stack.gap',
          section('Where the time went', this.times, 'title-times'),
          section('The line', this.net, 'title-line'),
          section('Report', this.events, 'title-report'),
          section('The call', this.top, 'title-call'))),
    ];
  }

  fillFacts() {
    const { call } = this;
    refill(this.state, badge(call.status), h('span.soft', [call.end_reason && title(call.end_reason), length(call.duration_seconds)].filter(Boolean).join(' · ')));
    refill(this.top, facts([
      ...this.line(), ['Channel', channel(call.channel)], ['Direction', title(call.direction)],
      ['Started', when(call.started_at)], ['Ended', when(call.ended_at)], ['Ended by', title(call.ended_by)],
      ['Turns', call.turn_count], ['Cost', money(call.cost_cents)],
      ['Id', h('code.break', call.id)],
    ]));
    refill(this.events, facts([
      ['call.ended', call.webhook_delivery_status ? badge(call.webhook_delivery_status) : h('span.soft', 'no webhook is set')],
      call.webhook_attempts > 0 && ['Attempts', call.webhook_attempts],
      call.webhook_delivered_at && ['Delivered', when(call.webhook_delivered_at)],
    ]));
  }

  // Who talks to whom, and how the telephone told it.
  line() {
    const { call, trunk } = this;
    if (!call.from_number && !call.to_number) return [['With', party(call)]];
    const own = (number, is) => (is && call.phone_number_id ? h('a.num', { href: `#/numbers/${call.phone_number_id}` }, number) : h('span.num', number ?? 'withheld'));
    return [
      ['From', own(call.from_number, call.direction === 'outbound')], ['To', own(call.to_number, call.direction === 'inbound')],
      call.trunk_id && ['Trunk', trunk ? h('a', { href: `#/trunks/${trunk.id}` }, trunk.name) : h('code.break', call.trunk_id)],
      Number.isFinite(call.ring_seconds) && ['Rang for', `${call.ring_seconds.toFixed(1)} s`],
      Number.isFinite(call.sip_code) && ['SIP answer', sipCode(call.sip_code)],
    ];
  }

  fillTurns() {
    const turns = this.call.transcript ?? [];
    if (turns.length === 0) {
      fill(this.talk, empty(RUNNING.includes(this.call.status) ? 'What is said appears when a turn is over.' : 'Nobody said anything that was kept.'));
      return;
    }
    this.rows = turns.map((turn) => this.row(turn));
    fill(this.talk, h('ol.turns', this.rows.map(({ item }) => item)));
  }

  row(turn) {
    const text = h('p.text', turn.text);
    if (turn.interrupted && typeof turn.estimated_text_spoken === 'string') cut(text, turn.text, turn.estimated_text_spoken);
    const who = { user: 'Caller', assistant: 'Agent', human_agent: 'Person' }[turn.role] ?? title(turn.role);
    const play = turn.start_ms === null
      ? h('span.at.soft.num', DASH)
      : h('button.at.num', { type: 'button', 'aria-label': `Play from ${length(turn.start_ms / 1000)}`, onclick: () => this.recording?.playFrom(turn.start_ms) }, icon('play'), length(turn.start_ms / 1000));
    const tools = (turn.tool_calls ?? []).map((tool) => h('p.small.soft', `Tool ${tool.name}: ${words(tool.status)}, ${ms(tool.duration_ms)}`));
    const item = h('li', { class: turn.role }, play,
      h('div', h('p.who', h('span', who),
        turn.source !== 'speech' && turn.source && h('span', turn.source),
        Number.isFinite(turn.latency?.response_ms) && h('span.num', ms(turn.latency.response_ms)),
        turn.interrupted && h('span.cut', Number.isFinite(turn.interrupted_after_ms) ? `interrupted after ${(turn.interrupted_after_ms / 1000).toFixed(1)} s` : 'interrupted')),
      text, turn.text_raw && h('p.small.soft', `Heard: ${turn.text_raw}`), tools));
    return { item, from: turn.start_ms, to: turn.end_ms };
  }

  async fillSound() {
    const { call } = this;
    if (this.recording || this.opening) return;
    if (!call.has_recording) {
      fill(this.sound, h('p', { class: 'soft quiet-box' }, this.silence()));
      return;
    }
    this.opening = true;
    fill(this.sound, h('div.ghost.recording-room'));
    try {
      const link = await this.ask(`/conversations/${call.id}/audio`);
      if (this.isClosed) return;
      this.recording = new Recording(link, call.duration_seconds, call.transcript ?? [], () => this.ask(`/conversations/${call.id}/audio`));
      this.recording.onTime = (at) => this.follow(at);
      fill(this.sound, this.recording.node);
    } catch (error) {
      if (error.name === 'AbortError') return;
      fill(this.sound, error.status === 404 ? h('p', { class: 'soft quiet-box' }, 'The recording was deleted.') : failure(error, () => this.fillSound()));
    } finally {
      this.opening = false;
    }
  }

  // Why there is nothing to hear.
  silence() {
    if (RUNNING.includes(this.call.status)) return 'The recording is made while the call runs.';
    if (this.isLost) return 'The recording failed.';
    return this.recordingComes() ? 'The recording is being finished.' : 'This call has no recording.';
  }

  // The end of a call that is recorded names its recording; it can be heard once the file is kept.
  recordingComes() {
    return Boolean(this.call.recording_id) && !this.call.has_recording && !this.isLost;
  }

  // The turn that is heard is marked.
  follow(at) {
    const playing = this.recording && (!this.recording.sound.paused || at > 0);
    for (const { item, from, to } of this.rows) item.classList.toggle('now', Boolean(playing) && from !== null && at >= from && at < (to ?? from + 1000));
  }

  async fillDiagnostics() {
    this.asked += 1;
    const own = this.asked;
    try {
      const told = await this.ask(`/conversations/${this.call.id}/diagnostics`);
      if (own !== this.asked) return;
      const median = told.latency_summary?.response_ms;
      fill(this.times, told.waterfall.length === 0
        ? h('p.soft', 'No answer was measured.')
        : [median && h('p.soft.small', `Median ${ms(median.p50)}, slowest ${ms(median.max)}, over ${median.count} ${median.count === 1 ? 'answer' : 'answers'}.`), waterfall(told.waterfall, (at) => this.recording?.playFrom(at))]);
      const { network } = told;
      const measured = [network.rtt_ms, network.loss_pct, network.jitter_ms, network.mos].some((one) => one !== null);
      fill(this.net, measured ? facts([
        ['Round trip', network.rtt_ms === null ? DASH : ms(network.rtt_ms)], ['Lost', percent(network.loss_pct ?? NaN)],
        ['Jitter', network.jitter_ms === null ? DASH : ms(network.jitter_ms)], ['MOS, estimated', network.mos === null ? DASH : network.mos.toFixed(1)],
      ]) : h('p.soft', 'Nothing was measured on this line.'), told.errors.length > 0 && h('ul.faults', faults(told)));
    } catch (error) {
      if (error.name === 'AbortError' || own !== this.asked) return;
      fill(this.times, failure(error, () => this.fillDiagnostics()));
    }
  }

  again() {
    const runs = RUNNING.includes(this.call.status);
    if (!runs && !this.recordingComes() && !UNDELIVERED.includes(this.call.webhook_delivery_status)) return;
    const wait = runs ? AGAIN_MS : Math.min(RARELY_MS, AGAIN_MS * 1.5 ** this.looks);
    if (!runs) this.looks += 1;
    this.timer = setTimeout(async () => {
      try {
        await this.look();
      } catch (error) {
        if (error.name === 'AbortError') return;
      }
      this.again();
    }, wait);
  }

  async look() {
    const before = this.call;
    const call = await this.ask(`/calls/${before.id}`);
    this.call = call;
    if (this.recordingComes()) this.isLost = await this.recordingFailed();
    this.fillFacts();
    this.hangUpButton.hidden = !RUNNING.includes(call.status);
    const ended = before.status !== call.status;
    // The line, the errors and the summary are written with the end.
    if (ended || call.transcript.length !== (before.transcript ?? []).length) {
      this.fillTurns();
      this.fillDiagnostics();
    }
    if (ended || this.isLost || before.has_recording !== call.has_recording || before.recording_id !== call.recording_id) this.fillSound();
  }

  // A key that may not see recordings sees in the call when one is ready.
  recordingFailed() {
    return this.ask(`/recordings/${this.call.recording_id}`).then(({ status }) => status === 'failed', () => false);
  }

  async hangUp() {
    try {
      await this.api.post(`/calls/${this.call.id}/end`, {});
      toast('Hung up');
    } catch (error) {
      toast(error.message);
    }
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.recording?.close();
  }
}

// What went wrong: of a provider's fault also when, in which part of the agent, and the code.
function faults({ errors, provider_error_count: count }) {
  const said = (fault) => (fault.source === 'provider'
    ? `${length(fault.at_ms / 1000)} ${title(fault.stage)} ${fault.provider} (${fault.code}): ${fault.message}`
    : `${title(fault.source)}: ${fault.message}`);
  const more = count - errors.filter((fault) => fault.source === 'provider').length;
  return [...errors.map((fault) => h('li.notice.bad', h('div', said(fault)))), more > 0 && h('li.small.soft', `and ${more} more of providers`)];
}
