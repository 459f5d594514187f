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
  window.fetch = async (address, { method, headers, body }) => {
    const url = new URL(address);
    const route = url.pathname.split('/').pop();
    if (route !== 'ice') told.asked.push(`${method} ${route}${url.search}`);
    told.credentials.add(headers.Authorization ?? 'none');
    return new Response(JSON.stringify(await answers[route](JSON.parse(body))), { status: 200 });
  };

  const { startCall } = await import('/web/sidetone.js');
  const call = await startCall({
    agentId: 'b',
    transport: 'webrtc',
    events: ['vad'],
    tools: {
      add: ({ a, b }) => a + b,
      fail() { throw new Error('no'); },
      // Characters of two bytes: fewer than 65,536, and more bytes.
      long: () => 'é'.repeat(40000),
      // By itself 64 KiB, with its envelope more.
      nearly: () => 'x'.repeat(64 * 1024 - 20),
      fits: () => 'é'.repeat(30000),
    },
    on: {
      state: ({ state }) => told.events.push(state),
      vad: ({ speaking }) => told.events.push(`vad ${speaking}`),
      ended: ({ reason, error }) => told.events.push(`ended ${reason} ${error}`),
    },
  });
  await until('the channel opens', () => channel?.readyState === 'open');
  await until('the agent is heard', () => call.outputLevel > 0.3 && call.agentState === 'speaking');
  await until('the microphone is heard', () => call.inputLevel > 0.01);
  call.mute();
  await until('the microphone is muted', () => call.inputLevel === 0);
  call.unmute();
  say({ type: 'vad', speaking: true, at_ms: 1 });
  say({ type: 'ping', event_id: 7 });
  say({ type: 'tool_call', tool_call_id: 't', name: 'add', arguments: { a: 1, b: 2 }, turn_id: 'u' });
  say({ type: 'tool_call', tool_call_id: 'x', name: 'fail', arguments: {}, turn_id: 'u' });
  for (const name of ['long', 'nearly', 'fits']) {
    say({ type: 'tool_call', tool_call_id: name, name, arguments: {}, turn_id: 'u' });
  }
  call.sendDigits('1#');
  call.sendText('hello');
  call.sendContext('at the till');
  await until('all is said', () => told.got.length === 9);

  // The way back from a lost network: the same call on a new path.
  dispatchEvent(new Event('online'));
  await until('the path is made anew', () => told.fragments.length === 2 && peer.connectionState === 'connected');
  await until('the agent is heard again', () => call.outputLevel > 0.3);
  const { rttMs, lossPct } = await call.stats();
  told.measured = [rttMs, lossPct].every(Number.isFinite);
  await call.end();
  return { ...told, credentials: [...told.credentials], restarted: told.fragments[0] !== told.fragments[1], state: call.state };
}
