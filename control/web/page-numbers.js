// Phone numbers: list, register. Who answers each, over which trunk, and whether calls are placed from it.

import { h, icon } from './dom.js';
import { badge, cell, empty, ghosts, head, load, pager, toast } from './parts.js';
import { settings } from './settings-dialog.js';
import { seen, unanswered, ways } from './telephone-names.js';

const LIMIT = 50;

export function page({ api, go }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  const list = h('div.card');
  const make = () => register(api, (made) => go(`#/numbers/${made.id}`));
  const show = (offset = 0) => load(list, async () => {
    const [found, agents, trunks] = await Promise.all([
      api.get(`/phone-numbers?limit=${LIMIT}&offset=${offset}`, { signal }),
      seen(api, '/agents?limit=100', signal), seen(api, '/sip-trunks?limit=200', signal),
    ]);
    if (found.total > 0) return [table(found.items, names(agents), names(trunks)), pager(found, show)];
    if (trunks.length === 0) {
      return empty('A number belongs to a trunk, the line to your carrier or telephone system. Make the trunk first, and name its numbers with it.', {
        heading: 'No numbers yet', action: h('a.button.main', { href: '#/trunks/onboard' }, icon('plus'), 'Connect a carrier'),
      });
    }
    return empty('Register a number of a trunk, and give it the agent that answers.', {
      heading: 'No numbers yet', action: h('button.button.main', { type: 'button', onclick: make }, icon('plus'), 'Register a number'),
    });
  }, { shape: h('div.pad', ghosts(4, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('Phone numbers', {
      lead: 'Who answers each, and whether calls are placed from it.',
      actions: [h('button.button.main', { type: 'button', id: 'new-number', onclick: make }, 'Register a number')],
    }), ways('numbers'), list),
    close: () => leaving.abort(),
  };
}

const names = (items) => new Map(items.map((item) => [item.id, item.name]));

function table(numbers, agents, trunks) {
  return h('table.table',
    h('thead', h('tr', ['Number', 'Answered by', 'When nobody can', 'Trunk', 'Places calls'].map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', numbers.map((number) => h('tr',
      h('td.lead', h('a.whole.num', { href: `#/numbers/${number.id}` }, number.phone_number), number.friendly_name && h('span.soft.small.said', number.friendly_name)),
      cell('Answered by', number.agent_id ? h('a', { href: `#/agents/${number.agent_id}` }, agents.get(number.agent_id) ?? 'An agent') : h('span.soft', 'nobody')),
      cell('When nobody can', unanswered(number.routing_rules)),
      cell('Trunk', number.trunk_id ? h('a', { href: `#/trunks/${number.trunk_id}` }, trunks.get(number.trunk_id) ?? 'A trunk') : h('span.soft', 'none')),
      cell('Places calls', number.outbound_enabled ? badge('yes', 'good') : badge('no'))))));
}

/** Registers a number on a trunk; `done` gets the record. `trunk` is chosen already where it is given. */
export async function register(api, done, trunk = null) {
  try {
    const [agents, trunks] = await Promise.all([seen(api, '/agents?limit=100'), seen(api, '/sip-trunks?limit=200')]);
    const active = trunks.filter((one) => one.status === 'active');
    settings('Register a number', {
      lead: active.length === 0 ? 'A number belongs to an active trunk, and there is none yet: make one under Trunks.' : null,
      fields: [
        { name: 'phone_number', kind: 'text', type: 'tel', label: 'Number', placeholder: '+4930123456', hint: 'As the carrier sends it: with plus and country, or digits alone.', unset: null, required: true },
        { name: 'trunk_id', kind: 'one', from: 'trunks', label: 'Trunk', none: 'Choose a trunk…', unset: trunk?.id ?? (active.length === 1 ? active[0].id : null), required: true, always: true },
        ...FIELDS,
        { name: 'inbound', kind: 'routing', label: 'When no agent can answer', unset: null },
      ],
      world: { agents, trunks: active },
      submit: 'Register',
      send: (body) => api.post('/phone-numbers/sip/register', body),
      done(made) {
        toast('Registered');
        done(made);
      },
    });
  } catch (error) {
    toast(error.message);
  }
}

/** What is asked when a number is registered and when it is changed. */
export const FIELDS = [
  { name: 'friendly_name', kind: 'text', label: 'Label', placeholder: 'reception, support…', unset: null },
  { name: 'agent_id', kind: 'one', from: 'agents', label: 'Answered by', none: 'Nobody', unset: null },
  { name: 'outbound_enabled', kind: 'flag', label: 'Calls may be placed from it', unset: false, hint: 'Agents call out with it as their number.' },
];
