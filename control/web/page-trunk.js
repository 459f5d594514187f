// One trunk: how it is doing, what it is, its numbers; default, disable, delete.

import { h, refill } from './dom.js';
import { count, when } from './format.js';
import { register } from './page-numbers.js';
import { registration } from './page-trunks.js';
import { badge, cell, confirm, empty, facts, ghosts, head, load, toast } from './parts.js';
import { ENCRYPTIONS, FORMATS, MODES, TRANSPORTS, TYPES, callable, named, seen } from './telephone-names.js';

// Its registration and its calls are looked at again this often.
const EVERY_MS = 3000;

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  const place = h('div.stack.gap');
  const state = h('div');
  let timer = null;
  const ask = () => api.get(`/sip-trunks/${id}`, { signal });
  const again = () => {
    const own = setTimeout(async () => {
      try {
        const trunk = document.hidden ? null : await ask();
        if (own !== timer) return;
        if (trunk) refill(state, doing(trunk));
      } catch (error) {
        if (error.name === 'AbortError') return;
      }
      if (own === timer) again();
    }, EVERY_MS);
    timer = own;
  };
  const show = () => load(place, async () => {
    clearTimeout(timer);
    const [trunk, all, agents] = await Promise.all([ask(), seen(api, '/phone-numbers?limit=1000', signal), seen(api, '/agents?limit=100', signal)]);
    name(trunk.name);
    const numbers = all.filter((number) => number.trunk_id === id);
    refill(state, doing(trunk));
    again();
    return [
      head(trunk.name, {
        back: { href: '#/trunks', text: 'Trunks' },
        lead: h('span.row.tight', badge(trunk.status), trunk.is_default_outbound && h('span.tag', 'default'), h('span', named(TYPES, trunk.type))),
        actions: actions(trunk, { api, show, go }),
      }),
      h('div.halves',
        h('div.stack.gap',
          h('section.card', { 'aria-labelledby': 'title-state' }, h('header', h('h2', { id: 'title-state' }, 'How it is doing')), h('div.pad', state)),
          h('section.card', { 'aria-labelledby': 'title-numbers' },
            h('header', h('h2', { id: 'title-numbers' }, 'Its numbers'), trunk.status === 'active' && h('button.button.small.push', { type: 'button', id: 'new-number', onclick: () => register(api, show, trunk) }, 'Register')),
            numbers.length > 0 ? table(numbers, new Map(agents.map((agent) => [agent.id, agent.name]))) : empty('Register a number of this trunk, so that an agent answers it or calls from it.'))),
        h('section.card', { 'aria-labelledby': 'title-trunk' }, h('header', h('h2', { id: 'title-trunk' }, 'The trunk')), h('div.pad', settings(trunk)))),
    ];
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(2, '12rem')] });
  show();
  return {
    node: place,
    close() {
      clearTimeout(timer);
      leaving.abort();
    },
  };
}

const doing = (trunk) => facts([
  ['Calls now', h('span.num', `${trunk.active_calls} of ${trunk.max_concurrent_calls}`)],
  ['Failed within a day', h('span.num', count(trunk.failed_calls))],
  trunk.last_failed_call && ['Last of them', lost(trunk.last_failed_call)],
  ['Registration', registration(trunk) ?? h('span.soft', trunk.registration ? 'not while it is disabled' : 'it does not register')],
  trunk.registration?.expires_at && ['Holds until', when(trunk.registration.expires_at)],
  trunk.registration?.last_failure && ['Failed last', failure(trunk.registration.last_failure)],
  trunk.last_refused_challenge && ['Password refused', failure(trunk.last_refused_challenge)],
  trunk.last_refused_message && ['Message not used', failure(unused(trunk.last_refused_message))],
]);

const lost = ({ call_id, ended_at, status, sip_code }) => [h('a', { href: `#/calls/${call_id}` }, when(ended_at)), h('span.soft.small.said', sip_code === null ? status : `${status}, ${sip_code}`)];

const failure = ({ at, code, reason }) => [when(at), h('span.soft.small.said', code === null ? reason : `${code} ${reason}`)];

const unused = ({ at, code, method, header, reason }) => ({ at, code, reason: header === null ? `${method}: ${reason}` : `${method}, ${header}: ${reason}` });

const settings = (trunk) => facts([
  trunk.outbound_address && ['Address', h('code.break', trunk.outbound_address)],
  ['Known by', named(MODES, trunk.auth_mode)],
  trunk.allowed_addresses.length > 0 && ['Calls come from', h('code.break', trunk.allowed_addresses.join(', '))],
  trunk.auth_username && ['User name', h('code.break', trunk.auth_username)],
  trunk.has_credentials && ['Password', h('span.soft', 'kept, never shown')],
  trunk.has_credentials && ['MD5 without qop', trunk.allow_md5_without_qop ? 'answered' : 'not answered'],
  trunk.realm && ['Domain', h('code.break', trunk.realm)],
  trunk.register_expires && ['Renewed within', `${trunk.register_expires} s`],
  ['SIP over', named(TRANSPORTS, trunk.transport)],
  ['Encrypted sound', named(ENCRYPTIONS, trunk.media_encryption)],
  trunk.numbers.length > 0 && ['Wire numbers', h('span.break', trunk.numbers.join(', '))],
  ['Dials as', named(FORMATS, trunk.outbound_dial_format)],
  ['May call', callable(trunk.destination_allowlist)],
  ['Calls an hour', trunk.calls_per_hour_limit === null ? 'no limit' : count(trunk.calls_per_hour_limit)],
  ['Made', when(trunk.created_at)],
  ['Changed', when(trunk.updated_at)],
  ['Id', h('code.break', trunk.id)],
]);

function actions(trunk, { api, show, go }) {
  const patch = (path, body, said) => async () => {
    try {
      await api.patch(`/sip-trunks/${trunk.id}${path}`, body);
      toast(said);
      show();
    } catch (error) {
      toast(error.message);
    }
  };
  const disable = () => confirm(`Disable “${trunk.name}”?`, 'No call goes over it until it is enabled again. Calls that live go on.', 'Disable', patch('', { status: 'disabled' }, 'Disabled'));
  const remove = () => confirm(`Delete “${trunk.name}”?`, 'No call goes over it any more. Its numbers stay, without a trunk, until they are given another.', 'Delete', async () => {
    await api.delete(`/sip-trunks/${trunk.id}`);
    toast('Deleted');
    go('#/trunks');
  });
  const button = (id, text, onclick, kind = '') => h(`button.button${kind}`, { type: 'button', id, onclick }, text);
  const active = trunk.status === 'active';
  return [
    active && trunk.type === 'outbound' && !trunk.is_default_outbound && button('default-trunk', 'Make it the default', patch('/set-default-outbound', undefined, 'Placed calls go over it by default')),
    h('a.button', { href: `#/trunks/${trunk.id}/change`, id: 'edit-trunk' }, 'Change'),
    active ? button('disable-trunk', 'Disable', disable) : button('enable-trunk', 'Enable', patch('', { status: 'active' }, 'Enabled')),
    button('delete-trunk', 'Delete', remove, '.danger'),
  ].filter(Boolean);
}

const table = (numbers, agents) => h('table.table',
  h('thead', h('tr', ['Number', 'Answered by', 'Places calls'].map((name) => h('th', { scope: 'col' }, name)))),
  h('tbody', numbers.map((number) => h('tr',
    h('td.lead', h('a.whole.num', { href: `#/numbers/${number.id}` }, number.phone_number), number.friendly_name && h('span.soft.small.said', number.friendly_name)),
    cell('Answered by', number.agent_id ? h('a', { href: `#/agents/${number.agent_id}` }, agents.get(number.agent_id) ?? 'An agent') : h('span.soft', 'nobody')),
    cell('Places calls', number.outbound_enabled ? badge('yes', 'good') : badge('no'))))));
