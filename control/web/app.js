// The shell of the console: signing in, the way between pages, the theme. Each page is a module of its own
// that gives `{ node, leave?, close? }`: `leave` may keep the reader, `close` ends what still runs.

import { Api } from './api.js';
import { fill, h, icon } from './dom.js';
import { confirm, failure, head } from './parts.js';

const PAGES = [
  { pattern: /^$/, load: () => import('./page-overview.js'), name: 'Overview', tab: '' },
  { pattern: /^agents$/, load: () => import('./page-agents.js'), name: 'Agents', tab: 'agents' },
  { pattern: /^agents\/([\w-]+)$/, load: () => import('./page-agent.js'), name: 'Agent', tab: 'agents' },
  { pattern: /^talk\/([\w-]+)$/, load: () => import('./page-talk.js'), name: 'Talk', tab: 'agents' },
  { pattern: /^calls$/, load: () => import('./page-calls.js'), name: 'Calls', tab: 'calls' },
  { pattern: /^calls\/([\w-]+)$/, load: () => import('./page-call.js'), name: 'Call', tab: 'calls' },
  { pattern: /^numbers$/, load: () => import('./page-numbers.js'), name: 'Phone numbers', tab: 'numbers' },
  { pattern: /^numbers\/([\w-]+)$/, load: () => import('./page-number.js'), name: 'Phone number', tab: 'numbers' },
  { pattern: /^trunks$/, load: () => import('./page-trunks.js'), name: 'SIP trunks', tab: 'numbers' },
  { pattern: /^trunks\/(new|onboard)$/, load: () => import('./page-trunk-form.js'), name: 'New trunk', tab: 'numbers' },
  { pattern: /^trunks\/([\w-]+)\/change$/, load: () => import('./page-trunk-form.js'), name: 'Change a trunk', tab: 'numbers' },
  { pattern: /^trunks\/([\w-]+)$/, load: () => import('./page-trunk.js'), name: 'SIP trunk', tab: 'numbers' },
  { pattern: /^suppressions$/, load: () => import('./page-suppressions.js'), name: 'Suppressions', tab: 'numbers' },
  { pattern: /^usage$/, load: () => import('./page-usage.js'), name: 'Usage', tab: 'usage' },
  { pattern: /^usage\/triggers$/, load: () => import('./page-triggers.js'), name: 'Usage triggers', tab: 'usage' },
  { pattern: /^usage\/triggers\/([\w-]+)$/, load: () => import('./page-trigger.js'), name: 'Usage trigger', tab: 'usage' },
  { pattern: /^keys$/, load: () => import('./page-keys.js'), name: 'Keys', tab: 'keys' },
];
const TABS = [['', 'Overview', 'home'], ['agents', 'Agents', 'agents'], ['calls', 'Calls', 'calls'], ['numbers', 'Numbers', 'numbers'], ['usage', 'Usage', 'usage'], ['keys', 'Keys', 'keys']];
const STORED = 'sidetone.key';
const THEMES = ['system', 'light', 'dark'];

const app = document.getElementById('app');
let api = null;
let main = null;
let page = null;
let shown = null;
let round = 0;
let question = null;
// Every entry of the tab's history knows its place in it: where the tab is, and where the page that is shown was opened.
let place = history.state?.place ?? 0;
let home = place;

history.replaceState({ place }, '');
addEventListener('popstate', () => {
  const known = history.state?.place;
  // An entry that knows nothing is new, or took the place of the one that had the same address.
  place = known ?? (location.hash === shown ? place : place + 1);
  if (known === undefined) history.replaceState({ place }, '');
});
addEventListener('hashchange', () => {
  const key = linkedKey();
  if (key) offer(key);
  else route();
});
addEventListener('beforeunload', (event) => {
  if (page?.unsaved?.()) event.preventDefault();
});
begin(linkedKey());

// A link may carry a key behind `#key=`, a part of the address that never leaves the browser.
function linkedKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get('key');
  if (key) history.replaceState({ place }, '', `${location.pathname}${shown ?? '#/'}`);
  return key;
}

// Whoever made the link may want to see what is done with its key: it takes no other's place unasked.
function offer(key) {
  const stored = sessionStorage.getItem(STORED);
  if (!stored) take(key);
  else if (stored !== key) ask({ title: 'Sign in with another key?', text: 'The link that was opened has a key of its own. With it you leave this account, and what is not saved here is lost.', leave: 'Use the other key' }, () => take(key));
}

function take(key) {
  sessionStorage.setItem(STORED, key);
  history.replaceState({ place }, '', `${location.pathname}#/`);
  return begin();
}

async function begin(linked = null) {
  close();
  shown = null;
  const key = sessionStorage.getItem(STORED) ?? linked;
  if (!key) return signIn();
  sessionStorage.setItem(STORED, key);
  const candidate = new Api(key, () => api === candidate && signOut('This key is not accepted any more.'));
  fill(app, h('div.boot', { role: 'status' }, h('img', { src: '/web/icon.svg', alt: '', width: 44, height: 44 }), h('span.unseen', 'Loading')));
  try {
    candidate.agents = (await candidate.get('/agents?limit=1')).total;
  } catch (error) {
    // A key without `agents:read` is a key all the same.
    if (error.status !== 403) {
      if (error.status === 401) sessionStorage.removeItem(STORED);
      return linked && linked !== key && error.status === 401 ? take(linked) : signIn(error, key);
    }
  }
  api = candidate;
  frame();
  route();
  if (linked) offer(linked);
}

function signIn(error = null, key = '') {
  api = null;
  document.title = 'Sign in · sidetone';
  const input = h('input', { id: 'key', type: 'password', autocomplete: 'off', spellcheck: 'false', placeholder: 'st_live_…', required: true, 'aria-invalid': error ? 'true' : null, 'aria-describedby': 'key-hint problem', value: error?.status === 401 ? '' : key });
  const submit = (event) => {
    event.preventDefault();
    if (!input.value.trim()) return input.focus();
    sessionStorage.setItem(STORED, input.value.trim());
    return begin();
  };
  fill(app,
    h('main.door',
      h('form.card', { onsubmit: submit, novalidate: true },
        h('p.brand', h('img', { src: '/web/icon.svg', alt: '', width: 40, height: 40 }), 'sidetone'),
        h('h1', 'Sign in'),
        h('div.field', h('label', { for: 'key' }, 'API key'), input,
          h('p.wrong', { id: 'problem', role: 'alert', hidden: !error }, error?.message ?? ''),
          h('p.hint', { id: 'key-hint' }, 'The server printed it at its first start; ', h('code', 'sidetone keys create'), ' makes another. It stays in this tab.')),
        h('button.button.main', { type: 'submit' }, 'Sign in')),
      h('p.soft.small', h('a', { href: '/docs' }, 'API documents'))));
  input.focus();
}

function signOut(message) {
  close();
  sessionStorage.removeItem(STORED);
  shown = null;
  history.replaceState({ place }, '', `${location.pathname}#/`);
  signIn(message ? { message, status: 401 } : null);
}

function frame() {
  const link = ([tab, name, sign]) => h('a', { href: `#/${tab}`, data: { tab } }, icon(sign), h('span', name));
  main = h('main', { id: 'main', tabindex: -1 });
  fill(app,
    h('button.skip', { type: 'button', onclick: () => main.querySelector('h1')?.focus() }, 'Skip to the page'),
    h('div.frame',
      h('header.side',
        h('a.brand', { href: '#/' }, h('img', { src: '/web/icon.svg', alt: '', width: 30, height: 30 }), 'sidetone'),
        h('nav.tabs', { 'aria-label': 'Console' }, TABS.map(link)),
        h('div.foot', themeButton(),
          h('a.button.plain', { href: '/docs', 'aria-label': 'API documents', title: 'API documents' }, icon('doc'), h('span', 'API')),
          h('button.button.plain', { type: 'button', id: 'sign-out', 'aria-label': 'Sign out', title: 'Sign out', onclick: () => leaving(() => signOut()) }, icon('out'), h('span', 'Sign out')))),
      main));
}

function themeButton() {
  const button = h('button.button.plain', { type: 'button', id: 'theme' });
  const show = () => {
    const theme = document.documentElement.dataset.theme ?? 'system';
    button.setAttribute('aria-label', `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
    fill(button, icon(theme), h('span', `Theme: ${theme}`));
  };
  button.addEventListener('click', () => {
    const now = document.documentElement.dataset.theme ?? 'system';
    const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    if (next === 'system') {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem('sidetone.theme');
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem('sidetone.theme', next);
    }
    show();
  });
  show();
  return button;
}

// What is unsaved or still on the line is asked about before it goes.
function leaving(go) {
  const reason = page?.unsaved?.();
  if (reason) ask(reason, go);
  else go();
}

// One question at a time: a later one has taken the earlier one's place.
function ask({ title, text, leave }, act) {
  question?.close();
  question = confirm(title, text, leave, async () => act());
}

function route() {
  if (!api) return;
  const target = location.hash;
  if (target === shown) return;
  const reason = page?.unsaved?.();
  if (!reason) {
    show(target);
    return;
  }
  // The tab goes back to where the page is, and forth once somebody has said so: no entry is lost.
  const steps = place - home;
  history.go(-steps);
  ask(reason, () => {
    page.unsaved = null;
    history.go(steps);
  });
}

// What belongs to a page goes with it.
function close() {
  page?.close?.();
  page = null;
  for (const box of document.querySelectorAll('dialog[open]')) box.close();
}

// The address of the page that is shown is another one now, as when it is filtered.
function rename(hash) {
  history.replaceState({ place }, '', hash);
  shown = hash;
  home = place;
  main.dataset.page = hash;
}

async function show(target) {
  const first = shown === null;
  shown = target;
  home = place;
  round += 1;
  const own = round;
  close();
  delete main.dataset.page;
  const [path, search = ''] = target.replace(/^#\/?/, '').split('?');
  const found = PAGES.find(({ pattern }) => pattern.test(path));
  for (const link of app.querySelectorAll('.tabs a')) {
    if (link.dataset.tab === found?.tab) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const name = (text) => {
    if (own === round) document.title = `${text} · sidetone`;
  };
  if (!found) {
    name('Not found');
    main.dataset.page = target;
    fill(main, h('div.stack', head('There is no such page', { lead: 'It may have been deleted, or the address is not whole.' }), h('p', h('a.button', { href: '#/' }, 'To the overview'))));
    if (!first) main.querySelector('h1').focus();
    return;
  }
  name(found.name);
  try {
    const module = await found.load();
    if (own !== round) return;
    const [id] = found.pattern.exec(path).slice(1);
    const made = module.page({ api, id, params: new URLSearchParams(search), name, go: (hash) => { location.hash = hash; }, rename });
    page = made;
    fill(main, made.node);
    main.dataset.page = target;
    scrollTo(0, 0);
    // Whoever uses a keyboard or a screen reader goes on at the head of the new page.
    if (!first) (main.querySelector('h1') ?? main).focus({ preventScroll: true });
  } catch (error) {
    fill(main, failure(error, () => location.reload()));
  }
}
