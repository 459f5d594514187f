// All agents.

import { h } from './dom.js';
import { when } from './format.js';
import { badge, cell, confirm, empty, ghosts, head, load, pager, toast } from './parts.js';

const LIMIT = 50;

export function page({ api, go }) {
  const leaving = new AbortController();
  const list = h('div.card');
  const show = (offset = 0) => load(list, async () => {
    const found = await api.get(`/agents?limit=${LIMIT}&offset=${offset}`, { signal: leaving.signal });
    if (found.total === 0) {
      return empty('An agent has a prompt, a voice and a greeting. Make one, then talk to it right here.', {
        heading: 'Make your first agent', action: h('a.button.main', { href: '#/agents/new' }, 'New agent'),
      });
    }
    if (found.items.length === 0) {
      // The last of this page was deleted.
      show(Math.max(0, offset - LIMIT));
      return null;
    }
    return [table(found.items, { api, go, show: () => show(offset) }), pager(found, show)];
  }, { shape: h('div', { class: 'pad' }, ghosts(4, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('Agents', { lead: 'Each with its prompt, voice and manners.', actions: [h('a.button.main', { href: '#/agents/new' }, 'New agent')] }), list),
    close: () => leaving.abort(),
  };
}

function table(agents, tools) {
  return h('table.table',
    h('thead', h('tr', ['Name', 'Voice', 'Language', 'Status', 'Changed'].map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col' }, h('span.unseen', 'Actions')))),
    h('tbody', agents.map((agent) => row(agent, tools))));
}

function row(agent, { api, go, show }) {
  const duplicate = async (event) => {
    event.currentTarget.disabled = true;
    try {
      const copy = await api.post(`/agents/${agent.id}/duplicate`, {});
      toast(`Made “${copy.name}”`);
      go(`#/agents/${copy.id}`);
    } catch (error) {
      toast(error.message);
      event.target.disabled = false;
    }
  };
  const remove = () => confirm(`Delete “${agent.name}”?`, 'Its settings are gone for good. Calls that were made with it stay.', 'Delete', async () => {
    await api.delete(`/agents/${agent.id}`);
    toast('Deleted');
    show();
  });
  const action = (name, onclick, kind = '') =>
    h(`button.button.small.plain${kind}`, { type: 'button', onclick, 'aria-label': `${name} ${agent.name}` }, name);
  return h('tr',
    h('td.lead', h('a.whole', { href: `#/agents/${agent.id}` }, agent.name)),
    cell('Voice', agent.voice.name ?? h('span.soft', 'no longer offered')),
    cell('Language', h('span', { class: 'cap' }, agent.language)),
    cell('Status', badge(agent.status)),
    cell('Changed', h('span.num', when(agent.updated_at))),
    h('td.lead.end', h('div.row.tight.actions',
      h('a.button.small', { href: `#/talk/${agent.id}`, 'aria-label': `Talk to ${agent.name}` }, 'Talk'),
      action('Duplicate', duplicate), action('Delete', remove, '.danger'))));
}
