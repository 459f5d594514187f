// The REST calls that the page needs. Every failure becomes an Error with a sentence to show.

export class Api {
  constructor(key) {
    this.key = key;
  }

  async agents() {
    const { items } = await this.request('GET', '/agents?limit=100');
    return items;
  }

  connect(agentId) {
    return this.request('POST', '/conversation/connect', {
      agent_id: agentId,
      transport: 'websocket',
      protocol: 'native',
      audio_format: 'pcm_16000',
    });
  }

  async request(method, path, body) {
    let response;
    try {
      response = await fetch(`/api/v1${path}`, {
        method,
        headers: {
          'X-API-Key': this.key,
          ...(body ? { 'Content-Type': 'application/json' } : {}),
        },
        body: body && JSON.stringify(body),
      });
    } catch {
      throw new Error('The server does not answer. Is it still running?');
    }
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    throw new Error(explain(response, answer));
  }
}

function explain(response, answer) {
  if (response.status === 401) return 'This key is not accepted.';
  const wait = response.headers.get('Retry-After');
  const fields = (answer.fields ?? []).map((f) => `${f.loc.slice(1).join('.')}: ${f.msg}`).join('; ');
  return [answer.error ?? `The server answered ${response.status}.`, fields, wait && `Try again in ${wait} s.`]
    .filter(Boolean)
    .join(' ');
}
