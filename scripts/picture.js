// What scripts/picture.sh needs besides a shell:
//   join OUT (WAV SECONDS)…   one WAV file of several, each followed by so much silence
//   take URL FILE             a picture of the console's page of the newest call
// Chromium is driven over the pipe of its DevTools protocol: messages of JSON with a zero byte behind each.

const { spawn } = require('node:child_process');
const { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join, delimiter } = require('node:path');

// The window, and how wide the picture is: what stands beside the menu, down to the last word of the call.
const WINDOW = { width: 1280, height: 1600 };
const WIDTH = 860;
const PATIENCE_MS = 30_000;

// flite writes a header of 44 bytes and 16-bit samples behind it.
function joinSounds(out, ...parts) {
  const rate = readFileSync(parts[0]).readUInt32LE(24);
  const pieces = [];
  for (let i = 0; i < parts.length; i += 2) {
    pieces.push(readFileSync(parts[i]).subarray(44), Buffer.alloc(2 * Math.round(rate * Number(parts[i + 1]))));
  }
  const sound = Buffer.concat(pieces);
  const head = Buffer.from(readFileSync(parts[0]).subarray(0, 44));
  head.writeUInt32LE(36 + sound.length, 4);
  head.writeUInt32LE(sound.length, 40);
  writeFileSync(out, Buffer.concat([head, sound]));
}

async function take(url, file) {
  const key = process.env.SIDETONE_API_KEY;
  const call = await finished(url, key);
  const profile = mkdtempSync(join(tmpdir(), 'picture-'));
  const browser = new Chromium(profile);
  try {
    await browser.open();
    await browser.call('Emulation.setDeviceMetricsOverride', { ...WINDOW, deviceScaleFactor: 1, mobile: false });
    await browser.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: 'light' }] });
    await browser.call('Page.navigate', { url: `${url}/#key=${key}` });
    await browser.until("document.querySelector('.frame h1')");
    await browser.eval(`location.hash = '#/calls/${call.id}'`);
    await browser.until("document.querySelector('[data-drawn]') && document.querySelector('.turns li')");
    await browser.eval('document.fonts.ready.then(() => true)');
    const x = await browser.eval("document.querySelector('#main').getBoundingClientRect().left");
    const height = await browser.eval("document.querySelector('.turns').getBoundingClientRect().bottom + 20");
    const width = WINDOW.width - x;
    const clip = { x, y: 0, width, height, scale: WIDTH / width };
    const { data } = await browser.call('Page.captureScreenshot', { format: 'png', clip });
    writeFileSync(file, Buffer.from(data, 'base64'));
  } finally {
    await browser.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

// The newest call, once it has ended and can be heard.
async function finished(url, key) {
  const until = Date.now() + PATIENCE_MS;
  while (Date.now() < until) {
    const answer = await fetch(`${url}/api/v1/calls?limit=1`, { headers: { 'X-API-Key': key } });
    const [call] = (await answer.json()).items ?? [];
    if (call?.ended_at && call.has_recording) return call;
    await pause(200);
  }
  throw new Error('The call has no recording.');
}

class Chromium {
  constructor(profile) {
    const arguments_ = ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--hide-scrollbars', '--disable-dev-shm-usage',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank'];
    this.process = spawn(program(), arguments_, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.gone = new Promise((resolve) => this.process.on('exit', resolve));
    this.asked = new Map();
    this.last = 0;
    let read = '';
    this.process.stdio[4].setEncoding('utf8').on('data', (text) => {
      const messages = (read + text).split('\0');
      read = messages.pop();
      for (const { id, result, error } of messages.map((message) => JSON.parse(message))) {
        const asked = this.asked.get(id);
        this.asked.delete(id);
        if (error) asked?.reject(new Error(error.message));
        else asked?.resolve(result);
      }
    });
  }

  async open() {
    const { targetId } = await this.call('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.call('Target.attachToTarget', { targetId, flatten: true });
    this.sessionId = sessionId;
    await this.call('Page.enable');
  }

  call(method, params = {}) {
    const id = (this.last += 1);
    const late = pause(PATIENCE_MS).then(() => { throw new Error(`Chromium does not answer ${method}.`); });
    const answer = new Promise((resolve, reject) => this.asked.set(id, { resolve, reject }));
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId: this.sessionId })}\0`);
    return Promise.race([answer, late]);
  }

  async eval(expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`);
    return result.value;
  }

  async until(expression) {
    const end = Date.now() + PATIENCE_MS;
    while (!(await this.eval(`Boolean(${expression})`))) {
      if (Date.now() > end) throw new Error(`${expression} did not come true: ${await this.eval('document.body.innerText')}`);
      await pause(50);
    }
  }

  // Chromium's other processes still write into its profile when the first one is killed: it ends them itself.
  async close() {
    this.sessionId = undefined;
    this.process.stdio[3].write(`${JSON.stringify({ id: (this.last += 1), method: 'Browser.close' })}\0`);
    await Promise.race([this.gone, pause(5000)]);
    this.process.kill();
    await this.gone;
  }
}

function program() {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
      if (existsSync(join(folder, name))) return join(folder, name);
    }
  }
  throw new Error('Chromium is missing: bash scripts/setup.sh test installs it.');
}

// Does not keep the process alive by itself, so that a patience that is not needed any more ends with it.
function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    if (ms >= PATIENCE_MS) timer.unref();
  });
}

const [what, ...rest] = process.argv.slice(2);
const jobs = { join: joinSounds, take };
Promise.resolve(jobs[what](...rest)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
