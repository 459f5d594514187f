// The first page: whom one can talk to, what the server does just now, and the last calls.

import { metrics } from './api.js';
import { callRows } from './call-rows.js';
import { fill, h, icon, s } from './dom.js';
import { DASH, count } from './format.js';
import { empty, failure, ghosts, head, load } from './parts.js';

// The figures are asked for this often while the page is looked at; the small curves hold two minutes.
const EVERY_MS = 2000;
const KEPT = 60;
// Agents that are shown; the others are a page away.
const FACES = 6;

export function page({ api }) {
  const leaving = new AbortController();
  const agents = h('section', { 'aria-label': 'Agents' });
  const calls = h('div');
  const live = new Live();

  load(agents, async () => {
    const found = await api.get(`/agents?limit=${FACES}`, { signal: leaving.signal });
    api.agents = found.total;
    return talkTo(found);
  }, { shape: h('ul.faces', { 'aria-hidden': 'true' }, Array.from({ length: Math.min(api.agents, FACES) + 1 }, () => h('li', h('div.ghost.face')))) });
  load(calls, async () => {
    const { items } = await api.get('/calls?limit=6', { signal: leaving.signal });
    return items.length > 0 ? callRows(items) : empty('Talk to an agent, and the call is kept here: its sound, its words, and where the time went.', { heading: 'No calls yet' });
  }, { shape: ghosts(3, '3.2rem') });

  let isAsking = false;
  const ask = async () => {
    if (document.hidden || live.isKept || isAsking) return;
    isAsking = true;
    await live.ask(leaving.signal);
    isAsking = false;
  };
  const timer = setInterval(ask, EVERY_MS);
  ask();

  return {
    node: h('div.stack.gap',
      head('Overview', { lead: 'Who answers, and how the server is doing.' }),
      agents, live.node,
      h('section.card', h('header', h('h2', 'Latest calls'), h('a.push', { href: '#/calls' }, 'All calls')), calls)),
    close() {
      clearInterval(timer);
      leaving.abort();
    },
  };
}

function talkTo({ items, total }) {
  if (items.length === 0) {
    return h('div.card', empty('An agent has a prompt, a voice and a greeting. Make one, then talk to it right here.', {
      heading: 'Make your first agent', action: h('a.button.main', { href: '#/agents/new' }, 'New agent'),
    }));
  }
  return h('ul.faces',
    items.map((agent) => h('li', h('a.card.face', { href: `#/talk/${agent.id}` },
      wave(agent.id),
      h('strong', agent.name),
      h('span.soft.small', [agent.voice.name ?? 'no voice', agent.language].join(' · ')),
      h('span.go', 'Talk')))),
    h('li', total > items.length
      ? h('a.card.face.more', { href: '#/agents' }, `All ${total} agents`)
      : h('a.card.face.more', { href: '#/agents/new' }, icon('plus'), 'New agent')));
}

/** A small wave that is always the same for the same agent, so that one knows it again. */
export function wave(id) {
  const bits = id.replaceAll('-', '');
  const bars = Array.from({ length: 14 }, (_, x) => {
    const height = 5 + (parseInt(bits[x], 16) / 15) * 27 * Math.sin(((x + 1) / 15) * Math.PI);
    return s('path', { d: `M${3 + x * 6} ${20 - height / 2}v${height.toFixed(1)}` });
  });
  return s('svg.wave', { viewBox: '0 0 84 40', width: 84, height: 40, 'aria-hidden': 'true', stroke: 'currentColor', 'stroke-width': 3, 'stroke-linecap': 'round' }, bars);
}

/** Leases, calls on this node and how late its media threads are. */
class Live {
  constructor() {
    this.problem = h('div');
    this.tiles = {
      live: new Tile('Calls on this node', 'Calls whose media runs here'),
      leases: new Tile('Leases', 'Slots held by calls and by sessions that wait, on all nodes'),
      late: new Tile('Pacer lateness', '99th percentile of the last ten seconds'),
      sent: new Tile('Webhooks under way', 'Deliveries that run now'),
    };
    this.state = h('span.badge', 'Asking');
    this.rows = h('div.tiles', Object.values(this.tiles).map((tile) => tile.node));
    // Whether a proxy keeps the figures for the inside.
    this.isKept = false;
    this.node = h('section', { 'aria-label': 'Live capacity' },
      h('div.row.over', h('h2', 'Right now'), this.state),
      this.problem, this.rows);
  }

  async ask(signal) {
    try {
      const [told, ready] = await Promise.all([metrics(signal), fetch('/readyz', { signal })]);
      const reason = ready.ok ? null : (await ready.json().catch(() => ({}))).error;
      fill(this.problem);
      this.state.className = `badge ${ready.ok ? 'good' : 'bad'}`;
      this.state.textContent = ready.ok ? 'Ready for calls' : (reason ?? 'Not ready');
      const held = told.value('sidetone_leases', { state: 'live' });
      const pending = told.value('sidetone_leases', { state: 'pending' });
      const late = told.value('sidetone_engine_lateness_seconds', { quantile: '0.99' });
      const worst = told.value('sidetone_engine_lateness_seconds', { quantile: '1' });
      this.tiles.live.show(told.value('sidetone_live_calls'), count, null);
      this.tiles.leases.show(held === null ? null : held + pending, count, pending === null ? 'The lease store does not tell' : `${held} live, ${pending} waiting`);
      this.tiles.late.show(late === null ? null : late * 1000, fine, worst === null ? null : `at most ${fine(worst * 1000)}`);
      this.tiles.sent.show(told.value('sidetone_webhooks_in_flight'), count, null);
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.status === 403 || error.status === 404) return this.keep();
      this.state.className = 'badge bad';
      this.state.textContent = 'No answer';
      fill(this.problem, failure(error instanceof TypeError ? { message: 'The server does not answer. Is it still running?' } : error));
    }
  }

  // No fault, and nothing that asking again would change.
  keep() {
    this.isKept = true;
    this.rows.hidden = true;
    this.state.className = 'badge';
    this.state.textContent = 'Not told here';
    fill(this.problem, h('div.notice', h('p', 'The proxy before this server keeps its figures (/metrics and /readyz) for the inside.')));
  }
}

const fine = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

class Tile {
  constructor(name, hint) {
    this.past = [];
    this.value = h('dd.big.num', DASH);
    this.more = h('dd.soft.small', hint);
    this.line = s('polyline', { fill: 'none', stroke: 'currentColor', 'stroke-width': 1.6, 'vector-effect': 'non-scaling-stroke', 'stroke-linejoin': 'round' });
    this.hint = hint;
    this.node = h('dl.card.tile', h('dt', name), this.value, this.more,
      s('svg.spark', { viewBox: `0 0 ${KEPT - 1} 24`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, this.line));
  }

  show(value, format, more) {
    this.value.textContent = value === null ? DASH : format(value);
    this.more.textContent = more ?? this.hint;
    this.past = [...this.past, value ?? 0].slice(-KEPT);
    const most = Math.max(1, ...this.past);
    const from = KEPT - this.past.length;
    this.line.setAttribute('points', this.past.map((one, x) => `${from + x},${(22 - (one / most) * 20).toFixed(1)}`).join(' '));
  }
}
