// Calls as a table: on the overview and on the page of calls.

import { h } from './dom.js';
import { DASH, length, ms, title, when } from './format.js';
import { badge, cell } from './parts.js';

const CHANNELS = { websocket: 'WebSocket', webrtc: 'WebRTC', sip: 'SIP', telco: 'Telephony', collab: 'Collaboration', chatapp: 'Chat app' };

export const channel = (name) => CHANNELS[name] ?? title(name);

/** Who is at the other end: a number, or the way that the call came. */
export const party = (call) => (call.direction === 'outbound' ? call.to_number : call.from_number) ?? channel(call.channel);

/** `more` gives a line below the agent's name, such as words that were searched for. */
export function callRows(calls, more = () => null) {
  const row = (call) => h('tr',
    h('td.lead', h('a.whole', { href: `#/calls/${call.id}` }, when(call.started_at ?? call.created_at)), more(call)),
    cell('Agent', call.agent_name || 'None'),
    cell('With', h('span.num', party(call))),
    cell('Length', h('span.num', length(call.duration_seconds)), '.end'),
    cell('Turns', h('span.num', call.turn_count), '.end'),
    cell('Median answer', h('span.num', call.latency_summary ? ms(call.latency_summary.response_ms?.p50) : DASH), '.end'),
    cell('Status', badge(call.status)));
  return h('table.table',
    h('thead', h('tr', ['When', 'Agent', 'With'].map((name) => h('th', { scope: 'col' }, name)),
      ['Length', 'Turns', 'Median answer'].map((name) => h('th.end', { scope: 'col' }, name)), h('th', { scope: 'col' }, 'Status'))),
    h('tbody', calls.map(row)));
}
