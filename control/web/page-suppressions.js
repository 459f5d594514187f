// Suppressions, the do-not-call list: list, add, lift.

import { query } from './api.js';
import { compact } from './controls.js';
import { h, icon } from './dom.js';
import { when } from './format.js';
import { badge, cell, confirm, empty, ghosts, head, load, pager, toast } from './parts.js';
import { settings } from './settings-dialog.js';
import { SOURCES, named, ways } from './telephone-names.js';

const LIMIT = 50;

export function page({ api, params, rename }) {
  const leaving = new AbortController();
  const list = h('div.card');
  const number = h('input', { id: 'by-number', name: 'phone_number', type: 'tel', autocomplete: 'off', placeholder: '+4930123456' });
  const status = h('select', { id: 'by-status', name: 'status' }, [['', 'All'], ['active', 'Active'], ['released', 'Lifted']].map(([value, text]) => h('option', { value }, text)));
  const form = h('form.filters.few', { role: 'search', onsubmit: (event) => { event.preventDefault(); changed(); }, onchange: () => changed() },
    h('div.field', h('label', { for: number.id }, 'Number'), number), h('div.field', h('label', { for: status.id }, 'Status'), status));
  for (const control of form.elements) if (params.has(control.name)) control.value = params.get(control.name);

  const chosen = () => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, name === number.name ? compact(value) : value]).filter(([, value]) => value));
  const changed = () => {
    rename(`#/suppressions${query(chosen())}`);
    show();
  };
  const make = () => add(api, () => show());
  const show = (offset = 0) => load(list, async () => {
    const found = await api.get(`/suppressions${query({ ...chosen(), limit: LIMIT, offset })}`, { signal: leaving.signal });
    if (found.total > 0) return [table(found.items, (entry) => lift(api, entry, () => show(offset))), pager(found, show)];
    if (Object.keys(chosen()).length > 0) return empty('No entry is like that. Take a filter away, or write the number with its plus and country.', { heading: 'Nothing found' });
    return empty('No agent calls a number on this list. Put those on it that do not want to be called.', {
      heading: 'Everybody may be called', action: h('button.button.main', { type: 'button', onclick: make }, icon('plus'), 'Suppress a number'),
    });
  }, { shape: h('div.pad', ghosts(4, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('Suppressions', {
      lead: 'Numbers that no agent calls.',
      actions: [h('button.button.main', { type: 'button', id: 'new-suppression', onclick: make }, 'Suppress a number')],
    }), ways('suppressions'), form, list),
    close: () => leaving.abort(),
  };
}

const table = (entries, lift) => h('table.table',
  h('thead', h('tr', ['Number', 'Why', 'Reason', 'Added', 'Status'].map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col' }, h('span.unseen', 'Actions')))),
  h('tbody', entries.map((entry) => h('tr',
    h('td.lead', h('span.num', entry.phone_number)),
    cell('Why', named(SOURCES, entry.source)),
    cell('Reason', entry.reason && h('span.break', entry.reason)),
    cell('Added', h('span.num', when(entry.created_at))),
    cell('Status', entry.released_at ? [badge('lifted'), h('span.soft.small.num', ` ${when(entry.released_at)}`)] : badge('active')),
    h('td.lead.end', !entry.released_at && entry.source === 'manual' && h('button.button.small.plain', { type: 'button', 'aria-label': `Lift ${entry.phone_number}`, onclick: () => lift(entry) }, 'Lift'))))));

const add = (api, done) => settings('Suppress a number', {
  fields: [
    { name: 'phone_number', kind: 'text', type: 'tel', label: 'Number', placeholder: '+4930123456', hint: 'With the plus and the country.', unset: null, required: true },
    { name: 'source', kind: 'choice', label: 'Why', options: SOURCES.slice(0, 2), unset: 'manual', hint: 'What the person asked for stays: it cannot be lifted.' },
    { name: 'reason', kind: 'long', rows: 2, label: 'Reason', unset: null, hint: 'For those who read the list later.' },
  ],
  submit: 'Suppress',
  send: (body) => api.post('/suppressions', body),
  done() {
    toast('No agent calls it any more');
    done();
  },
});

const lift = (api, entry, done) =>
  confirm(`Lift ${entry.phone_number}?`, 'Agents may call it again, unless another entry stands against it.', 'Lift', async () => {
    await api.post(`/suppressions/${entry.id}/release`);
    toast('Lifted');
    done();
  });
