// Where the time of an answer went: one bar of touching parts, coloured by who took it.

import { h } from './dom.js';
import { length, ms, words } from './format.js';

const OWNERS = [
  ['setting', 'waiting for the turn to end'], ['stt', 'recogniser'], ['engine', 'engine'], ['llm', 'model'],
  ['tool', 'tools'], ['tts', 'voice'], ['transport', 'network'],
];
const NAMES = Object.fromEntries(OWNERS);

const taking = (parts) => (parts ?? []).filter((part) => part.duration_ms > 0);

/** One bar; `of` is what its full width stands for, in ms. */
export function bar(contributions, of) {
  const parts = taking(contributions);
  const sum = parts.reduce((total, part) => total + part.duration_ms, 0);
  const box = h('div.wf-bar', { role: 'img', 'aria-label': parts.map((part) => `${words(part.key)} ${ms(part.duration_ms)}`).join(', ') });
  box.style.width = `${(100 * sum) / Math.max(1, of ?? sum)}%`;
  for (const part of parts) {
    const piece = h('i', { data: { owner: part.owner }, title: `${words(part.key)}: ${ms(part.duration_ms)} (${NAMES[part.owner] ?? part.owner})` });
    piece.style.flexGrow = String(part.duration_ms);
    box.append(piece);
  }
  return box;
}

/** The same as words, folded away. */
export function partList(contributions) {
  return h('ul.wf-parts', taking(contributions).map((part) =>
    h('li', { data: { owner: part.owner } }, h('span', words(part.key)), h('span.soft', NAMES[part.owner] ?? part.owner), h('span.num', ms(part.duration_ms)))));
}

export function legend(owners) {
  return h('ul.wf-legend', OWNERS.filter(([owner]) => owners.has(owner)).map(([owner, name]) => h('li', { data: { owner } }, name)));
}

/** All answers of a call on one scale. `steps`: `{index, start_ms, response_ms, contributions}`. */
export function waterfall(steps, onSeek) {
  const slowest = Math.max(...steps.map((step) => step.response_ms));
  const owners = new Set(steps.flatMap((step) => taking(step.contributions).map((part) => part.owner)));
  return h('div.wf', legend(owners),
    h('ol', steps.map((step) => h('li',
      h('details',
        h('summary',
          h('span.num.soft.wf-at', step.start_ms === null ? `turn ${step.index + 1}` : length(step.start_ms / 1000)),
          h('span.wf-track', bar(step.contributions, slowest)),
          h('strong.num', ms(step.response_ms))),
        h('div.wf-more', partList(step.contributions),
          step.start_ms !== null && onSeek && h('button.button.small', { type: 'button', onclick: () => onSeek(step.start_ms) }, 'Play this answer')))))));
}
