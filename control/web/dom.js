// Makes elements. `h('div.card.pad', { id: 'a', onclick: f }, 'text', child)`: names that begin with `on` are
// listeners, known properties are set as such, all else are attributes; null and false leave things out.
// Text is always text: nothing here parses HTML.

const SVG = 'http://www.w3.org/2000/svg';
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'open', 'selected', 'indeterminate', 'textContent']);

export const h = (what, ...rest) => make(document.createElement.bind(document), what, rest);
export const s = (what, ...rest) => make((name) => document.createElementNS(SVG, name), what, rest);

function make(create, what, rest) {
  const [name, ...classes] = what.split('.');
  const element = create(name || 'div');
  if (classes.length > 0) element.classList.add(...classes);
  const plain = (value) => value && typeof value === 'object' && !(value instanceof Node) && !Array.isArray(value);
  if (plain(rest[0])) set(element, rest.shift());
  append(element, rest);
  return element;
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on') && typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name) && name in element) element[name] = value;
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
  return element;
}

/** Replaces what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** The same for what is looked at again and again: only what differs is replaced, so that whoever is at a link there
 * with the keyboard stays at it. */
export function refill(element, ...children) {
  merge(element, append(element.cloneNode(false), children));
}

function merge(now, next) {
  const [old, made] = [[...now.childNodes], [...next.childNodes]];
  if (old.length !== made.length) {
    now.replaceChildren(...made);
    return;
  }
  for (const [x, child] of old.entries()) {
    if (child.isEqualNode(made[x])) continue;
    if (child instanceof Element && child.cloneNode(false).isEqualNode(made[x].cloneNode(false))) merge(child, made[x]);
    else child.replaceWith(made[x]);
  }
}

const PATHS = {
  home: 'M4 11.5 12 5l8 6.5V19a1 1 0 0 1-1 1h-4v-5h-6v5H5a1 1 0 0 1-1-1z',
  agents: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8Zm-7 8c.6-3.4 3.4-5 7-5s6.4 1.600 7 5',
  calls: 'M5 4h3.500l1.500 4-2 1.500a12 12 0 0 0 6.500 6.500l1.500-2 4 1.500V19a1.500 1.500 0 0 1-1.500 1.500C11 20.500 3.500 13 3.500 5.500A1.500 1.500 0 0 1 5 4Z',
  numbers: 'M9.500 4 7.500 20M16.500 4l-2 16M4.500 9h15.500M4 15h15.500',
  usage: 'M5 20V11M12 20V4M19 20v-6',
  keys: 'M14.500 13.500a4.500 4.500 0 1 0-4.200-2.900L4 17v3h3l1-2h2l1-2 1.300-1.400c.7.300 1.400.400 2.200.400ZM15.500 8.500h.01',
  light: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600 7 7M17 17l1.400 1.400M5.600 18.400 7 17M17 7l1.400-1.400',
  dark: 'M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z',
  system: 'M4 5h16v11H4zM9 20h6M12 16v4',
  out: 'M14 4h4a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1h-4M10 8l-4 4 4 4M6 12h9',
  plus: 'M12 5v14M5 12h14',
  play: 'M8 5.500v13l10.500-6.500z',
  pause: 'M9 6v12M15 6v12',
  mic: 'M12 15a3 3 0 0 0 3-3V7a3 3 0 1 0-6 0v5a3 3 0 0 0 3 3ZM6 11.500a6 6 0 0 0 12 0M12 17.500V21',
  micoff: 'M9 9v3a3 3 0 0 0 4.600 2.500M15 11V7a3 3 0 0 0-5.700-1.300M6 11.500a6 6 0 0 0 9.500 4.900M18 11.500c0 .7-.1 1.400-.3 2M12 17.500V21M4 4l16 16',
  keypad: 'M6 5h.01M12 5h.01M18 5h.01M6 12h.01M12 12h.01M18 12h.01M6 19h.01M12 19h.01M18 19h.01',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  back: 'M15 6l-6 6 6 6',
  doc: 'M7 3h7l4 4v14H7zM14 3v4h4M10 12h5M10 16h5',
  send: 'M5 12h13M13 6l6 6-6 6',
};

/** A line icon; it is decoration, so its button needs a name of its own. */
export function icon(name) {
  const fills = name === 'play';
  return s('svg', { viewBox: '0 0 24 24', width: 20, height: 20, 'aria-hidden': 'true', fill: fills ? 'currentColor' : 'none', stroke: 'currentColor', 'stroke-width': name === 'keypad' ? 3 : 1.7, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' },
    s('path', { d: PATHS[name] }));
}
