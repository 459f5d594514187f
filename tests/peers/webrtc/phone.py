"""A browser's side of a call, played by aiortc. Commands come as JSON lines, what happens is told as JSON
lines; the requests to the server are made by whoever gives the commands. Everything stays on loopback."""

import asyncio
import fractions
import json
import math
import sys
import time

import aioice.ice
import av
from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError

RATE = 48_000
FRAME = 960
# Louder than this (of 32768) for a tenth of a second is a voice; quieter for six is silence.
VOICE = 600.0

aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


class Mouth(AudioStreamTrack):
    """Silence, and tones when told to."""

    def __init__(self):
        super().__init__()
        self.tone = 0
        self.at = 0
        self.start = None
        self.count = 0

    async def recv(self):
        if self.readyState != "live":
            raise MediaStreamError
        if self.start is None:
            self.start = time.monotonic()
        wait = self.start + self.count * FRAME / RATE - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        samples = bytearray(2 * FRAME)
        for i in range(min(FRAME, self.tone)):
            value = int(8225 * math.sin(2 * math.pi * 500 * (self.at + i) / RATE))
            samples[2 * i : 2 * i + 2] = value.to_bytes(2, "little", signed=True)
        spoke = self.tone > 0
        self.tone = max(0, self.tone - FRAME)
        self.at += FRAME
        if spoke and self.tone == 0:
            tell("spoken")
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(bytes(samples))
        frame.pts = self.count * FRAME
        frame.sample_rate = RATE
        frame.time_base = fractions.Fraction(1, RATE)
        self.count += 1
        return frame


def power(samples):
    # Every fourth sample tells as much.
    return math.sqrt(sum(s * s for s in samples[::4]) / max(1, len(samples[::4])))


def note(parts, frame, samples):
    """Adds a frame's loud quarters to the part that they belong to."""
    start = 1000 * frame.pts * frame.time_base
    length = 1000 * frame.samples / frame.sample_rate / 4
    size = len(samples) // 4
    for quarter in range(4):
        if power(samples[quarter * size : (quarter + 1) * size]) <= VOICE:
            continue
        begin = float(start) + quarter * length
        if not parts or begin - parts[-1][1] > 600:
            parts.append([begin, begin])
        parts[-1][1] = begin + length


async def listen(track, line, parts):
    """Tells when the other side begins and stops to be heard. `parts`: from when to when it was, on the stream's own
    clock, ms; what a jitter buffer holds back until more comes counts where it belongs."""
    heard, quiet, loud, waiting = False, 0, 0, None
    while True:
        try:
            # In silence nothing is sent.
            frame = await asyncio.wait_for(asyncio.shield(waiting := waiting or asyncio.ensure_future(track.recv())), 0.6)
            waiting = None
        except asyncio.TimeoutError:
            loud = 0
            if heard:
                heard = False
                tell("silence", line=line)
            continue
        except MediaStreamError:
            return
        samples = memoryview(bytes(frame.planes[0])).cast("h")[: frame.samples * len(frame.layout.channels)]
        level = power(samples)
        note(parts, frame, samples)
        length = 1000 * frame.samples // frame.sample_rate
        loud, quiet = (loud + length, 0) if level > VOICE else (0, quiet + length)
        if not heard and loud >= 100:
            heard = True
            tell("voice", line=line, level=round(level))
        elif heard and quiet >= 600:
            heard = False
            tell("silence", line=line)


class Phone:
    def __init__(self):
        self.pc = None
        self.channel = None
        self.mouth = None
        self.line = 0
        self.parts = []

    def hear_channel(self, channel):
        self.channel = channel
        channel.on("message", lambda message: tell("message", data=message))

    async def new(self, ice_servers=(), offers=True, **_):
        if self.pc is not None:
            await self.pc.close()
        servers = [RTCIceServer(**server) for server in ice_servers]
        self.pc = pc = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        self.line += 1
        line = self.line
        self.mouth = Mouth()
        self.parts = parts = []

        @pc.on("connectionstatechange")
        def changed():
            tell("state", state=pc.connectionState, line=line)

        @pc.on("track")
        def track(track):
            asyncio.ensure_future(listen(track, line, parts))

        @pc.on("datachannel")
        def channel(channel):
            self.hear_channel(channel)

        if offers:
            pc.addTrack(self.mouth)
            self.hear_channel(pc.createDataChannel("events"))
        tell("new", line=line)

    async def offer(self, direction=None, **_):
        if direction:
            self.pc.getTransceivers()[0].direction = direction
        await self.pc.setLocalDescription(await self.pc.createOffer())
        tell("description", type="offer", sdp=self.pc.localDescription.sdp)

    async def answer(self, sdp, **_):
        """The server's answer."""
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="answer"))
        tell("settled")

    async def take(self, sdp, **_):
        """The server's offer, to be answered."""
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="offer"))
        self.pc.addTrack(self.mouth)
        await self.pc.setLocalDescription(await self.pc.createAnswer())
        tell("description", type="answer", sdp=self.pc.localDescription.sdp)

    async def speak(self, ms, **_):
        self.mouth.tone = ms * RATE // 1000

    async def heard(self, **_):
        tell("heard", parts=self.parts)

    async def send(self, text, **_):
        self.channel.send(text)

    async def vanish(self, **_):
        """Nothing more is sent or answered, and nobody is told."""
        for transceiver in self.pc.getTransceivers():
            ice = transceiver.sender.transport.transport
            await ice._connection.close()
        tell("vanished")

    async def close(self, **_):
        await self.pc.close()
        tell("closed")


async def main():
    phone = Phone()
    loop = asyncio.get_event_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        do = command.pop("do")
        try:
            await getattr(phone, do)(**command)
        except Exception as error:  # whoever tests decides what it means
            tell("error", do=do, why=repr(error))
    if phone.pc is not None:
        await phone.pc.close()


asyncio.run(main())
