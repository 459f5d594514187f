// The REST API. Every failure becomes an ApiError with a sentence to show, and the fields that are wrong.

export class ApiError extends Error {
  constructor(message, { status = 0, code = 'network', fields = [], detail = null, requestId = null } = {}) {
    super(message);
    Object.assign(this, { status, code, fields, detail, requestId });
  }
}

export class Api {
  constructor(key, onRefused = () => {}) {
    this.key = key;
    this.onRefused = onRefused;
    // How many agents there were when it was asked last: a page leaves room for those that come.
    this.agents = 1;
  }

  get = (path, options) => this.request('GET', path, undefined, options);
  post = (path, body, options) => this.request('POST', path, body, options);
  patch = (path, body, options) => this.request('PATCH', path, body, options);
  delete = (path, options) => this.request('DELETE', path, undefined, options);

  async request(method, path, body, { signal } = {}) {
    let response;
    try {
      response = await fetch(`/api/v1${path}`, {
        method,
        signal,
        headers: { 'X-API-Key': this.key, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError('The server does not answer. Is it still running?');
    }
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    if (response.status === 401) this.onRefused();
    throw new ApiError(explain(response, answer), {
      status: response.status,
      code: answer.code ?? 'error',
      fields: Array.isArray(answer.fields) ? answer.fields : [],
      detail: answer.detail ?? null,
      requestId: answer.request_id ?? null,
    });
  }
}

function explain(response, answer) {
  if (response.status === 401) return 'This key is not accepted.';
  if (response.status === 403 && typeof answer.detail === 'string') return `${answer.detail}.`;
  const wait = response.headers.get('Retry-After');
  return [answer.error ?? `The server answered ${response.status}.`, wait && `Try again in ${wait} s.`].filter(Boolean).join(' ');
}

/** The server names its public address; a page reaches files under the address that it was loaded from. */
export function ownAddress(url) {
  const given = new URL(url, location.href);
  return given.pathname + given.search;
}

/** A query string of those values that are set. */
export function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return set.length > 0 ? `?${new URLSearchParams(set)}` : '';
}

/** Every item of a list, page by page. `path` names how long a page is. */
export async function all(ask, path) {
  const items = [];
  for (;;) {
    const page = await ask(`${path}&offset=${items.length}`);
    items.push(...page.items);
    if (!page.has_more) return items;
  }
}

/** The server's own figures (`/metrics`, Prometheus text): `value('name', {label: 'x'})`, null when absent. */
export async function metrics(signal) {
  const response = await fetch('/metrics', { signal });
  if (!response.ok) throw new ApiError(`/metrics answered ${response.status}.`, { status: response.status });
  const lines = (await response.text()).split('\n').filter((line) => line && !line.startsWith('#'));
  const series = lines.map((line) => {
    const [, name, labels, value] = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    const pairs = [...(labels ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
    return { name, labels: Object.fromEntries(pairs), value: Number(value) };
  });
  return {
    value(name, labels = {}) {
      const fits = (one) => one.name === name && Object.entries(labels).every(([key, text]) => one.labels[key] === text);
      return series.find(fits)?.value ?? null;
    },
  };
}
