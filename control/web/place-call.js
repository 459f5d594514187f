// Has an agent call somebody.

import { settings } from './settings-dialog.js';
import { seen } from './telephone-names.js';
import { toast } from './parts.js';

/** Asks whom and from which number; `agent` is given where the page knows it. */
export async function placeCall(api, go, agent = null) {
  try {
    // A call is placed from a number with its plus alone; one of digits only takes calls.
    const [agents, numbers] = await Promise.all([agent ? [] : seen(api, '/agents?limit=100'), seen(api, '/phone-numbers?limit=1000')]);
    const callers = numbers.filter((number) => number.outbound_enabled && number.phone_number.startsWith('+'));
    settings(agent ? `“${agent.name}” calls a number` : 'Call a number', {
      lead: callers.length === 0 ? 'No number may place calls yet: register one under Numbers, or let one that is there.' : null,
      fields: [
        !agent && { name: 'agent_id', kind: 'one', from: 'agents', label: 'Agent', none: 'Choose an agent…', unset: agents.length === 1 ? agents[0].id : null, required: true, always: true },
        { name: 'to_number', kind: 'text', type: 'tel', label: 'Number to call', placeholder: '+4930123456', hint: 'With the plus and the country.', unset: null, required: true },
        { name: 'from_number', kind: 'one', from: 'callers', label: 'Calls from', none: 'Choose a number…', unset: callers.length === 1 ? callers[0].phone_number : null, required: true, always: true },
        { name: 'ring_timeout_seconds', kind: 'number', label: 'Rings for, seconds', min: 5, max: 90, step: 1, placeholder: '30', unset: null },
      ].filter(Boolean),
      world: { agents, callers: callers.map((number) => ({ id: number.phone_number, name: [number.phone_number, number.friendly_name].filter(Boolean).join(' · ') })) },
      submit: 'Call',
      send: (body) => api.post('/calls', agent ? { ...body, agent_id: agent.id } : body),
      done: (call) => go(`#/calls/${call.call_id}`),
    });
  } catch (error) {
    toast(error.message);
  }
}
