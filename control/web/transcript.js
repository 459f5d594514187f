// The list of turns: a bubble each, in the order in which they began.

const OWNERS = {
  engine: 'engine', setting: 'waiting for the end of the turn', stt: 'recogniser', llm: 'model',
  tool: 'tool', tts: 'voice', transport: 'network',
};

export class Transcript {
  constructor(list, empty) {
    this.list = list;
    this.empty = empty;
    this.clear();
  }

  clear() {
    this.turns = new Map();
    this.list.replaceChildren(this.empty);
    this.empty.hidden = false;
  }

  get count() {
    return this.turns.size;
  }

  /// Shows what was said in a turn so far; a later text replaces an earlier one.
  said(who, id, text, isFinal) {
    const turn = this.turn(who, id);
    turn.text.textContent = text;
    turn.full = text;
    turn.item.classList.toggle('open', !isFinal);
    this.scroll();
  }

  /// The agent was cut short: what was not spoken is struck through.
  interrupted(id, spoken, spokenMs) {
    const turn = this.turns.get(id);
    if (!turn) return;
    const said = spoken ?? '';
    const full = turn.full ?? '';
    const rest = full.startsWith(said) ? full.slice(said.length) : '';
    const unsaid = document.createElement('span');
    unsaid.className = 'unsaid';
    unsaid.textContent = rest;
    turn.text.replaceChildren(said, unsaid);
    turn.item.classList.remove('open');
    if (spokenMs !== undefined && spokenMs !== null) turn.aside(`interrupted after ${seconds(spokenMs)}`);
    this.scroll();
  }

  /// The time that an answer took, and what it was made of.
  answered(id, latency) {
    const turn = this.turn('agent', id);
    turn.ms.textContent = `${latency.response_ms} ms`;
    const parts = (latency.contributions ?? []).filter((part) => part.duration_ms > 0);
    if (parts.length === 0 || turn.item.querySelector('.bar')) return;
    const bar = element('div', 'bar');
    bar.setAttribute('aria-hidden', 'true');
    const details = element('details', 'parts');
    details.append(element('summary', '', 'Where the time went'), element('ul'));
    for (const part of parts) {
      const piece = element('i');
      piece.dataset.owner = part.owner;
      piece.style.flexGrow = String(part.duration_ms);
      bar.append(piece);
      const line = element('li', '', `${part.key.replaceAll('_', ' ')}: ${part.duration_ms} ms (${OWNERS[part.owner] ?? part.owner})`);
      line.dataset.owner = part.owner;
      details.lastChild.append(line);
    }
    turn.item.append(bar, details);
    this.scroll();
  }

  note(text) {
    this.empty.hidden = true;
    this.list.append(element('li', 'note', text));
    this.scroll();
  }

  turn(who, id) {
    const known = this.turns.get(id);
    if (known) return known;
    this.empty.hidden = true;
    const item = element('li', `turn ${who}`);
    const head = element('p', 'who', who === 'user' ? 'You' : 'Agent');
    const ms = element('span', 'ms');
    head.append(ms);
    const text = element('p', 'text');
    item.append(head, text);
    this.list.append(item);
    const turn = { item, text, ms, aside: (words) => head.append(element('span', '', words)) };
    this.turns.set(id, turn);
    return turn;
  }

  scroll() {
    this.list.scrollTop = this.list.scrollHeight;
  }
}

function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

function element(name, className = '', text = '') {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
