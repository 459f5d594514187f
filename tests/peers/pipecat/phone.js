// Pipecat's client for browsers with its transport for small deployments, pointed at the offer route. What
// happens is on `seen`.

import { PipecatClient } from '@pipecat-ai/client-js';
import { SmallWebRTCTransport, WavMediaManager } from '@pipecat-ai/small-webrtc-transport';

window.callWithPipecat = ({ offer, bearer, iceServers }) => {
  const seen = { states: [], voices: 0, errors: [] };
  const heard = new Set();
  const context = new AudioContext();
  const listen = (track) => {
    if (track.kind !== 'audio' || heard.has(track)) return;
    heard.add(track);
    // A browser decodes a remote stream only for who plays it.
    const stream = new MediaStream([track]);
    const element = new Audio();
    element.srcObject = stream;
    element.play();
    const analyser = new AnalyserNode(context, { fftSize: 2048 });
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(analyser.fftSize);
    let [speaking, loudAt] = [false, 0];
    setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      const level = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
      if (level > 0.05) {
        if (!speaking) seen.voices += 1;
        [speaking, loudAt] = [true, performance.now()];
      } else if (performance.now() - loudAt > 600) {
        speaking = false;
      }
    }, 20);
  };
  const client = new PipecatClient({
    transport: new SmallWebRTCTransport({ mediaManager: new WavMediaManager(), iceServers }),
    enableMic: true,
    enableCam: false,
    callbacks: {
      onTransportStateChanged: (state) => seen.states.push(state),
      // The microphone's track starts, too.
      onTrackStarted: (track, participant) => participant?.local || listen(track),
      onError: (error) => seen.errors.push(JSON.stringify(error)),
    },
  });
  Object.assign(window, { seen, client });
  const headers = new Headers({ Authorization: `Bearer ${bearer}` });
  // It resolves once the other side speaks Pipecat's messages, too, which this server does not.
  client.connect({ webrtcRequestParams: { endpoint: offer, headers } }).catch((error) => seen.errors.push(String(error)));
};
