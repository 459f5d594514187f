// A browser that answers the server's own offer, and then holds the call and resumes it with offers of its own.
async ({ session, key }) => {
  const ask = async (method, body) => {
    const answer = await fetch(`/api/v1/conversation/${session}/offer`, {
      method,
      headers: { 'X-API-Key': key, 'Content-Type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
  const until = async (what, holds) => {
    for (let tries = 0; tries < 400; tries += 1) {
      if (holds()) return;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    throw new Error(`${what} did not come true`);
  };
  const voice = new AudioContext().createMediaStreamDestination().stream;
  const peer = new RTCPeerConnection();
  peer.addTrack(voice.getAudioTracks()[0], voice);
  const describe = async (description) => {
    await peer.setLocalDescription(description);
    await until('all candidates are there', () => peer.iceGatheringState === 'complete');
    return peer.localDescription.sdp;
  };

  const offered = await ask('GET');
  await peer.setRemoteDescription({ type: offered.type, sdp: offered.sdp });
  const settled = await ask('POST', { type: 'answer', sdp: await describe(await peer.createAnswer()), pc_id: offered.pc_id });
  await until('the way is there', () => peer.connectionState === 'connected');
  const told = [];
  for (const direction of ['inactive', 'sendrecv']) {
    peer.getTransceivers()[0].direction = direction;
    const sdp = await describe(await peer.createOffer());
    const answer = await ask('POST', { type: 'offer', sdp, pc_id: settled.pc_id });
    // A browser refuses what would turn the key exchange around.
    await peer.setRemoteDescription({ type: answer.type, sdp: answer.sdp });
    told.push([peer.getTransceivers()[0].currentDirection, /a=setup:(\w+)/.exec(answer.sdp)[1]]);
  }
  return { told, state: peer.connectionState };
}
