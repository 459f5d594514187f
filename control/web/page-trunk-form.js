// A trunk: connect a carrier with its numbers, make one by itself, or change one.

import { h } from './dom.js';
import { Editor } from './editor.js';
import { ghosts, head, load, toast } from './parts.js';
import { seen } from './telephone-names.js';
import { NEW, ONBOARD, change } from './trunk-fields.js';

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  const place = h('div.stack.gap');
  const own = { node: place, unsaved: null, close: () => leaving.abort() };
  load(place, async () => {
    if (id === 'onboard') return onboard(await seen(api, '/agents?limit=100', signal), { api, go, own });
    if (id === 'new') return alone({ api, go, own });
    const trunk = await api.get(`/sip-trunks/${id}`, { signal });
    name(trunk.name);
    return changed(trunk, { api, go, own });
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(3, '14rem')] });
  return own;
}

const back = { href: '#/trunks', text: 'Trunks' };

function onboard(agents, { api, go, own }) {
  const editor = new Editor({
    groups: ONBOARD, record: null, world: { agents }, own,
    texts: { save: 'Connect the carrier', untouched: 'Nothing is filled in yet' },
    send: (body) => api.post('/sip-trunks/onboard', body).catch(placed),
    done({ trunk, phone_numbers: numbers }) {
      toast(numbers.length === 1 ? 'Connected, with its number' : `Connected, with ${numbers.length} numbers`);
      go(`#/trunks/${trunk.id}`);
    },
  });
  return [head('Connect a carrier', { back, lead: 'An outbound trunk and its numbers in one step.' }), editor.node()];
}

function alone({ api, go, own }) {
  const editor = new Editor({
    groups: NEW, record: null, world: {}, own,
    texts: { save: 'Make the trunk', untouched: 'Nothing is filled in yet' },
    send: (body) => api.post('/sip-trunks', body).catch(placed),
    done(trunk) {
      toast('Made');
      go(`#/trunks/${trunk.id}`);
    },
  });
  return [head('New trunk', { back, lead: 'For calls that come in, or with settings of its own. Numbers are registered on it afterwards.' }), editor.node()];
}

function changed(trunk, { api, go, own }) {
  const editor = new Editor({
    groups: change(trunk), record: trunk, world: {}, own,
    texts: { save: 'Save', untouched: 'All is saved' },
    send: (body) => api.patch(`/sip-trunks/${trunk.id}`, whole(body, trunk)).catch(placed),
    done() {
      toast('Saved');
      go(`#/trunks/${trunk.id}`);
    },
  });
  return [
    head(trunk.name, { back: { href: `#/trunks/${trunk.id}`, text: 'The trunk' }, lead: 'Address, transport and the rest stay as they are: make another trunk in its place.' }),
    editor.node(),
  ];
}

// The way of authentication and its credentials go together.
function whole(body, trunk) {
  if (!['auth_mode', 'auth_username', 'auth_password'].some((name) => name in body)) return body;
  const mode = body.auth_mode ?? trunk.auth_mode;
  const username = mode === 'ip_acl' ? {} : { auth_username: body.auth_username ?? trunk.auth_username };
  return { ...body, ...username, auth_mode: mode };
}

// What is told of them as a whole stands beside the way.
function placed(error) {
  if (error.code === 'trunk_auth_inconsistent') error.fields = [{ loc: ['body', 'auth_mode'], msg: error.message }];
  throw error;
}
