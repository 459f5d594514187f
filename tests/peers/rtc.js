// A call of sidetone.js with the real server, in a page: `seen` is what happened, `speak(ms)` a voice.
// `routed`: the server is told no address of this browser's, so that all goes by the address it gives.
async ({ routed, ...options }) => {
  const context = new AudioContext();
  const tone = new OscillatorNode(context, { frequency: 500 });
  const mouth = new GainNode(context, { gain: 0 });
  const microphone = context.createMediaStreamDestination();
  tone.connect(mouth).connect(microphone);
  tone.start();
  await context.resume();

  const seen = {
    states: [], agentStates: [], warnings: [], responses: [], transcripts: [], interruptions: [], ended: null,
    offers: 0, isHeld: false, heardAfterMs: null, toldAfterMs: null, firstHeardAt: null, heardAt: 0, spokeAt: 0, stats: null,
  };
  const plain = window.RTCPeerConnection;
  window.RTCPeerConnection = class extends plain {
    constructor(...given) {
      super(...given);
      window.peer = this;
    }
  };
  const fetchPlain = window.fetch;
  let offeredAt = null;
  window.fetch = async (address, init = {}) => {
    const route = new URL(address, location.href).pathname.split('/').pop();
    if (routed && route === 'ice') return new Response('{"status":"ok","accepted":0}');
    if (route !== 'offer') return fetchPlain(address, init);
    const body = JSON.parse(init.body);
    if (routed) body.sdp = body.sdp.split('\r\n').filter((line) => !line.startsWith('a=candidate:')).join('\r\n');
    seen.offers += 1;
    if (window.holdOffers) {
      seen.isHeld = true;
      await new Promise((resolve) => { window.releaseOffer = resolve; });
      seen.isHeld = false;
    }
    offeredAt = performance.now();
    seen.heardAfterMs = null;
    seen.toldAfterMs = null;
    return fetchPlain(address, { ...init, body: JSON.stringify(body) });
  };

  const { Call } = await import('/web/sidetone.js');
  const call = new Call({ microphone: microphone.stream, ...options });
  call.on('state', ({ state }) => seen.states.push(state));
  call.on('agent_state', ({ state }) => seen.agentStates.push(state));
  call.on('warning', ({ message }) => seen.warnings.push(message));
  call.on('user_transcript', ({ text, is_final: isFinal }) => isFinal && seen.transcripts.push(text));
  call.on('agent_response', ({ text }) => seen.responses.push(text));
  call.on('interruption', (cut) => seen.interruptions.push(cut.spoken_ms));
  call.on('event', () => {
    if (offeredAt !== null) seen.toldAfterMs ??= performance.now() - offeredAt;
  });
  call.on('ended', ({ reason, error }) => { seen.ended = { reason, code: error?.code ?? null }; });
  setInterval(() => {
    seen.level = call.outputLevel;
    if (seen.level > 0.05) {
      seen.heardAt = performance.now();
      seen.firstHeardAt ??= seen.heardAt;
    }
    if (seen.level > 0.01 && offeredAt !== null) seen.heardAfterMs ??= performance.now() - offeredAt;
  }, 10);
  setInterval(async () => { seen.stats = await call.stats(); }, 500);
  Object.assign(window, {
    seen,
    call,
    async speak(ms) {
      mouth.gain.value = 0.25;
      await new Promise((resolve) => setTimeout(resolve, ms));
      mouth.gain.value = 0;
      seen.spokeAt = performance.now();
    },
    // What the encoder aims at, bits a second.
    async bits() {
      const all = await window.peer.getStats();
      return [...all.values()].find((one) => one.type === 'outbound-rtp').targetBitrate;
    },
    // The kind of candidate that the sound takes, at both ends.
    async way() {
      const all = await window.peer.getStats();
      const pair = [...all.values()].find((one) => one.type === 'candidate-pair' && one.nominated && one.state === 'succeeded');
      return pair ? `${all.get(pair.localCandidateId).candidateType} ${all.get(pair.remoteCandidateId).candidateType}` : null;
    },
  });
  // A call that cannot be made is told by `ended`, too.
  await call.start().catch(() => {});
}
