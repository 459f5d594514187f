// SIP trunks, the lines to carriers and telephone systems: list, with how each is doing.

import { h, icon } from './dom.js';
import { badge, cell, empty, ghosts, head, load, pager } from './parts.js';
import { TYPES, named, ways } from './telephone-names.js';

const LIMIT = 50;
// Registrations and calls are looked at again this often.
const EVERY_MS = 5000;

export function page({ api }) {
  const leaving = new AbortController();
  const list = h('div.card');
  let timer = null;
  const ask = (offset) => api.get(`/sip-trunks?limit=${LIMIT}&offset=${offset}`, { signal: leaving.signal });
  const nodes = (found) => [table(found.items), pager(found, show)];
  const again = (offset) => {
    clearTimeout(timer);
    const own = setTimeout(async () => {
      try {
        const found = document.hidden ? null : await ask(offset);
        // Another page of the list may have come meanwhile, and nobody's place in it is lost for nothing.
        if (own !== timer) return;
        if (found?.total > 0 && !list.contains(document.activeElement)) list.replaceChildren(...nodes(found).filter(Boolean));
      } catch (error) {
        if (error.name === 'AbortError') return;
      }
      if (own === timer) again(offset);
    }, EVERY_MS);
    timer = own;
  };
  const show = async (offset = 0) => {
    clearTimeout(timer);
    timer = null;
    if (await look(offset)) again(offset);
  };
  const look = (offset) => load(list, async () => {
    const found = await ask(offset);
    if (found.total === 0) {
      return empty('A trunk is the line to a carrier or to a telephone system of your own, for calls out or for calls in.', {
        heading: 'No trunks yet', action: h('a.button.main', { href: '#/trunks/onboard' }, icon('plus'), 'Connect a carrier'),
      });
    }
    return nodes(found);
  }, { shape: h('div.pad', ghosts(3, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('SIP trunks', {
      lead: 'The lines to carriers and telephone systems.',
      actions: [h('a.button', { href: '#/trunks/new', id: 'new-trunk' }, 'New trunk'), h('a.button.main', { href: '#/trunks/onboard', id: 'onboard' }, 'Connect a carrier')],
    }), ways('trunks'), list),
    close() {
      clearTimeout(timer);
      leaving.abort();
    },
  };
}

const SHORT = [['digest', 'Password'], ['ip_acl', 'Addresses'], ['digest_plus_ip_acl', 'Both'], ['register', 'Registers']];

const table = (trunks) => h('table.table',
  h('thead', h('tr', ['Name', 'For', 'Known by', 'Registration'].map((name) => h('th', { scope: 'col' }, name)), h('th.end', { scope: 'col' }, 'Calls now'), h('th', { scope: 'col' }, 'Status'))),
  h('tbody', trunks.map((trunk) => h('tr',
    h('td.lead', h('span.row.tight', h('a.whole', { href: `#/trunks/${trunk.id}` }, trunk.name), trunk.is_default_outbound && h('span.tag', 'default')),
      h('span.soft.small.said', trunk.outbound_address ?? trunk.allowed_addresses.join(', '))),
    cell('For', h('span.num', named(TYPES, trunk.type))),
    cell('Known by', named(SHORT, trunk.auth_mode)),
    cell('Registration', registration(trunk)),
    cell('Calls now', h('span.num', `${trunk.active_calls} of ${trunk.max_concurrent_calls}`), '.end'),
    cell('Status', badge(trunk.status))))));

/** Where a trunk stands with its registrar, and why it failed. */
export const registration = ({ registration: state, status }) => {
  if (!state || status !== 'active') return null;
  return [badge(state.status), state.last_error && h('span.wrong.small.said', state.last_error)];
};
