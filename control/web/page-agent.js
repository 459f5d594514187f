// One agent: make it, or change it. Only what was changed is sent; what the server refuses is told beside it.

import { GROUPS } from './agent-fields.js';
import { control } from './agent-controls.js';
import { fill, h } from './dom.js';
import { placeErrors } from './form.js';
import { badge, failure, ghosts, head, load, toast } from './parts.js';

export function page({ api, id, name, go }) {
  const leaving = new AbortController();
  const isNew = id === 'new';
  const place = h('div.stack.gap');
  const own = {
    node: place,
    unsaved: null,
    close: () => leaving.abort(),
  };
  load(place, async () => {
    const ask = (path) => api.get(path, { signal: leaving.signal });
    // A key that may not read voices or models can change the rest.
    const items = (path) => ask(path).then((found) => found.items, (error) => { if (error.status === 403) return []; throw error; });
    const [agent, voices, models] = await Promise.all([isNew ? null : ask(`/agents/${id}`), items('/voices?limit=500'), items('/models')]);
    name(agent?.name ?? 'New agent');
    return new Form(agent, { voices, models }, { api, go, own }).nodes();
  }, { shape: [h('div.ghost', { style: { height: '3.4rem', width: '16rem' } }), ghosts(3, '16rem')] });
  return own;
}

class Form {
  constructor(agent, world, tools) {
    Object.assign(this, tools);
    this.agent = agent;
    this.groups = GROUPS.map((group) => ({ ...group, controls: group.fields.map((setting) => control(setting, world)) }));
    this.controls = this.groups.flatMap((group) => group.controls);
    this.reset();
  }

  nodes() {
    const { agent } = this;
    this.problem = h('div', { role: 'alert' });
    this.count = h('p.soft', { role: 'status' });
    this.undo = h('button.button', { type: 'button', onclick: () => { this.reset(); this.changed(); } }, 'Discard');
    this.save = h('button.button.main', { type: 'submit', id: 'save' }, agent ? 'Save' : 'Make the agent');
    const sections = this.groups.map((group) => h('section.card', { id: `group-${group.id}`, 'aria-labelledby': `title-${group.id}` },
      h('header', h('div', h('h2', { id: `title-${group.id}` }, group.title), group.lead && h('p', group.lead))),
      h('div.fields', group.controls.map((one) => one.node))));
    this.form = h('form.editor', { id: 'agent', novalidate: true, onsubmit: (event) => this.submit(event), oninput: () => this.changed() },
      this.problem, sections,
      h('div.bar', this.count, h('div.row.tight.push', agent && this.undo, this.save)));
    const go = (group) => (event) => {
      event.preventDefault();
      document.getElementById(`group-${group.id}`).scrollIntoView({ behavior: 'smooth' });
      document.getElementById(`group-${group.id}`).querySelector('input, select, textarea, button')?.focus({ preventScroll: true });
    };
    const index = h('nav.index', { 'aria-label': 'Settings' },
      this.groups.map((group) => h('a', { href: `#group-${group.id}`, onclick: go(group) }, group.title)));
    this.changed();
    return [
      head(agent ? agent.name : 'New agent', {
        back: { href: '#/agents', text: 'Agents' },
        lead: agent ? h('span.row.tight', badge(agent.status), h('code.small.break', agent.id)) : 'A name, a voice and a prompt are enough; all else has a default.',
        actions: agent ? [h('a.button.main', { href: `#/talk/${agent.id}` }, 'Talk to it')] : [],
      }),
      agent?.unfilled_variables?.length > 0 && h('div.notice.warn', h('div', 'The prompt names what nothing fills: ', agent.unfilled_variables.map((one) => h('code', ` {{${one}}}`)), '. Give it a value under Variables, or with each call.')),
      h('div.sides', index, this.form),
    ];
  }

  reset() {
    for (const one of this.controls) one.write(this.agent ? this.agent[one.name] : one.unset);
    // As the controls show it, so that only a person's change counts.
    this.before = new Map(this.controls.map((one) => [one.name, JSON.stringify(one.read())]));
    if (this.form) {
      placeErrors(this.form, []);
      fill(this.problem);
    }
  }

  // What differs from what was loaded; what cannot be read becomes an error as the server's.
  changes() {
    const body = {};
    const errors = [];
    for (const one of this.controls) {
      try {
        const value = one.read();
        if (JSON.stringify(value) !== this.before.get(one.name)) body[one.name] = value;
      } catch (error) {
        errors.push({ loc: ['body', one.name], msg: error.message });
      }
    }
    return { body, errors };
  }

  changed() {
    const { body, errors } = this.changes();
    const number = Object.keys(body).length + errors.length;
    this.count.textContent = number === 0 ? (this.agent ? 'All is saved' : 'Nothing is filled in yet') : number === 1 ? '1 change' : `${number} changes`;
    this.undo.disabled = number === 0;
    this.save.disabled = this.agent !== null && number === 0;
    this.own.unsaved = number === 0 ? null : () => ({ title: 'Leave without saving?', text: 'What you changed here is not saved yet.', leave: 'Leave' });
  }

  async submit(event) {
    event.preventDefault();
    const { body, errors } = this.changes();
    fill(this.problem);
    if (errors.length > 0) {
      placeErrors(this.form, errors);
      return;
    }
    this.save.disabled = true;
    try {
      const saved = this.agent ? await this.api.patch(`/agents/${this.agent.id}`, body) : await this.api.post('/agents', body);
      toast(this.agent ? 'Saved' : `“${saved.name}” is ready to talk`);
      this.own.unsaved = null;
      if (!this.agent) {
        this.go(`#/agents/${saved.id}`);
        return;
      }
      this.agent = saved;
      this.reset();
    } catch (error) {
      this.save.disabled = false;
      const strays = placeErrors(this.form, error.fields);
      const told = error.fields.length === 0 ? error : { message: [`Some settings are not right; see below.`, ...strays].join(' ') };
      fill(this.problem, failure(told));
      if (error.fields.length === 0) this.problem.scrollIntoView({ block: 'center', behavior: 'smooth' });
      return;
    }
    this.changed();
  }
}
