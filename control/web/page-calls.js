// All calls, newest first; by agent, state, direction and day, or by words that were said.

import { all, query } from './api.js';
import { callRows } from './call-rows.js';
import { fill, h } from './dom.js';
import { title } from './format.js';
import { empty, ghosts, head, load, pager } from './parts.js';
import { placeCall } from './place-call.js';

const LIMIT = 25;
const STATES = ['queued', 'ringing', 'in_progress', 'completed', 'failed', 'no-answer', 'busy', 'canceled'];

export function page({ api, params, go, rename }) {
  const leaving = new AbortController();
  const ask = (path) => api.get(path, { signal: leaving.signal });
  const list = h('div.card');
  const option = ([value, text]) => h('option', { value }, text);
  const pick = (name, label, options) => h('div.field', h('label', { for: `by-${name}` }, label),
    h('select', { id: `by-${name}`, name }, [['', 'All'], ...options].map(option)));
  const words = h('input', { id: 'by-q', name: 'q', type: 'search', maxlength: 200, placeholder: 'Words that were said' });
  const agents = pick('agent_id', 'Agent', []);
  const states = pick('status', 'Status', STATES.map((state) => [state, title(state).replace('-', ' ')]));
  const directions = pick('direction', 'Direction', [['inbound', 'Inbound'], ['outbound', 'Outbound']]);
  const from = h('input', { id: 'by-from', name: 'from', type: 'date' });
  const to = h('input', { id: 'by-to', name: 'to', type: 'date' });
  const form = h('form.filters', { role: 'search', onsubmit: (event) => { event.preventDefault(); changed(); }, onchange: () => changed() },
    h('div.field.grow', h('label', { for: 'by-q' }, 'Search'), words), agents, states, directions,
    h('div.field', h('label', { for: 'by-from' }, 'From'), from), h('div.field', h('label', { for: 'by-to' }, 'To'), to));
  for (const control of form.elements) if (params.has(control.name)) control.value = params.get(control.name);

  const chosen = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
  const changed = () => {
    // The address names what is shown, so that it can be kept and sent.
    rename(`#/calls${query(chosen())}`);
    show();
  };

  function show(offset = 0) {
    const { q, from: first, to: last, ...rest } = chosen();
    const days = { from: first && midnight(first).toISOString(), to: last && midnight(last, 1).toISOString() };
    // A search knows neither status nor direction: what it finds is looked through here.
    states.hidden = Boolean(q);
    directions.hidden = Boolean(q);
    return load(list, async () => {
      if (q) return found(await ask(`/conversations/search${query({ q, agent_id: rest.agent_id, ...days, limit: LIMIT, offset })}`));
      const answer = await ask(`/calls${query({ ...rest, ...days, limit: LIMIT, offset })}`);
      if (answer.total === 0) {
        return Object.keys(chosen()).length > 0
          ? empty('No call is like that. Take a filter away, or choose other days.', { heading: 'Nothing found' })
          : empty('Talk to an agent, and the call is kept here: its sound, its words, and where the time went.', { heading: 'No calls yet', action: h('a.button.main', { href: '#/' }, 'Talk to an agent') });
      }
      return [callRows(answer.items), pager(answer, show)];
    }, { shape: h('div', { class: 'pad' }, ghosts(6, '3.2rem')) });
  }

  function found(answer) {
    if (answer.total === 0) return empty('Nobody said that in a call that is kept.', { heading: 'Nothing found' });
    const calls = answer.items.map((one) => ({ ...one, latency_summary: null, from_number: null, to_number: null }));
    const said = ({ matches }) => h('span.soft.small.said', `“${matches[0]?.text ?? ''}”`);
    return [callRows(calls, said), pager(answer, show)];
  }

  all(ask, '/agents?limit=100').then((items) => {
    const select = agents.querySelector('select');
    select.append(...items.map((agent) => option([agent.id, agent.name])));
    if (params.has('agent_id')) select.value = params.get('agent_id');
  }).catch(() => { agents.hidden = true; }).finally(() => show());
  fill(list, h('div', { class: 'pad' }, ghosts(6, '3.2rem')));

  return {
    node: h('div.stack.gap', head('Calls', { lead: 'What was said, how it sounded, and how fast the answers came.', actions: [h('button.button', { type: 'button', id: 'place-call', onclick: () => placeCall(api, go) }, 'Call a number')] }), form, list),
    close: () => leaving.abort(),
  };
}

// Where a day begins here, or one so many later: not every day has 24 hours.
function midnight(day, later = 0) {
  const begin = new Date(`${day}T00:00`);
  begin.setDate(begin.getDate() + later);
  return begin;
}
