// Labelled controls, and the server's complaints beside them.

import { fill, h } from './dom.js';

/** A control with its label above, a hint below, and room for what is wrong. `control` must have an id. */
export function field({ name, label, hint = null, control, wide = false, required = false }) {
  const wrong = h('p.wrong', { id: `${control.id}-wrong`, hidden: true });
  const notes = [hint && `${control.id}-hint`, wrong.id].filter(Boolean).join(' ');
  control.setAttribute('aria-describedby', notes);
  const clear = () => {
    wrong.hidden = true;
    control.removeAttribute('aria-invalid');
  };
  control.addEventListener('input', clear);
  return h('div.field', { class: wide ? 'field wide' : 'field', data: { field: name } },
    h('label', { for: control.id }, label, required && h('span.required', ' (required)')),
    control,
    wrong,
    hint && h('p.hint', { id: `${control.id}-hint` }, hint));
}

/** An on-or-off setting, with the same room. */
export function toggle({ name, label, hint = null, control }) {
  const wrong = h('p.wrong', { id: `${control.id}-wrong`, hidden: true });
  control.setAttribute('aria-describedby', wrong.id);
  control.setAttribute('role', 'switch');
  return h('div.field', { data: { field: name } },
    h('label.switch', control, h('span.text', label, hint && h('small', hint))), wrong);
}

/** Shows each wrong field (`{loc, msg}` of a 422) beside its control and goes to the first one. A field within
 * another one is named by its path, with points between. What has no control here is given back as sentences. */
export function placeErrors(root, errors) {
  for (const wrong of root.querySelectorAll('.wrong')) wrong.hidden = true;
  for (const control of root.querySelectorAll('[aria-invalid]')) control.removeAttribute('aria-invalid');
  const strays = [];
  const told = new Map();
  for (const { loc = [], msg } of errors) {
    const path = loc.slice(1);
    let known = path.length;
    const find = () => root.querySelector(`[data-field="${CSS.escape(path.slice(0, known).join('.'))}"]`);
    while (known > 0 && !find()) known -= 1;
    const place = known > 0 ? find() : null;
    const named = (from) => path.slice(from).map((part) => (Number.isInteger(part) ? `entry ${part + 1}` : part)).join(', ');
    // What one cannot see tells nothing.
    if (!place || place.closest('[hidden]')) {
      strays.push(`${named(0) || 'request'}: ${msg}`);
      continue;
    }
    const where = named(Math.max(1, known));
    told.set(place, [...(told.get(place) ?? []), where ? `${where}: ${msg}` : msg]);
  }
  for (const [place, texts] of told) {
    const wrong = place.querySelector('.wrong');
    wrong.hidden = false;
    fill(wrong, h('span', texts.join('. ')));
    place.querySelector('input, select, textarea')?.setAttribute('aria-invalid', 'true');
  }
  const first = [...root.querySelectorAll('[aria-invalid="true"]')][0];
  first?.closest('details')?.setAttribute('open', '');
  first?.focus({ preventScroll: true });
  first?.scrollIntoView({ block: 'center', behavior: 'smooth' });
  return strays;
}

/** The same for all that is wrong with what was to be sent. What has no place beside a control is thrown, for the
 * dialog to show. */
export function refuse(root, error) {
  const fields = error.fields ?? [];
  const strays = placeErrors(root, fields);
  if (fields.length === 0) throw error;
  if (strays.length > 0) throw Object.assign(new Error(strays.join('. ')), { requestId: error.requestId });
}
