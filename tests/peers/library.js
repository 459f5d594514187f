// A call of sidetone.js over WebRTC, with the server's part played by a peer in the same page: what it was
// asked for is told to the test.
async () => {
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const until = async (what, holds) => {
    for (let tries = 0; tries < 400; tries += 1) {
      if (holds()) return;
      await wait(25);
    }
    throw new Error(`${what} did not come true`);
  };
  const context = new AudioContext();
  const voice = context.createMediaStreamDestination();
  const tone = new OscillatorNode(context, { frequency: 440 });
  tone.connect(voice);
  tone.start();

  // What reaches the far side of the caller's microphone.
  const far = new AnalyserNode(context, { fftSize: 2048 });
  const sink = new Audio();
  const hear = (track) => {
    const stream = new MediaStream([track]);
    // Without an element that plays it the browser decodes nothing.
    sink.muted = true;
    sink.srcObject = stream;
    context.createMediaStreamSource(stream).connect(far);
  };
  const loudest = async (ms) => {
    const samples = new Float32Array(far.fftSize);
    let most = 0;
    for (const end = performance.now() + ms; performance.now() < end; await wait(20)) {
      far.getFloatTimeDomainData(samples);
      most = samples.reduce((so, sample) => Math.max(so, Math.abs(sample)), most);
    }
    return most;
  };

  const told = { asked: [], credentials: new Set(), got: [], events: [], fragments: [], candidates: 0 };
  let peer = null;
  let channel = null;
  const say = (event) => channel.send(JSON.stringify({ event_id: 1, ts_ms: 1, ...event }));
  const fragment = () => /ice-ufrag:(\S+)/.exec(peer.remoteDescription.sdp)[1];
  const answers = {
    async connect() {
      return { session_id: 'a', transport: 'webrtc', ice_config: { iceServers: [] }, token: 'for-this-session' };
    },
    async offer({ sdp, type, pc_id: pcId }) {
      if (!peer) {
        peer = new RTCPeerConnection();
        peer.ontrack = ({ track }) => hear(track);
        peer.addTrack(voice.stream.getAudioTracks()[0], voice.stream);
        peer.ondatachannel = (event) => {
          channel = event.channel;
          channel.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            told.got.push(message);
            if (message.type === 'end') say({ type: 'call_ended', reason: 'caller_hangup', status: 'completed', duration_seconds: 1 });
          };
        };
        peer.onicecandidate = () => {};
      } else if (pcId !== 'p') {
        throw new Error('a later offer must name the peer connection');
      }
      await peer.setRemoteDescription({ type, sdp });
      told.fragments.push(fragment());
      await peer.setLocalDescription(await peer.createAnswer());
      if (peer.iceGatheringState !== 'complete') {
        await new Promise((resolve) => {
          peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && resolve();
        });
      }
      return { sdp: peer.localDescription.sdp, type: 'answer', pc_id: 'p', session_id: 'a' };
    },
    async ice({ pc_id: pcId, candidates }) {
      if (pcId !== 'p') throw new Error('candidates must name the peer connection');
      told.candidates += candidates.length;
      for (const { candidate, sdp_mid: sdpMid, sdp_mline_index: sdpMLineIndex } of candidates) {
        if (candidate) await peer.addIceCandidate({ candidate, sdpMid, sdpMLineIndex });
      }
      return { status: 'ok', accepted: candidates.length };
    },
  };
  answers.end = async () => ({});
  window.fetch = async (address, { method, headers, body, signal }) => {
    const url = new URL(address);
    const route = url.pathname.split('/').pop();
    if (route !== 'ice') told.asked.push(`${method} ${route}${url.search}`);
    told.credentials.add(headers.Authorization ?? 'none');
    const answer = await answers[route](JSON.parse(body), signal);
    return answer instanceof Response ? answer : new Response(JSON.stringify(answer), { status: 200 });
  };

  const { startCall } = await import('/web/sidetone.js');
  const call = await startCall({
    agentId: 'b',
    transport: 'webrtc',
    events: ['vad'],
    tools: { add: ({ a, b }) => a + b, fail() { throw new Error('no'); }, huge: () => 'ü'.repeat(40_000) },
    on: {
      state: ({ state }) => told.events.push(state),
      vad: ({ speaking }) => told.events.push(`vad ${speaking}`),
      ended: ({ reason, error }) => told.events.push(`ended ${reason} ${error}`),
    },
  });
  await until('the channel opens', () => channel?.readyState === 'open');
  await until('the agent is heard', () => call.outputLevel > 0.3 && call.agentState === 'speaking');
  await until('the microphone is heard', () => call.inputLevel > 0.01);
  const heard = await loudest(2000);
  call.mute();
  await until('the microphone is muted', () => call.inputLevel === 0);
  // What was under way has been heard by then.
  await wait(500);
  const muted = await loudest(2000);
  call.unmute();
  let again = 0;
  for (let tries = 0; tries < 10 && again < 0.05; tries += 1) again = await loudest(1000);
  told.levels = [heard, muted, again];
  say({ type: 'vad', speaking: true, at_ms: 1 });
  say({ type: 'ping', event_id: 7 });
  say({ type: 'tool_call', tool_call_id: 't', name: 'add', arguments: { a: 1, b: 2 }, turn_id: 'u' });
  say({ type: 'tool_call', tool_call_id: 'x', name: 'fail', arguments: {}, turn_id: 'u' });
  call.sendDigits('1#');
  call.sendText('hello');
  call.sendContext('at the till');
  await until('all is said', () => told.got.length === 6);

  // The way back from a lost network: the same call on a new path.
  dispatchEvent(new Event('online'));
  await until('the path is made anew', () => told.fragments.length === 2 && peer.connectionState === 'connected');
  await until('the agent is heard again', () => call.outputLevel > 0.3);
  const { rttMs, lossPct } = await call.stats();
  told.measured = [rttMs, lossPct].every(Number.isFinite);
  // A result that a frame does not hold is refused here, whatever its length in characters.
  say({ type: 'tool_call', tool_call_id: 'h', name: 'huge', arguments: {}, turn_id: 'u' });
  await until('the result is refused', () => told.got.length === 7);
  // An error after which the call goes on is none of its end.
  say({ type: 'error', code: 'invalid_frame', message: 'old', request_id: null });
  await call.end();
  const restarted = told.fragments[0] !== told.fragments[1];
  const first = structuredClone({ ...told, credentials: [...told.credentials], restarted, state: call.state });

  // A browser that lets nothing sound before a gesture: the call begins, and says so.
  const real = Object.getOwnPropertyDescriptor(BaseAudioContext.prototype, 'state');
  const { resume } = AudioContext.prototype;
  let gestures = 0;
  let refuses = true;
  AudioContext.prototype.resume = function again() {
    gestures += refuses ? 0 : 1;
    return refuses ? new Promise(() => {}) : resume.call(this);
  };
  Object.defineProperty(BaseAudioContext.prototype, 'state', {
    configurable: true,
    get() { return refuses ? 'suspended' : real.get.call(this); },
  });
  const another = (warnings, ends, more = {}) => {
    peer.onicegatheringstatechange = null;
    peer.close();
    peer = null;
    told.fragments = [];
    return startCall({
      agentId: 'b',
      transport: 'webrtc',
      on: {
        warning: ({ message }) => warnings.push(message),
        ended: ({ reason, error }) => ends.push(`${reason} ${error?.code ?? null}`),
      },
      ...more,
    });
  };
  const [warnings, ends] = [[], []];
  const failing = await another(warnings, ends);
  refuses = false;
  dispatchEvent(new KeyboardEvent('keydown'));
  AudioContext.prototype.resume = resume;
  Object.defineProperty(BaseAudioContext.prototype, 'state', real);
  // What broke it is its error.
  await until('the channel opens', () => channel?.readyState === 'open');
  say({ type: 'call_ended', reason: 'provider_error', status: 'failed', duration_seconds: 1 });
  await until('the call fails', () => failing.state === 'ended');

  // A page that is left has no call, even if it comes back.
  const left = await another(warnings, ends);
  dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));

  // Who hangs up where no way to the call is left, and no server answers, has hung up.
  const lonely = await another(warnings, ends);
  await until('the channel opens', () => channel?.readyState === 'open');
  channel.close();
  await until('the channel is closed', () => channel.readyState === 'closed');
  answers.end = async () => { throw new TypeError('no network'); };
  await lonely.end();
  answers.end = async () => ({});

  // While the network is away no offer is answered: the next one comes by itself, and at once when the network is back.
  // Who hangs up meanwhile has hung up, over the channel as ever.
  const plain = window.RTCPeerConnection;
  let calling = null;
  window.RTCPeerConnection = class extends plain {
    constructor(...given) {
      super(...given);
      calling ??= this;
    }
  };
  const away = await another(warnings, ends);
  window.RTCPeerConnection = plain;
  await until('the channel opens', () => channel?.readyState === 'open');
  const become = (state) => {
    delete calling.connectionState;
    if (state) Object.defineProperty(calling, 'connectionState', { configurable: true, get: () => state });
    // Firefox gives an event that a page made to no handler of this interface.
    calling.onconnectionstatechange?.(new Event('connectionstatechange'));
  };
  const { offer } = answers;
  let unanswered = 0;
  answers.offer = (_body, signal) => new Promise((_resolve, reject) => {
    unanswered += 1;
    if (signal) signal.onabort = () => reject(signal.reason);
  });
  become('failed');
  await until('an offer is made again', () => unanswered === 2);
  answers.offer = offer;
  const back = performance.now();
  dispatchEvent(new Event('online'));
  await until('the offer is answered', () => told.fragments.length === 2);
  const soon = performance.now() - back < 3000;
  become(null);
  await until('the call is live again', () => away.state === 'live');
  become('disconnected');
  const reconnecting = away.state;
  const asked = told.asked.length;
  await away.end();
  const lost = { soon, reconnecting, asked: told.asked.slice(asked) };

  // A call whose path holds goes on where a new one is refused.
  const [refusals, healthyEnds] = [[], []];
  const healthy = await another(refusals, healthyEnds);
  await until('the channel opens', () => channel?.readyState === 'open');
  answers.offer = async () => new Response(JSON.stringify({ error: 'The token has expired', code: 'unauthorized' }), { status: 401 });
  dispatchEvent(new Event('online'));
  await until('the refusal is told', () => refusals.length > 0);
  answers.offer = offer;
  dispatchEvent(new Event('online'));
  await until('the path is made anew', () => told.fragments.length === 2);
  const goesOn = { refusals, state: healthy.state };
  await healthy.end();
  goesOn.ends = healthyEnds;

  // A page's own microphone is touched by the call's mute alone, and is then as the page had it.
  const own = new MediaStream(voice.stream.getAudioTracks().map((track) => track.clone()));
  const [lent] = own.getAudioTracks();
  lent.enabled = false;
  const borrowing = await another([], [], { microphone: own });
  const enabled = [lent.enabled];
  borrowing.mute();
  borrowing.unmute();
  enabled.push(lent.enabled);
  lent.enabled = true;
  borrowing.mute();
  enabled.push(lent.enabled);
  await borrowing.end();
  enabled.push(lent.enabled, lent.readyState);
  borrowing.mute();
  enabled.push(lent.enabled);

  // Who has no microphone only listens, and says so.
  const listening = await another([], [], { microphone: false });
  await until('the agent is heard by who listens', () => listening.outputLevel > 0.3);
  const listens = /m=audio[^]*?a=(sendrecv|sendonly|recvonly|inactive)/.exec(peer.remoteDescription.sdp)[1];
  await listening.end();

  // A microphone from which nothing flows yet: either the browser sends its silence, or a message shows that somebody
  // is there.
  const suspended = new AudioContext();
  await suspended.suspend();
  told.got.length = 0;
  const still = await another([], [], { microphone: suspended.createMediaStreamDestination().stream });
  const life = async () => {
    const reports = [...(await peer.getStats()).values()];
    return reports.some(({ type, packetsReceived }) => type === 'inbound-rtp' && packetsReceived > 0) ? 'sound'
      : told.got.find(({ type }) => type === 'pong')?.type ?? null;
  };
  let alive = null;
  for (let tries = 0; tries < 400 && !alive; tries += 1) {
    alive = await life();
    await wait(25);
  }
  await still.end();
  await suspended.close();

  // What a browser throws is told as an error of the library: here of a stream without sound.
  const thrown = await another([], [], { microphone: new MediaStream() }).catch((error) => [error.name, error.code, error.cause?.name]);

  // Over a socket whose other end is gone, too: a browser would take long to close it.
  const { WebSocket: Socket } = window;
  const agentStates = [];
  let tell = null;
  window.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    bufferedAmount = 0;
    constructor() {
      tell = (event) => this.onmessage({ data: JSON.stringify(event) });
      setTimeout(() => tell({ type: 'session_started' }));
    }
    send() {}
    close() {}
  };
  const { connect } = answers;
  answers.connect = async () => ({ session_id: 'a', ws_url: 'ws://localhost/a' });
  const socket = await startCall({
    agentId: 'b',
    transport: 'websocket',
    apiKey: 'k',
    on: {
      agent_state: ({ state }) => agentStates.push(state),
      ended: ({ reason, error }) => ends.push(`${reason} ${error?.code ?? null}`),
    },
  });
  // What an outage held up comes after its answer was heard: the agent thinks no more.
  tell({ type: 'user_transcript', text: 'hello', is_final: true });
  tell({ type: 'agent_response', text: 'hello', is_final: true });
  await until('the agent listens', () => agentStates.at(-1) === 'listening');
  await socket.end();
  answers.connect = connect;
  window.WebSocket = Socket;

  // Whoever hangs up while the call is being made has none: not when the browser gives the microphone later, nor
  // when the server answers later.
  const { Call } = await import('/web/sidetone.js');
  const hangUpAt = async (place, hold, options) => {
    let release;
    const gate = new Promise((resolve) => { release = resolve; });
    const putBack = hold(gate);
    const before = told.asked.length;
    const states = [];
    const early = new Call({ agentId: 'b', transport: 'webrtc', on: { state: ({ state }) => states.push(state) }, ...options });
    const started = early.start().then(() => 'live', (error) => error.code);
    await until(`the call waits for ${place}`, () => held === place);
    held = null;
    await early.end();
    release();
    const slow = wait(2000).then(() => 'nothing');
    const outcome = await Promise.race([started, slow]);
    await wait(300);
    putBack();
    return [place, outcome, states.join(), told.asked.slice(before).join()];
  };
  let held = null;
  const route = (place) => (gate) => {
    const own = answers[place];
    answers[place] = async (body) => {
      held = place;
      await gate;
      if (place === 'offer') return { sdp: '', type: 'answer', pc_id: 'q', session_id: 'a' };
      return { ...await own(body), ...(body.transport === 'websocket' ? { ws_url: 'ws://localhost/a' } : {}) };
    };
    return () => { answers[place] = own; };
  };
  let given = null;
  const media = navigator.mediaDevices;
  const ask = media.getUserMedia.bind(media);
  const permission = (gate) => {
    media.getUserMedia = async (wishes) => {
      held = 'microphone';
      await gate;
      given = await ask(wishes);
      return given;
    };
    return () => { media.getUserMedia = ask; };
  };
  // One that the server has not opened yet.
  const dialling = (gate) => {
    const { connect } = answers;
    answers.connect = async () => ({ session_id: 'a', ws_url: 'ws://localhost/a' });
    window.WebSocket = class {
      static OPEN = 1;
      readyState = 0;
      constructor() { held = 'socket'; }
      close() { gate.then(() => this.onclose({ code: 1006, reason: '' })); }
    };
    return () => {
      answers.connect = connect;
      window.WebSocket = Socket;
    };
  };
  const hungUp = [
    await hangUpAt('microphone', permission),
    await hangUpAt('connect', route('connect')),
    await hangUpAt('connect', route('connect'), { transport: 'websocket', apiKey: 'k' }),
    await hangUpAt('offer', route('offer')),
    await hangUpAt('socket', dialling, { transport: 'websocket', apiKey: 'k' }),
  ];
  const silent = given.getAudioTracks().every((track) => track.readyState === 'ended');

  // A machine on many networks has more candidates than one request takes.
  const { RtcLine } = await import('/web/sidetone-rtc.js');
  const flocks = [];
  const many = new RtcLine({}, { iceTransportPolicy: 'all', ask: async (_method, _path, { candidates }) => { flocks.push(candidates.length); } });
  many.pcId = 'p';
  for (let n = 0; n < 150; n += 1) many.trickle({ candidate: `candidate:${n}`, sdpMid: '0', sdpMLineIndex: 0 });
  await many.flush();
  many.close();

  // A microphone that is taken away makes room for another, which is as muted as it was.
  const { Microphone } = await import('/web/sidetone-sound.js');
  const microphone = await Microphone.open(true, (message) => warnings.push(message));
  const before = microphone.track;
  let after = null;
  microphone.onTrack = (track) => { after = track; };
  microphone.muted = true;
  before.dispatchEvent(new Event('ended'));
  await until('another microphone is there', () => after !== null);
  const replaced = after !== before && after === microphone.track && !after.enabled && after.readyState === 'live';
  microphone.muted = false;
  await until('the other microphone is heard', () => microphone.level() > 0.01);
  microphone.close();
  return { ...first, replaced, refused: warnings.some((told) => told.includes('press a button')), gestures, ends, agentStates, left: left.state, lost, goesOn, listens, alive, enabled, thrown, hungUp, silent, flocks };
}
