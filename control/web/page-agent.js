// One agent: make it, or change it.

import { GROUPS } from './agent-fields.js';
import { h } from './dom.js';
import { Editor } from './editor.js';
import { badge, ghosts, head, load, toast } from './parts.js';
import { placeCall } from './place-call.js';

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const isNew = id === 'new';
  const place = h('div.stack.gap');
  const own = {
    node: place,
    unsaved: null,
    close: () => leaving.abort(),
  };
  load(place, async () => {
    const ask = (path) => api.get(path, { signal: leaving.signal });
    // A key that may not read voices, models or trunks can change the rest.
    const items = (path) => ask(path).then((found) => found.items, (error) => { if (error.status === 403) return []; throw error; });
    const [agent, voices, models, trunks] = await Promise.all([isNew ? null : ask(`/agents/${id}`), items('/voices?limit=500'), items('/models'), items('/sip-trunks?limit=200')]);
    name(agent?.name ?? 'New agent');
    return form(agent, { voices, models, trunks: trunks.filter((trunk) => trunk.type === 'outbound') }, { api, go, own });
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(3, '16rem')] });
  return own;
}

function form(agent, world, { api, go, own }) {
  const editor = new Editor({
    groups: GROUPS, record: agent, world, own,
    texts: { save: agent ? 'Save' : 'Make the agent', untouched: agent ? 'All is saved' : 'Nothing is filled in yet' },
    send: (body) => (agent ? api.patch(`/agents/${agent.id}`, body) : api.post('/agents', body)),
    done(saved) {
      toast(agent ? 'Saved' : `“${saved.name}” is ready to talk`);
      if (!agent) go(`#/agents/${saved.id}`);
      return agent !== null;
    },
  });
  return [
    head(agent ? agent.name : 'New agent', {
      back: { href: '#/agents', text: 'Agents' },
      lead: agent ? h('span.row.tight', badge(agent.status), h('code.small.break', agent.id)) : 'A name, a voice and a prompt are enough; all else has a default.',
      actions: agent ? [
        h('button.button', { type: 'button', id: 'place-call', onclick: () => placeCall(api, go, agent) }, 'Call a number'),
        h('a.button.main', { href: `#/talk/${agent.id}` }, 'Talk to it'),
      ] : [],
    }),
    agent?.unfilled_variables?.length > 0 && h('div.notice.warn', h('div', 'The prompt names what nothing fills: ', agent.unfilled_variables.map((one) => h('code', ` {{${one}}}`)), '. Give it a value under Variables, or with each call.')),
    editor.node(),
  ];
}
