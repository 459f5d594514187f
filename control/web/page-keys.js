// API keys: list, make, change, rotate, revoke. A key's string is shown once.

import { h } from './dom.js';
import { when } from './format.js';
import { badge, cell, confirm, copyButton, dialog, empty, ghosts, head, load, pager, toast } from './parts.js';
import { field, refuse } from './form.js';

const LIMIT = 50;
const AREAS = [
  ['Agents', ['agents:read', 'agents:write', 'models:read', 'voices:read', 'voices:write']],
  ['Calls', ['calls:read', 'calls:write', 'conversations:read', 'recordings:read', 'recordings:write']],
  ['Speech', ['tts:use', 'transcribe:use']],
  ['Account', ['usage:read', 'usage:write', 'api_keys:read', 'api_keys:write']],
  ['Numbers and trunks', ['phone_numbers:read', 'phone_numbers:write', 'sip_trunks:read', 'sip_trunks:write', 'telco_accounts:read', 'telco_accounts:write', 'carrier_accounts:read', 'carrier_accounts:write', 'collab:read', 'collab:write']],
  ['Messages', ['sms_messages:read', 'sms_messages:write', 'sms_inbox:read', 'sms_inbox:write', 'sms_campaigns:read', 'sms_campaigns:write', 'messaging_accounts:read', 'messaging_accounts:write', 'chatapp_accounts:read', 'chatapp_accounts:write', 'chatapp_messages:write', 'chatapp_inbox:read', 'chatapp_inbox:write']],
  ['Integrations', ['integrations:read', 'integrations:write']],
];

export function page({ api }) {
  const leaving = new AbortController();
  const list = h('div.card');
  const show = (offset = 0) => load(list, async () => {
    const found = await api.get(`/api-keys?limit=${LIMIT}&offset=${offset}`, { signal: leaving.signal });
    if (found.total === 0) return empty('Keys that are made over the API or here are listed with what they may do.', { heading: 'No keys' });
    return [table(found.items, api, () => show(offset)), pager(found, show)];
  }, { shape: h('div', { class: 'pad' }, ghosts(3, '3.2rem')) });
  show();
  return {
    node: h('div.stack.gap', head('Keys', {
      lead: 'What programs and people sign in with.',
      actions: [h('button.button.main', { type: 'button', id: 'new-key', onclick: () => create(api, show) }, 'New key')],
    }), list),
    close: () => leaving.abort(),
  };
}

function table(keys, api, again) {
  return h('table.table',
    h('thead', h('tr', ['Name', 'Key', 'May', 'Expires', 'Made', 'Status'].map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col' }, h('span.unseen', 'Actions')))),
    h('tbody', keys.map((key) => h('tr',
      h('td.lead', key.name),
      cell('Key', h('code', `${key.key_prefix}…`)),
      cell('May', h('details.scopes', h('summary', `${key.scopes.length} scopes`), h('p.small.soft', key.scopes.join(', ')))),
      cell('Expires', h('span.num', key.expires_at ? when(key.expires_at) : 'never')),
      cell('Made', h('span.num', when(key.created_at))),
      cell('Status', badge(key.status)),
      h('td.lead.end', key.status === 'active' && h('div.row.tight.actions',
        h('button.button.small.plain', { type: 'button', 'aria-label': `Rotate ${key.name}`, onclick: () => rotate(api, key, again) }, 'Rotate'),
        h('button.button.small.plain.danger', { type: 'button', 'aria-label': `Revoke ${key.name}`, onclick: () => revoke(api, key, again) }, 'Revoke')))))));
}

function create(api, again) {
  const name = h('input', { id: 'key-name', name: 'name', maxlength: 100, required: true, placeholder: 'website, laptop, reporting…' });
  const expires = h('input', { id: 'key-expires', name: 'expires_at', type: 'datetime-local' });
  const boxes = AREAS.map(([area, scopes]) => h('fieldset.scopes', h('legend', area),
    scopes.map((scope) => h('label.check', h('input', { type: 'checkbox', name: 'scopes', value: scope }), scope))));
  const own = h('div.scope-list', { hidden: true }, boxes);
  const choice = h('select', { id: 'key-scopes', onchange: () => { own.hidden = choice.value !== 'own'; } },
    h('option', { value: '' }, 'The default bundle: all that spends nothing by itself'), h('option', { value: 'own' }, 'Chosen scopes'));
  const form = h('div.stack',
    field({ name: 'name', label: 'Name', control: name }),
    field({ name: 'scopes', label: 'What it may do', control: choice }), own,
    field({ name: 'expires_at', label: 'Expires', hint: 'Empty: never.', control: expires }));
  dialog('New key', form, {
    submit: 'Make the key',
    async onsubmit(close) {
      const scopes = [...own.querySelectorAll('input:checked')].map((box) => box.value);
      const body = {
        name: name.value.trim(),
        ...(choice.value === 'own' ? { scopes } : {}),
        ...(expires.value ? { expires_at: new Date(expires.value).toISOString() } : {}),
      };
      try {
        const made = await api.post('/api-keys', body);
        close();
        shown(made);
        again();
      } catch (error) {
        refuse(form, error);
      }
    },
  });
}

// The only time that anybody sees it.
function shown(made) {
  dialog(`“${made.name}” is made`, h('div.stack',
    h('p.soft', 'Copy the key now: it is kept as a hash only, and is not shown again.'),
    h('div.secret', h('code.break', made.key), copyButton(made.key))), { cancel: 'Done' });
}

function rotate(api, key, again) {
  const grace = h('select', { id: 'grace' }, [['0', 'At once'], ['3600', 'In an hour'], ['86400', 'In a day']].map(([value, text]) => h('option', { value }, text)));
  dialog(`Rotate “${key.name}”`, h('div.stack',
    h('p.soft', 'It gets a new string with the same scopes.'),
    field({ name: 'grace_seconds', label: 'The old string stops working', control: grace })), {
    submit: 'Rotate',
    async onsubmit(close) {
      const made = await api.post(`/api-keys/${key.id}/rotate`, { grace_seconds: Number(grace.value) });
      close();
      shown(made);
      again();
    },
  });
}

const revoke = (api, key, again) =>
  confirm(`Revoke “${key.name}”?`, `${key.key_prefix}… stops working at once, and call tokens that it minted with it.`, 'Revoke', async () => {
    await api.delete(`/api-keys/${key.id}`);
    toast('Revoked');
    again();
  });
