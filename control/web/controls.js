// The controls of the forms of settings. Each is `{ node, read, write }`: `read` gives the value for the API, or
// throws an Error with what is wrong when there is no such value.

import { ownAddress } from './api.js';
import { fill, h, icon } from './dom.js';
import { field, toggle } from './form.js';
import { FALLBACKS } from './telephone-names.js';

/** The control of one setting; `world` has the voices, models, agents and trunks to choose from. */
export function control(setting, world) {
  const id = `f-${setting.name}`;
  const made = KINDS[setting.kind](setting, id, world);
  const shell = setting.kind === 'flag' ? toggle : field;
  const node = made.bare ?? shell({ ...setting, control: made.input });
  if (made.after) node.querySelector(':scope > label').after(made.after(made.input));
  return { ...setting, node, read: made.read, write: made.write };
}

/** What a control cannot read, as the server would tell it: `within` names the field of a control that has several. */
export const unreadable = ({ name }, { message, within }) => ({ loc: ['body', name, within].filter(Boolean), msg: message });

const KINDS = {
  text(setting, id) {
    const input = h('input', { id, name: setting.name, type: setting.type ?? 'text', placeholder: setting.placeholder, autocomplete: 'off', required: setting.required });
    const { read, write } = plain(input);
    return { input, write, read: setting.type === 'tel' ? () => compact(read() ?? '') || null : read };
  },

  // A secret goes in and is never shown.
  secret(setting, id) {
    const input = h('input', { id, name: setting.name, type: 'password', autocomplete: 'new-password', spellcheck: 'false', required: setting.required });
    return { input, ...plain(input) };
  },

  long(setting, id) {
    const input = h('textarea', { id, name: setting.name, rows: setting.rows, required: setting.required });
    return { input, ...plain(input) };
  },

  number(setting, id) {
    const input = h('input', { id, name: setting.name, type: 'number', inputmode: 'decimal', min: setting.min, max: setting.max, step: setting.step, placeholder: setting.placeholder });
    return {
      input,
      read() {
        if (input.validity.badInput) throw new Error('Input should be a number');
        return input.value === '' ? null : Number(input.value);
      },
      write: (value) => { input.value = value ?? ''; },
    };
  },

  flag(setting, id) {
    const input = h('input', { id, name: setting.name, type: 'checkbox' });
    return { input, read: () => input.checked, write: (value) => { input.checked = Boolean(value); } };
  },

  // '' is null; `true` and `false` are themselves.
  choice(setting, id) {
    const input = h('select', { id, name: setting.name }, setting.options.map(([value, text]) => h('option', { value }, text)));
    const values = { '': null, true: true, false: false };
    return {
      input,
      read: () => (input.value in values ? values[input.value] : input.value),
      write: (value) => { input.value = value === null ? '' : String(value); },
    };
  },

  lines(setting, id) {
    const input = h('textarea', { id, name: setting.name, rows: 3, placeholder: setting.placeholder, required: setting.required });
    return {
      input,
      read: () => input.value.split('\n').map((line) => line.trim()).filter(Boolean),
      write: (value) => { input.value = (value ?? []).join('\n'); },
    };
  },

  json(setting, id) {
    const input = h('textarea.mono', { id, name: setting.name, rows: 4, spellcheck: 'false' });
    return {
      input,
      read() {
        try {
          return input.value.trim() ? JSON.parse(input.value) : {};
        } catch (error) {
          throw new Error(`Not JSON: ${error.message}`);
        }
      },
      write: (value) => { input.value = value && Object.keys(value).length > 0 ? JSON.stringify(value, null, 2) : ''; },
    };
  },

  // One of a list of the world; '' is null.
  one(setting, id, world) {
    const options = world[setting.from].map((item) => h('option', { value: item.id }, item.name));
    const input = h('select', { id, name: setting.name }, h('option', { value: '' }, setting.none), options);
    return { input, read: () => input.value || null, write: (value) => choose(input, value) };
  },

  // Whom a trunk may call: everybody, only those that are listed, or all others.
  destinations(setting, id) {
    const entries = h('textarea', { id: `${id}-entries`, rows: 3, placeholder: '+49\n+4930123456', spellcheck: 'false' });
    const list = field({ name: `${setting.name}.entries`, label: 'Numbers, or how they begin', hint: 'One a line, with the plus.', control: entries });
    const mode = h('select', { id, name: setting.name, oninput: () => shown() }, [['', 'Every number'], ['allowlist', 'Only those that are listed'], ['blocklist', 'All but those that are listed']].map(([value, text]) => h('option', { value }, text)));
    const shown = () => { list.hidden = mode.value === ''; };
    return {
      bare: h('div.field.wide.rows', field({ ...setting, control: mode }), list),
      read: () => (mode.value === '' ? null : { mode: mode.value, entries: entries.value.split('\n').map((line) => line.trim()).filter(Boolean) }),
      write(value) {
        mode.value = value?.mode ?? '';
        entries.value = (value?.entries ?? []).join('\n');
        shown();
      },
    };
  },

  // What is done when no agent answers. The fields within are named by their path, as the server names them.
  routing(setting, id) {
    const action = h('select', { id, oninput: () => shown() }, [['', 'Refuse the call at once'], ...FALLBACKS].map(([value, text]) => h('option', { value }, text)));
    const number = h('input', { id: `${id}-number`, type: 'tel', autocomplete: 'off', placeholder: '+4930123456' });
    const ring = h('input', { id: `${id}-ring`, type: 'number', inputmode: 'numeric', min: 5, max: 120, step: 1, placeholder: '30' });
    const to = field({ name: `${setting.name}.fallback_number`, label: 'Forward to', hint: 'With the plus and the country. Calls are forwarded from numbers alone that may place calls.', required: true, control: number });
    const rings = field({ name: `${setting.name}.max_ring_seconds`, label: 'Rings for, seconds', hint: 'Until then an agent may still answer. 5 to 120.', control: ring });
    const shown = () => {
      to.hidden = action.value !== 'forward';
      rings.hidden = action.value === '';
    };
    return {
      bare: h('div.field.wide.rows', field({ ...setting, name: `${setting.name}.fallback_action`, control: action }), h('div.two', rings, to)),
      read() {
        if (action.value === '') return null;
        if (ring.validity.badInput) throw Object.assign(new Error('Input should be a number'), { within: 'max_ring_seconds' });
        return { fallback_action: action.value, fallback_number: action.value === 'forward' ? number.value.trim() || null : null, max_ring_seconds: ring.value === '' ? null : Number(ring.value) };
      },
      write(value) {
        action.value = value?.fallback_action ?? '';
        number.value = value?.fallback_number ?? '';
        ring.value = value?.max_ring_seconds ?? '';
        shown();
      },
    };
  },

  model(setting, id, world) {
    const options = world.models.filter((model) => model.id !== '').map((model) => h('option', { value: model.id }, `${model.name} · ${model.provider}${model.available ? '' : ' (not configured)'}`));
    const input = h('select', { id, name: setting.name }, h('option', { value: '' }, 'Platform default'), options);
    return { input, read: () => input.value, write: (value) => choose(input, value) };
  },

  voice(setting, id, world) {
    const named = new Intl.DisplayNames(undefined, { type: 'region' });
    const byLanguage = Map.groupBy ? Map.groupBy(world.voices, (voice) => voice.language) : new Map([['voices', world.voices]]);
    const groups = [...byLanguage].map(([language, voices]) => h('optgroup', { label: language[0].toUpperCase() + language.slice(1) },
      voices.map((voice) => h('option', { value: voice.id }, [voice.name, voice.gender, voice.country && named.of(voice.country)].filter(Boolean).join(' · ')))));
    const input = h('select', { id, name: setting.name, required: true }, h('option', { value: '' }, 'Choose a voice…'), groups);
    return {
      input,
      after: (select) => h('div.row.together', select, listen(() => world.voices.find((voice) => voice.id === select.value))),
      read: () => input.value,
      write: (value) => choose(input, value),
    };
  },

  pairs(setting) {
    const rows = h('div.rows');
    const add = (key = '', value = '') => rows.append(h('div.pair',
      h('input', { class: 'mono', placeholder: 'name', 'aria-label': 'Name of the variable', value: key }),
      h('input', { placeholder: 'value', 'aria-label': 'Value of the variable', value: spelt(value) }),
      remover()));
    return listed(setting, rows, () => add(), 'Add a variable', {
      read: () => Object.fromEntries([...rows.children].map((row) => [...row.querySelectorAll('input')].map((input) => input.value))
        .filter(([key, value]) => key || value).map(([key, value]) => [key.trim(), meant(value)])),
      write(value) {
        fill(rows);
        for (const [key, one] of Object.entries(value ?? {})) add(key, one);
      },
    });
  },

  guards(setting) {
    const rows = h('div.rows');
    const add = ({ name = '', prompt = '', is_enabled: on = true } = {}) => rows.append(h('div.guard',
      h('input', { placeholder: 'name', 'aria-label': 'Name of the guardrail', value: name }),
      h('label.check', h('input', { type: 'checkbox', checked: on }), 'on'), remover(),
      h('textarea', { rows: 2, placeholder: 'What it watches for', 'aria-label': 'What the guardrail watches for', value: prompt })));
    return listed(setting, rows, () => add(), 'Add a guardrail', {
      read: () => [...rows.children].map((row) => ({
        name: row.querySelector('input').value.trim(),
        prompt: row.querySelector('textarea').value.trim(),
        is_enabled: row.querySelector('[type="checkbox"]').checked,
      })),
      write(value) {
        fill(rows);
        for (const one of value ?? []) add(one);
      },
    });
  },
};

/** A number as people write it, +49 (30) 123-456, as the API has it. */
export const compact = (number) => number.replace(/[\s()/.-]/g, '');

// Text: nothing is null for the API.
const plain = (input) => ({ read: () => (input.value === '' ? null : input.value), write: (value) => { input.value = value ?? ''; } });

// In a row of variables `true`, `false`, numbers and quoted text are JSON; all else is text as it stands.
const JSON_LIKE = /^(true|false|-?(0|[1-9]\d{0,14})(\.\d+)?|".*")$/;

function meant(text) {
  try {
    return JSON_LIKE.test(text) ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

const spelt = (value) => (typeof value === 'string' && !JSON_LIKE.test(value) ? value : JSON.stringify(value));

// A value that is not on offer any more stays what it is until another is chosen.
function choose(select, value) {
  if (value && ![...select.options].some((option) => option.value === value)) select.append(h('option', { value }, `${value} (no longer offered)`));
  select.value = value ?? '';
}

// A list of rows with a button that adds one.
function listed(setting, rows, add, text, { read, write }) {
  const more = h('button.button.small', { type: 'button', onclick: () => { add(); rows.lastElementChild.querySelector('input').focus(); } }, icon('plus'), text);
  const wrong = h('p.wrong', { hidden: true });
  const bare = h('fieldset', { class: 'field wide plain', data: { field: setting.name } },
    h('legend', { class: 'label' }, setting.label), setting.hint && h('p.hint', setting.hint), rows, wrong, h('div', more));
  return { bare, read, write };
}

function remover() {
  const button = h('button.button.plain', { type: 'button', 'aria-label': 'Remove', onclick: () => {
    const form = button.closest('form');
    button.closest('.rows > *').remove();
    form?.dispatchEvent(new Event('input', { bubbles: true }));
  } }, 'Remove');
  return button;
}

// Plays the preview of the voice that is chosen.
function listen(chosen) {
  const sound = new Audio();
  const button = h('button.button', { type: 'button', id: 'listen', onclick: () => {
    if (!sound.paused) return sound.pause();
    const voice = chosen();
    if (!voice?.preview_url) return undefined;
    button.lastChild.textContent = 'Listen';
    sound.src = ownAddress(voice.preview_url);
    return sound.play().catch(() => { button.lastChild.textContent = 'No preview'; });
  } }, icon('play'), 'Listen');
  return button;
}
