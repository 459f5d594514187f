// A few settings in a dialog. Only what was changed is sent; what the server refuses is told beside its field.

import { control, unreadable } from './controls.js';
import { h } from './dom.js';
import { refuse } from './form.js';
import { dialog } from './parts.js';

/** `fields` as in agent-fields.js; `record` is what is changed, null for a new one; `send(body)` gives what
 * `done` is told. A field with `always` is sent though it did not change. */
export function settings(name, { lead = null, fields, record = null, world = {}, submit, send, done }) {
  const controls = fields.map((setting) => control(setting, world));
  for (const one of controls) one.write(record ? record[one.name] : one.unset);
  const before = new Map(controls.map((one) => [one.name, JSON.stringify(one.read())]));
  const form = h('div.stack', lead && h('p.soft', lead), controls.map((one) => one.node));
  return dialog(name, form, {
    submit,
    async onsubmit(close) {
      const body = {};
      const errors = [];
      for (const one of controls) {
        try {
          const value = one.read();
          if (one.always || JSON.stringify(value) !== before.get(one.name)) body[one.name] = value;
        } catch (error) {
          errors.push(unreadable(one, error));
        }
      }
      if (errors.length > 0) {
        refuse(form, { fields: errors });
        return;
      }
      try {
        const made = await send(body);
        close();
        done(made);
      } catch (error) {
        refuse(form, error);
      }
    },
  });
}
