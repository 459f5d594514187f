// A form of many settings in groups, with an index beside it and a bar below. Only what was changed is sent;
// what the server refuses is told beside its field.

import { control, unreadable } from './controls.js';
import { fill, h } from './dom.js';
import { placeErrors } from './form.js';
import { failure } from './parts.js';

/**
 * `record`: what is changed, null for a new one. `world`: what controls choose from. `own`: the page, whose
 * `unsaved` is kept. `texts`: `{ save, untouched }`. `send(body)` gives the record; `done(record)` is told of it,
 * and true from it keeps the form open on what was saved.
 *
 * A group or a field may have `when(values)`: whether it is asked at all, by the values of the fields that have
 * `decides`. A choice may have `offers(option, values)`. A field with `always` is sent though it did not change.
 */
export class Editor {
  constructor({ groups, record, world, own, texts, send, done }) {
    Object.assign(this, { record, own, texts, send, done });
    this.groups = groups.map((group) => ({ ...group, controls: group.fields.map((setting) => control(setting, world)) }));
    this.controls = this.groups.flatMap((group) => group.controls);
    this.reset();
  }

  node() {
    this.problem = h('div', { role: 'alert' });
    this.count = h('p.soft', { role: 'status' });
    this.undo = h('button.button', { type: 'button', onclick: () => { this.reset(); this.changed(); } }, 'Discard');
    this.save = h('button.button.main', { type: 'submit', id: 'save' }, this.texts.save);
    for (const group of this.groups) {
      group.section = h('section.card', { id: `group-${group.id}`, 'aria-labelledby': `title-${group.id}` },
        h('header', h('div', h('h2', { id: `title-${group.id}` }, group.title), group.lead && h('p', group.lead))),
        h('div.fields', group.controls.map((one) => one.node)));
      group.link = h('a', { href: `#group-${group.id}`, onclick: (event) => this.goTo(event, group) }, group.title);
    }
    this.form = h('form.editor', { id: 'editor', novalidate: true, onsubmit: (event) => this.submit(event), oninput: () => this.changed() },
      this.groups.map((group) => group.section), this.problem,
      h('div.bar', this.count, h('div.row.tight.push', this.record && this.undo, this.save)));
    this.changed();
    return h('div.sides', h('nav.index', { 'aria-label': 'Settings' }, this.groups.map((group) => group.link)), this.form);
  }

  goTo(event, { section }) {
    event.preventDefault();
    section.scrollIntoView({ behavior: 'smooth' });
    section.querySelector('input, select, textarea, button')?.focus({ preventScroll: true });
  }

  reset() {
    for (const one of this.controls) one.write(this.record ? this.record[one.name] : one.unset);
    // As the controls show it, so that only a person's change counts.
    this.before = new Map(this.controls.map((one) => [one.name, JSON.stringify(one.read())]));
    if (this.form) {
      placeErrors(this.form, []);
      fill(this.problem);
    }
  }

  // What differs from what was loaded; what cannot be read becomes an error as the server's. What is not
  // asked is not sent.
  changes() {
    const body = {};
    const errors = [];
    let number = 0;
    for (const group of this.groups) {
      for (const one of group.controls) {
        if (group.section?.hidden || one.node.hidden) continue;
        try {
          const value = one.read();
          const differs = JSON.stringify(value) !== this.before.get(one.name);
          if (differs) number += 1;
          if (differs || one.always) body[one.name] = value;
        } catch (error) {
          number += 1;
          errors.push(unreadable(one, error));
        }
      }
    }
    return { body, errors, number };
  }

  // Which fields are asked, and which of their choices stand, by what the deciding fields say.
  ask() {
    const values = {};
    for (const one of this.controls) {
      if (one.offers) offer(one, values);
      if (one.decides) values[one.name] = one.read();
    }
    for (const group of this.groups) {
      if (group.when) group.link.hidden = group.section.hidden = !group.when(values);
      for (const one of group.controls) if (one.when) one.node.hidden = !one.when(values);
    }
  }

  changed() {
    this.ask();
    const { number } = this.changes();
    this.count.textContent = number === 0 ? this.texts.untouched : number === 1 ? '1 change' : `${number} changes`;
    this.undo.disabled = number === 0;
    this.save.disabled = this.record !== null && number === 0;
    this.own.unsaved = number === 0 ? null : () => ({ title: 'Leave without saving?', text: 'What you changed here is not saved yet.', leave: 'Leave' });
  }

  async submit(event) {
    event.preventDefault();
    if (this.form.inert) return;
    const { body, errors } = this.changes();
    fill(this.problem);
    if (errors.length > 0) {
      this.tell({ fields: errors });
      return;
    }
    // What were typed or sent now would be lost, or be made twice: the form waits.
    const focused = document.activeElement;
    this.form.inert = true;
    try {
      const saved = await this.send(body);
      this.own.unsaved = null;
      // A form that is left stays as it is until it is gone.
      if (!this.done(saved)) return;
      this.record = saved;
      this.reset();
      this.changed();
    } catch (error) {
      this.form.inert = false;
      focused?.focus({ preventScroll: true });
      this.tell(error);
      return;
    }
    this.form.inert = false;
    focused?.focus({ preventScroll: true });
  }

  // What is refused is told beside its field; above the buttons what has none.
  tell(error) {
    const fields = error.fields ?? [];
    const strays = placeErrors(this.form, fields);
    const told = fields.length === 0 ? error : { message: ['Some settings are not right', ...strays].join('. ') };
    fill(this.problem, failure(told));
    if (fields.length === strays.length) this.problem.scrollIntoView({ block: 'center', behavior: 'smooth' });
  }
}

// A choice that does not stand any more gives way to the first that does.
function offer({ node, offers }, values) {
  const select = node.querySelector('select');
  for (const option of select.options) option.hidden = option.disabled = !offers(option.value, values);
  if (select.selectedOptions[0]?.disabled) select.value = [...select.options].find((option) => !option.disabled).value;
}
