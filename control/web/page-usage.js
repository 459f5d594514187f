// What was used and what it cost, by day and by agent; the account's standing; the secret that signs webhooks.

import { all, query } from './api.js';
import { fill, h } from './dom.js';
import { count, money, when } from './format.js';
import { cell, confirm, copyButton, dialog, empty, ghosts, head, load } from './parts.js';
import { NAMES, resource } from './usage-names.js';

const DAY = 86_400_000;
const PERIODS = [['7', 'Last 7 days'], ['30', 'Last 30 days'], ['90', 'Last 90 days']];

export function page({ api }) {
  const leaving = new AbortController();
  const ask = (path) => api.get(path, { signal: leaving.signal });
  const period = h('select', { id: 'period', 'aria-label': 'Period', onchange: () => show() }, PERIODS.map(([value, text]) => h('option', { value }, text)));
  const what = h('select', { id: 'resource', 'aria-label': 'What is counted', onchange: () => show() }, Object.entries(NAMES).map(([value, text]) => h('option', { value }, text)));
  const totals = h('div');
  const days = h('div.pad');
  const agents = h('div');
  const standing = h('div.pad');

  const show = () => {
    const today = new Date(new Date().toISOString().slice(0, 10)).getTime();
    const from = new Date(today - (Number(period.value) - 1) * DAY);
    const usage = (group) => ask(`/usage${query({ from: from.toISOString(), group_by: group })}`);
    load(totals, async () => tiles(await usage('resource')), { shape: tiles({ totals: {} }) });
    load(days, async () => chart((await usage('day')).items.filter((item) => item.resource_type === what.value), from, Number(period.value), what.value), { shape: ghosts(1, '13rem') });
    load(agents, async () => byAgent((await usage('agent')).items.filter((item) => item.resource_type === what.value), await names(ask)), { shape: h('div.pad', ghosts(2, '2.6rem')) });
  };
  show();
  load(standing, async () => account(await ask('/billing/status')), { shape: ghosts(1, '2rem') });

  return {
    node: h('div.stack.gap',
      head('Usage', { lead: 'What calls and requests used, and what that costs.', actions: [h('a.button', { href: '#/usage/triggers' }, 'Triggers'), period] }),
      totals,
      h('div.halves.wide-left',
        h('section.card', h('header', h('h2', 'By day'), h('div.push', what)), days),
        h('section.card', h('header', h('h2', 'By agent')), agents)),
      h('div.halves',
        h('section.card', h('header', h('h2', 'Webhook secret')), secret(api)),
        h('section.card', h('header', h('h2', 'Account')), standing))),
    close: () => leaving.abort(),
  };
}

function tiles({ totals }) {
  const shown = Object.keys(NAMES).filter((name) => totals[name] > 0 || ['call_minutes', 'tts_characters', 'transcription_seconds', 'llm_tokens'].includes(name));
  return h('div.tiles', shown.map((name) => h('dl.card.tile.short', h('dt', NAMES[name]), h('dd.big.num', count(totals[name])))),
    h('dl.card.tile.short', h('dt', 'Cost'), h('dd.big.num', money(totals.cost_cents))));
}

// A bar a day. The same as a table for those who hear the page.
function chart(items, from, length, name) {
  const used = new Map(items.map((item) => [item.date, item.quantity]));
  const days = Array.from({ length }, (_, x) => new Date(from.getTime() + x * DAY).toISOString().slice(0, 10));
  const most = Math.max(...days.map((day) => used.get(day) ?? 0));
  const short = (day) => new Date(`${day}T00:00`).toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
  if (most === 0) return h('div.chart', empty('Nothing of this was used in these days.'));
  return h('figure.chart', { 'aria-label': `${resource(name)} by day` },
    h('p.soft.small.num', `Most: ${count(most)}`),
    h('div.bars', { 'aria-hidden': 'true' }, days.map((day) => {
      const value = used.get(day) ?? 0;
      return h('i', { title: `${short(day)}: ${count(value)}`, style: { height: `${(100 * value) / most}%` } });
    })),
    h('div.row.small.soft', h('span', short(days[0])), h('span.push', short(days.at(-1)))),
    h('ul.unseen', days.filter((day) => used.get(day)).map((day) => h('li', `${short(day)}: ${count(used.get(day))}`))));
}

async function names(ask) {
  try {
    const agents = await all(ask, '/agents?limit=100');
    return new Map(agents.map((agent) => [agent.id, agent.name]));
  } catch (error) {
    if (error.status === 403) return new Map();
    throw error;
  }
}

function byAgent(items, known) {
  if (items.length === 0) return empty('Nothing of this was used in these days.');
  return h('table.table', h('thead', h('tr', h('th', { scope: 'col' }, 'Agent'), h('th.end', { scope: 'col' }, 'Used'), h('th.end', { scope: 'col' }, 'Cost'))),
    h('tbody', items.map((item) => h('tr',
      h('td.lead', item.agent_id ? (known.get(item.agent_id) ?? h('code.break', item.agent_id)) : h('span.soft', 'No agent')),
      cell('Used', h('span.num', count(item.quantity)), '.end'),
      cell('Cost', h('span.num', money(item.cost_cents)), '.end')))));
}

function account({ enabled, hard_blocked: blocked, balance_cents: balance }) {
  if (!enabled) return h('p.soft', 'Billing is off: calls are counted, and nothing is ever refused for money.');
  return [h('p', h('strong.big.num', money(balance)), ' prepaid'), blocked && h('div.notice.bad', h('div', 'The account is blocked: nothing that costs money is begun.'))];
}

function secret(api) {
  const place = h('div');
  const rotate = () => confirm('Make a new webhook secret?', 'Events are signed with it at once. Receivers that know the old one refuse them until they know the new one.', 'Make a new secret', async () => {
    const made = await api.post('/usage/webhook-secret/rotate', {});
    fill(place, h('div.notice.good', h('div', `Made ${when(made.rotated_at)}.`)));
    dialog('The new webhook secret', h('div.stack',
      h('p.soft', 'Copy it now: it is not shown again.'),
      h('div.secret', h('code.break', made.secret), copyButton(made.secret))), { cancel: 'Done' });
  });
  return h('div.pad.stack',
    h('p.soft', 'Every event is signed in ', h('code', 'X-Svc-Signature'), ', so that a receiver knows who sent it. The secret is shown once, when it is made.'),
    place, h('div', h('button.button', { type: 'button', id: 'rotate', onclick: rotate }, 'Make a new secret')));
}
