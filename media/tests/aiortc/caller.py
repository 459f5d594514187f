"""A caller over WebRTC by aiortc, steered over standard input and output, one JSON value a line.

Out: the offer; then {"state": ...} as it changes, {"event": type} for each event on the data channel, and
{"heard": seconds} while the agent's tone is heard. In: the answer; then {"say": text} types something,
and {"end": true} (or the end of input) hangs up.
"""

import array
import asyncio
import cmath
import fractions
import json
import math
import sys

import aioice.ice
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame

# The loopback is left out by default, and is all that a test may use.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

RATE = 48000
FRAME = 960
CALLER_HZ = 700
AGENT_HZ = 400


def tell(value):
    print(json.dumps(value), flush=True)


class Tone(MediaStreamTrack):
    kind = "audio"

    def __init__(self):
        super().__init__()
        self.at = 0
        self.start = None

    async def recv(self):
        loop = asyncio.get_running_loop()
        if self.start is None:
            self.start = loop.time()
        await asyncio.sleep(max(0, self.start + self.at / RATE - loop.time()))
        step = 2 * math.pi * CALLER_HZ / RATE
        samples = array.array("h", (int(8000 * math.sin(step * (self.at + i))) for i in range(FRAME)))
        frame = AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(samples.tobytes())
        frame.sample_rate = RATE
        frame.pts = self.at
        frame.time_base = fractions.Fraction(1, RATE)
        self.at += FRAME
        return frame


async def listen(track):
    heard = 0.0
    while True:
        frame = await track.recv()
        channels = len(frame.layout.channels)
        plane = array.array("h", bytes(frame.planes[0])[: frame.samples * channels * 2])
        samples = plane[::channels]
        step = 2j * math.pi * AGENT_HZ / frame.sample_rate
        level = 2 * abs(sum(s * cmath.exp(step * i) for i, s in enumerate(samples))) / len(samples)
        if level > 1000:
            heard += len(samples) / frame.sample_rate
            tell({"heard": round(heard, 2)})


async def main():
    pc = RTCPeerConnection()
    pc.addTrack(Tone())
    events = pc.createDataChannel("events")

    @events.on("message")
    def message(text):
        tell({"event": json.loads(text)["type"]})

    @pc.on("connectionstatechange")
    def changed():
        tell({"state": pc.connectionState})

    @pc.on("track")
    def track(remote):
        asyncio.ensure_future(listen(remote))

    await pc.setLocalDescription(await pc.createOffer())
    tell({"sdp": pc.localDescription.sdp})
    loop = asyncio.get_running_loop()
    answer = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    await pc.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        told = json.loads(line) if line.strip() else {"end": True}
        if "say" in told:
            events.send(json.dumps({"type": "user_message", "text": told["say"]}))
        if "end" in told:
            break
    await pc.close()


asyncio.run(main())
