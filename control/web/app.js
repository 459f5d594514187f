// The page: key, agent, one call at a time. Speech is in call.js, the list of turns in transcript.js.

import { Api } from './api.js';
import { Call } from './call.js';
import { Transcript } from './transcript.js';

const $ = (id) => document.getElementById(id);
const transcript = new Transcript($('log'), $('empty'));
const STORED = 'sidetone.key';

let api = null;
let call = null;
let began = 0;
let answers = [];

$('setup').addEventListener('submit', (event) => {
  event.preventDefault();
  useKey($('key').value.trim());
});
$('forget').addEventListener('click', () => {
  sessionStorage.removeItem(STORED);
  location.reload();
});
$('call').addEventListener('click', () => (call ? call.hangUp() : startCall()));
$('type').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text || !call) return;
  call.type(text);
  $('text').value = '';
});
setInterval(() => {
  if (call && began) $('clock').textContent = clock(Date.now() - began);
}, 500);

// A link may carry the key behind `#key=`, a part of the address that never leaves the browser; it may
// also be opened in a tab that shows the page already.
window.addEventListener('hashchange', takeKey);
takeKey();

function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get('key');
  if (given) history.replaceState(null, '', location.pathname);
  const known = given ?? sessionStorage.getItem(STORED);
  if (known && !call) useKey(known);
}

async function useKey(key) {
  problem(null);
  const candidate = new Api(key);
  let agents;
  try {
    agents = await candidate.agents();
  } catch (error) {
    sessionStorage.removeItem(STORED);
    problem(error.message);
    return;
  }
  api = candidate;
  sessionStorage.setItem(STORED, key);
  $('key').value = key;
  $('forget').hidden = false;
  const choices = agents.map(({ id, name }) => new Option(name, id));
  $('agent').replaceChildren(...(choices.length ? choices : [new Option('There is no agent yet', '')]));
  $('agent').disabled = choices.length === 0;
  $('call').disabled = choices.length === 0;
}

async function startCall() {
  problem(null);
  transcript.clear();
  answers = [];
  facts();
  lock(true);
  state('connecting', 'Connecting…');
  call = new Call(api, $('agent').value, view);
  try {
    await call.start();
    began = Date.now();
    state('live', 'On the line');
    $('text').disabled = false;
    $('type').querySelector('button').disabled = false;
  } catch (error) {
    problem(error.message);
    call?.finish(error.message);
  }
}

const view = {
  said(who, id, text, isFinal) {
    transcript.said(who, id, text, isFinal);
    facts();
  },
  interrupted: (id, spoken, ms) => transcript.interrupted(id, spoken, ms),
  answered(id, latency) {
    transcript.answered(id, latency);
    if (Number.isFinite(latency.response_ms)) answers.push(latency.response_ms);
    facts();
  },
  note: (text) => transcript.note(text),
  level(who, rms) {
    // 0 at −50 dBFS, 1 at 0 dBFS: a meter that moves with speech.
    meter(who, rms > 0 ? Math.max(0, 1 + (20 * Math.log10(rms)) / 50) : 0);
  },
  over(reason, trouble) {
    if (trouble) problem(trouble);
    if (began) transcript.note(reason ? `The call ended: ${reason.replaceAll('_', ' ')}.` : 'The call ended.');
    state(trouble ? 'failed' : 'idle', trouble ? 'Ended' : 'Ready');
    call = null;
    began = 0;
    meter('you', 0);
    meter('them', 0);
    lock(false);
  },
};

function lock(on) {
  document.body.dataset.call = on ? 'on' : 'off';
  $('call').dataset.on = String(on);
  $('call-label').textContent = on ? 'Hang up' : 'Start the call';
  $('agent').disabled = on;
  $('key').disabled = on;
  if (!on) {
    $('text').disabled = true;
    $('type').querySelector('button').disabled = true;
  }
}

function meter(who, level) {
  $(who).style.setProperty('--level', level.toFixed(2));
  $(who).setAttribute('aria-valuenow', level.toFixed(1));
}

function facts() {
  $('turns').textContent = String(transcript.count);
  const sorted = [...answers].sort((a, b) => a - b);
  $('median').textContent = sorted.length ? `${sorted[Math.floor((sorted.length - 1) / 2)]} ms` : '–';
}

function state(name, words) {
  $('state').dataset.state = name;
  $('state').textContent = words;
}

function problem(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text ?? '';
}

function clock(ms) {
  const whole = Math.floor(ms / 1000);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}
