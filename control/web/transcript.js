// The list of turns: a bubble each, in the order in which they began. Used live and for calls of the past.

import { fill, h } from './dom.js';
import { ms } from './format.js';
import { bar, partList } from './waterfall.js';

const NAMES = { user: 'Caller', assistant: 'Agent', human_agent: 'Person' };

export class Transcript {
  /** `you`: what the caller is called here. */
  constructor({ you = 'You' } = {}) {
    this.you = you;
    this.list = h('ol');
    this.node = h('div.log', { role: 'log', 'aria-live': 'polite', 'aria-label': 'Transcript', tabindex: 0 }, this.list);
    this.turns = new Map();
  }

  clear(...shown) {
    this.turns.clear();
    fill(this.list, shown);
  }

  get count() {
    return this.turns.size;
  }

  /** What was said in a turn so far; a later text replaces an earlier one. */
  said(role, id, text, isFinal) {
    const turn = this.turn(role, id);
    turn.full = text;
    turn.text.textContent = text;
    turn.item.classList.toggle('open', !isFinal);
    this.scroll();
  }

  /** The agent was cut short: what was not spoken is struck through. */
  interrupted(id, spoken, spokenMs) {
    const turn = this.turns.get(id);
    if (!turn) return;
    cut(turn.text, turn.full ?? '', spoken ?? '');
    turn.item.classList.remove('open');
    turn.item.classList.add('cut');
    turn.note(Number.isFinite(spokenMs) ? `interrupted after ${(spokenMs / 1000).toFixed(1)} s` : 'interrupted');
    this.scroll();
  }

  /** The time that an answer took, and what it was made of. */
  answered(id, latency) {
    const turn = this.turn('assistant', id);
    if (turn.answered) return;
    turn.answered = true;
    turn.note(ms(latency.response_ms), 'num');
    turn.item.append(h('details.took', h('summary', { 'aria-label': 'Where the time went' }, bar(latency.contributions)), partList(latency.contributions)));
    this.scroll();
  }

  note(text) {
    this.list.append(h('li.note', text));
    this.scroll();
  }

  turn(role, id) {
    const known = this.turns.get(id);
    if (known) return known;
    this.list.querySelector('.empty')?.closest('li')?.remove();
    const headline = h('p.who', h('span', role === 'user' ? this.you : NAMES[role]));
    const text = h('p.text');
    const item = h('li.turn', { class: `turn ${role}` }, headline, text);
    this.list.append(item);
    const turn = { item, text, note: (words, kind = 'aside') => headline.append(h('span', { class: kind }, words)) };
    this.turns.set(id, turn);
    return turn;
  }

  scroll() {
    this.node.scrollTop = this.node.scrollHeight;
  }
}

/** A turn's text with what was never heard struck through. */
export function cut(place, full, spoken) {
  const rest = full.startsWith(spoken) ? full.slice(spoken.length) : '';
  fill(place, spoken, rest && h('s', rest));
}
