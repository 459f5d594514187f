// One number: who answers, what is done when nobody can, its calls; release.

import { query } from './api.js';
import { callRows } from './call-rows.js';
import { h } from './dom.js';
import { when } from './format.js';
import { FIELDS } from './page-numbers.js';
import { badge, confirm, empty, facts, ghosts, head, load, pager, toast } from './parts.js';
import { settings } from './settings-dialog.js';
import { seen, unanswered } from './telephone-names.js';

const LIMIT = 10;

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  const place = h('div.stack.gap');
  const list = h('div');
  const calls = (number, offset = 0) => load(list, async () => {
    const found = await api.get(`/calls${query({ phone: number.phone_number, limit: LIMIT, offset })}`, { signal });
    if (found.total === 0) return empty('Calls to this number and from it are listed here.', { heading: 'No calls yet' });
    return [callRows(found.items), pager(found, (to) => calls(number, to))];
  }, { shape: h('div.pad', ghosts(2, '3rem')) });

  const show = () => load(place, async () => {
    const [number, agents, trunks] = await Promise.all([
      api.get(`/phone-numbers/${id}`, { signal }), seen(api, '/agents?limit=100', signal), seen(api, '/sip-trunks?limit=200', signal),
    ]);
    name(number.phone_number);
    const world = { agents, trunks: trunks.filter((trunk) => trunk.status === 'active' || trunk.id === number.trunk_id) };
    // Calls are found by numbers with a plus alone.
    const international = number.phone_number.startsWith('+');
    if (international) calls(number);
    const agent = agents.find((one) => one.id === number.agent_id);
    const trunk = trunks.find((one) => one.id === number.trunk_id);
    return [
      head(number.phone_number, {
        back: { href: '#/numbers', text: 'Phone numbers' },
        lead: number.friendly_name || 'It has no label.',
        actions: [
          h('button.button', { type: 'button', id: 'edit-number', onclick: () => edit(api, number, world, show) }, 'Change'),
          h('button.button.danger', { type: 'button', id: 'release-number', onclick: () => release(api, number, () => go('#/numbers')) }, 'Release'),
        ],
      }),
      h('div.halves',
        h('section.card', { 'aria-labelledby': 'title-number' }, h('header', h('h2', { id: 'title-number' }, 'The number')), h('div.pad', facts([
          ['Answered by', number.agent_id ? h('a', { href: `#/agents/${number.agent_id}` }, agent?.name ?? 'An agent') : h('span.soft', 'nobody')],
          ['Trunk', number.trunk_id ? h('a', { href: `#/trunks/${number.trunk_id}` }, trunk?.name ?? 'A trunk') : h('span.soft', 'none: give it another')],
          ['Places calls', number.outbound_enabled ? badge('yes', 'good') : badge('no')],
          ['Registered', when(number.created_at)],
          ['Changed', when(number.updated_at)],
        ]))),
        h('section.card', { 'aria-labelledby': 'title-routing' },
          h('header', h('h2', { id: 'title-routing' }, 'When no agent can answer'), h('button.button.small.push', { type: 'button', id: 'edit-routing', onclick: () => route(api, number, show) }, 'Change')),
          h('div.pad.stack', h('p', `${unanswered(number.routing_rules)}.`),
            h('p.soft.small', 'No agent can answer when the number has none, when its agent is not active, or when all calls that are allowed at a time are there already.')))),
      international && h('section.card', { 'aria-labelledby': 'title-calls' }, h('header', h('h2', { id: 'title-calls' }, 'Its calls')), list),
    ];
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(2, '12rem')] });
  show();
  return { node: place, close: () => leaving.abort() };
}

const edit = (api, number, world, done) => settings(`Change ${number.phone_number}`, {
  fields: [...FIELDS, number.provider === 'sip' && { name: 'trunk_id', kind: 'one', from: 'trunks', label: 'Trunk', none: 'None', unset: null }].filter(Boolean),
  record: number,
  world,
  submit: 'Save',
  // The API has no label as an empty one.
  send: (body) => api.patch(`/phone-numbers/${number.id}`, 'friendly_name' in body ? { ...body, friendly_name: body.friendly_name ?? '' } : body),
  done() {
    toast('Saved');
    done();
  },
});

const route = (api, number, done) => settings('When no agent can answer', {
  fields: [{ name: 'routing_rules', kind: 'routing', label: 'A call that no agent can answer', unset: null }],
  record: number,
  submit: 'Save',
  send: (body) => api.patch(`/phone-numbers/${number.id}`, body),
  done() {
    toast('Saved');
    done();
  },
});

const release = (api, number, done) =>
  confirm(`Release ${number.phone_number}?`, 'Calls to it are refused, and none are placed from it. Its calls stay, and it may be registered again.', 'Release', async () => {
    await api.delete(`/phone-numbers/${number.id}`);
    toast('Released');
    done();
  });
