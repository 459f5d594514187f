// Pieces that several pages are made of.

import { fill, h, icon, s } from './dom.js';
import { title, words } from './format.js';

/** The head of a page: its name, a line below, and what can be done on the right. */
export function head(name, { lead = null, actions = [], back = null } = {}) {
  return h('header.head',
    back && h('a.back', { href: back.href }, icon('back'), back.text),
    h('div.row',
      h('div', h('h1', { tabindex: -1 }, name), lead && h('p.soft', lead)),
      actions.length > 0 && h('div.row.push', actions)));
}

export function empty(text, { heading = null, action = null } = {}) {
  const bars = [8, 20, 34, 16, 28, 12, 22, 8].map((height, x) =>
    s('path', { d: `M${6 + x * 10} ${24 - height / 2}v${height}`, opacity: x % 2 ? 0.45 : 1 }));
  return h('div.empty',
    h('div.art', s('svg', { width: 84, height: 48, viewBox: '0 0 84 48', 'aria-hidden': 'true', fill: 'none', stroke: 'currentColor', 'stroke-width': 4, 'stroke-linecap': 'round' }, bars)),
    heading && h('h2', heading), h('p', text), action);
}

/** A failure with what can be done about it. */
export function failure(error, again) {
  // What a key may not see is no fault.
  if (error.status === 403) return h('div.notice', h('p', error.message));
  return h('div.notice.bad', { role: 'alert' },
    h('div', h('p', error.message),
      error.requestId && h('p.small', 'Request ', h('code.break', error.requestId)),
      again && h('button.link', { type: 'button', onclick: again }, 'Try again')));
}

/** Grey shapes of about the height of what comes, so that nothing jumps when it has come. */
export const ghosts = (number, height = '3rem') =>
  h('div.stack', { 'aria-hidden': 'true' }, Array.from({ length: number }, () => h('div.ghost', { style: { 'min-height': height } })));

// The latest load of each place.
const loads = new WeakMap();

/** Loads into a place: ghosts first, then what `make` gives, or the failure with a way to try again. What was asked
 * for before, and comes later, is not shown. Resolves to whether what came is shown. */
export async function load(place, make, { shape = ghosts(4) } = {}) {
  const own = Symbol('load');
  const isLatest = () => loads.get(place) === own;
  loads.set(place, own);
  const focus = keepFocus(place);
  fill(place, shape);
  place.setAttribute('aria-busy', 'true');
  try {
    const made = await make();
    if (!isLatest()) return false;
    fill(place, made);
    focus();
    return true;
  } catch (error) {
    if (isLatest() && error.name !== 'AbortError') fill(place, failure(error, () => load(place, make, { shape })));
    return false;
  } finally {
    if (isLatest()) place.removeAttribute('aria-busy');
  }
}

const heading = () => document.querySelector('main h1');

// Whoever is in a place with the keyboard, or in a dialog that was opened there, is at the same control when the place
// is filled anew, and at the head of the page where that control is gone.
function keepFocus(place) {
  const at = document.activeElement?.closest('dialog')?.opener ?? document.activeElement;
  if (!place.contains(at)) return () => {};
  const same = at.id ? `#${CSS.escape(at.id)}` : `[aria-label="${CSS.escape(at.ariaLabel ?? '')}"]`;
  return () => {
    if (![document.body, heading()].includes(document.activeElement)) return;
    const found = place.querySelector(same);
    (found && !found.disabled ? found : heading())?.focus({ preventScroll: true });
  };
}

const TONES = {
  active: 'good', completed: 'good', registered: 'good', delivered: 'good', ready: 'good',
  in_progress: 'live', live: 'live', delivering: 'live', ringing: 'live', uploading: 'live',
  failed: 'bad', exhausted: 'bad', unsafe: 'bad', revoked: 'bad',
  pending: 'warn', unregistered: 'warn', expired: 'warn', provisioning: 'warn', 'no-answer': 'warn', busy: 'warn', queued: 'warn',
};

export const badge = (status, tone = TONES[status] ?? '') => h('span.badge', { class: `badge ${tone}` }, title(status ?? 'none').replace('-', ' '));

let toastTimer;
export function toast(text) {
  const place = document.getElementById('toasts');
  fill(place, h('div.toast', text));
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.replaceChildren(), 4000);
}

/** Tells beside itself what came of it: a dialog covers all else. */
export function copyButton(text, label = 'Copy') {
  const said = h('span.soft.small', { role: 'status' });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      fill(said, 'Copied');
    } catch {
      fill(said, 'The browser does not allow it here: select the text and copy it');
    }
  };
  return h('div.row.tight', h('button.button.small', { type: 'button', onclick: copy }, icon('copy'), label), said);
}

/** A modal dialog around a form. `onsubmit(close)` may throw: the failure is shown and the dialog stays. */
export function dialog(name, content, { submit = 'Save', tone = 'main', onsubmit = null, cancel = 'Cancel' } = {}) {
  const problem = h('div', { role: 'alert' });
  const button = onsubmit && h(`button.button.${tone}`, { type: 'submit' }, submit);
  const close = () => box.close();
  const opener = document.activeElement;
  const closed = () => {
    box.remove();
    if (!opener.isConnected && document.activeElement === document.body) heading()?.focus({ preventScroll: true });
  };
  const box = h('dialog', { 'aria-labelledby': 'dialog-name', onclose: closed },
    h('form', {
      method: 'dialog',
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        if (!onsubmit) return close();
        button.disabled = true;
        fill(problem);
        try {
          await onsubmit(close);
        } catch (error) {
          fill(problem, failure(error));
        } finally {
          button.disabled = false;
        }
      },
    },
    h('h2', { id: 'dialog-name' }, name), content, problem,
    h('div.row', h('button.button', { type: 'button', onclick: close }, cancel), button)));
  box.opener = opener;
  document.body.append(box);
  box.showModal();
  return box;
}

/** Asks before something that cannot be undone. */
export const confirm = (name, text, submit, act) =>
  dialog(name, h('p.soft', text), { submit, tone: 'stop', onsubmit: async (close) => { await act(); close(); } });

/** Earlier and later pages of a list. */
export function pager({ total, limit, offset }, go) {
  if (total <= limit && offset === 0) return null;
  const step = (text, to, enabled) =>
    h('button.button.small', { type: 'button', id: text.toLowerCase(), disabled: !enabled, onclick: () => go(to) }, text);
  return h('nav.pager', { 'aria-label': 'Pages' },
    h('span.soft.small.num', `${total === 0 ? 0 : offset + 1}–${Math.min(total, offset + limit)} of ${total}`),
    h('span.row.tight.push', step('Newer', Math.max(0, offset - limit), offset > 0), step('Older', offset + limit, offset + limit < total)));
}

/** `name` and `value` pairs. */
export const facts = (pairs) => h('dl.facts', pairs.filter(Boolean).map(([name, value]) => h('div', h('dt', name), h('dd', value))));

/** A cell that names its column where the table is shown as cards. */
export const cell = (name, content, kind = '') =>
  h(`td${content === null || content === undefined ? '.nothing' : kind}`, { 'data-head': name }, content);

export { title, words };
