// One usage trigger: what it watches, and when it fired.

import { h } from './dom.js';
import { when } from './format.js';
import { edit, remove } from './page-triggers.js';
import { badge, cell, empty, facts, ghosts, head, load, pager, toast } from './parts.js';
import { observed, threshold, within } from './usage-names.js';

const LIMIT = 50;

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const ask = (path) => api.get(`/usage/triggers/${id}${path}`, { signal: leaving.signal });
  const place = h('div.stack.gap');
  const list = h('div');
  const firings = (offset = 0) => load(list, async () => {
    const found = await ask(`/firings?limit=${LIMIT}&offset=${offset}`);
    if (found.total === 0) return empty('It fires once in each period, when the threshold is reached.', { heading: 'It has not fired yet' });
    return [table(found.items, (firing) => again(firing, () => firings(offset))), pager(found, firings)];
  }, { shape: h('div.pad', ghosts(2, '3rem')) });
  const again = async (firing, show) => {
    try {
      await api.post(`/usage/triggers/${id}/firings/${firing.id}/redeliver`);
      toast('It is sent again');
    } catch (error) {
      toast(error.message);
    }
    show();
  };
  const show = () => load(place, async () => {
    const trigger = await ask('');
    const called = trigger.name ?? 'Usage trigger';
    name(called);
    firings();
    return [
      head(called, {
        back: { href: '#/usage/triggers', text: 'Usage triggers' },
        lead: `Fires at ${threshold(trigger)}.`,
        actions: [
          h('button.button', { type: 'button', id: 'edit-trigger', onclick: () => edit(api, trigger, show) }, 'Change'),
          h('button.button.danger', { type: 'button', id: 'delete-trigger', onclick: () => remove(api, trigger, () => go('#/usage/triggers')) }, 'Delete'),
        ],
      }),
      h('section.card.pad', { 'aria-label': 'The trigger' }, facts([
        ['Tells', h('span.break', trigger.event_callback_url)],
        ['Made', when(trigger.created_at)],
        ['Changed', when(trigger.updated_at)],
      ])),
      h('section.card', h('header', h('h2', 'Firings')), list),
    ];
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(2, '8rem')] });
  show();
  return { node: place, close: () => leaving.abort() };
}

const table = (items, again) => h('table.table',
  h('thead', h('tr', ['Fired', 'Counted', 'Within', 'Delivery', 'Attempts'].map((text) => h('th', { scope: 'col' }, text)), h('th', { scope: 'col' }, h('span.unseen', 'Actions')))),
  h('tbody', items.map((firing) => h('tr',
    h('td.lead', h('span.num', when(firing.fired_at))),
    cell('Counted', h('span.num', observed(firing))),
    cell('Within', within(firing)),
    cell('Delivery', firing.delivery_status ? badge(firing.delivery_status) : h('span.soft', 'forgotten')),
    cell('Attempts', h('span.num', String(firing.delivery_attempts))),
    h('td.lead.end', h('button.button.small.plain', { type: 'button', onclick: () => again(firing) }, 'Send again'))))));
