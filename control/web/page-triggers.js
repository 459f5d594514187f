// Usage triggers: list, make, change, delete. Each tells an address when a threshold is crossed.

import { h, icon } from './dom.js';
import { when } from './format.js';
import { field, placeErrors, refuse } from './form.js';
import { cell, confirm, dialog, empty, ghosts, head, load, pager, toast } from './parts.js';
import { NAMES, threshold } from './usage-names.js';

const LIMIT = 50;
const KINDS = [['absolute', 'An amount'], ['percent_of_limit', 'Per cent of the monthly limit']];
const PERIODS = [['day', 'A day'], ['week', 'A week'], ['month', 'A month'], ['all_time', 'All time']];

export function page({ api, go }) {
  const leaving = new AbortController();
  const list = h('div.card');
  const make = () => edit(api, null, (made) => go(`#/usage/triggers/${made.id}`));
  const show = (offset = 0) => load(list, async () => {
    const found = await api.get(`/usage/triggers?limit=${LIMIT}&offset=${offset}`, { signal: leaving.signal });
    if (found.total === 0) {
      return empty('A trigger calls an address of yours when calls, speech or messages of a day, a week or a month reach an amount.', {
        heading: 'No triggers yet',
        action: h('button.button.main', { type: 'button', onclick: make }, icon('plus'), 'New trigger'),
      });
    }
    return [table(found.items), pager(found, show)];
  }, { shape: h('div.pad', ghosts(3, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('Usage triggers', {
      back: { href: '#/usage', text: 'Usage' },
      lead: 'Who is told, and at how much.',
      actions: [h('button.button.main', { type: 'button', id: 'new-trigger', onclick: make }, 'New trigger')],
    }), list),
    close: () => leaving.abort(),
  };
}

const table = (triggers) => h('table.table',
  h('thead', h('tr', ['Name', 'Fires at', 'Tells', 'Made'].map((name) => h('th', { scope: 'col' }, name)))),
  h('tbody', triggers.map((trigger) => h('tr',
    h('td.lead', h('a.whole', { href: `#/usage/triggers/${trigger.id}` }, trigger.name ?? 'Without a name')),
    cell('Fires at', threshold(trigger)),
    cell('Tells', h('span.break', trigger.event_callback_url)),
    cell('Made', h('span.num', when(trigger.created_at)))))));

/** Makes a trigger, or changes one; `done` gets the record. */
export function edit(api, trigger, done) {
  const select = (id, options, value) => h('select', { id }, options.map(([name, text]) => h('option', { value: name, selected: name === value }, text)));
  const controls = {
    name: h('input', { id: 'trigger-name', maxlength: 100, autocomplete: 'off', placeholder: 'spending, a busy day…', value: trigger?.name ?? '' }),
    resource_type: select('trigger-resource', Object.entries(NAMES), trigger?.resource_type),
    threshold_type: select('trigger-kind', KINDS, trigger?.threshold_type),
    threshold_value: h('input', { id: 'trigger-value', type: 'number', inputmode: 'numeric', min: 1, step: 1, required: true, value: trigger?.threshold_value ?? '' }),
    period: select('trigger-period', PERIODS, trigger?.period ?? 'month'),
    event_callback_url: h('input', { id: 'trigger-url', type: 'url', autocomplete: 'off', required: true, placeholder: 'https://example.com/usage', value: trigger?.event_callback_url ?? '' }),
  };
  const { threshold_value: value } = controls;
  const form = h('div.stack',
    field({ name: 'name', label: 'Name', control: controls.name }),
    field({ name: 'resource_type', label: 'What is counted', control: controls.resource_type }),
    h('div.two',
      field({ name: 'threshold_type', label: 'Measured as', control: controls.threshold_type }),
      field({ name: 'threshold_value', label: 'Fires at', required: true, control: value })),
    field({ name: 'period', label: 'Counted within', hint: 'UTC. It fires once in each.', control: controls.period }),
    field({ name: 'event_callback_url', label: 'Address that is told', hint: 'https, on port 443 of a public host; it gets a signed usage.threshold.crossed.', required: true, control: controls.event_callback_url }));
  dialog(trigger ? 'Change the trigger' : 'New usage trigger', form, {
    submit: trigger ? 'Save' : 'Make the trigger',
    async onsubmit(close) {
      const missing = [value, controls.event_callback_url].filter((control) => control.value.trim() === '');
      if (missing.length > 0) {
        placeErrors(form, missing.map((control) => ({ loc: ['body', control.closest('[data-field]').dataset.field], msg: 'Field required' })));
        return;
      }
      const body = {
        name: controls.name.value.trim() || null,
        resource_type: controls.resource_type.value,
        threshold_type: controls.threshold_type.value,
        threshold_value: Number(value.value),
        period: controls.period.value,
        event_callback_url: controls.event_callback_url.value.trim(),
      };
      try {
        const record = trigger ? await api.patch(`/usage/triggers/${trigger.id}`, body) : await api.post('/usage/triggers', body);
        close();
        toast(trigger ? 'Saved' : 'Made');
        done(record);
      } catch (error) {
        refuse(form, error);
      }
    },
  });
}

export const remove = (api, trigger, done) =>
  confirm('Delete this trigger?', 'Nobody is told any more, and the list of its firings goes with it.', 'Delete', async () => {
    await api.delete(`/usage/triggers/${trigger.id}`);
    toast('Deleted');
    done();
  });
