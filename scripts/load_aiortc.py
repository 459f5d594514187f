"""What a WebRTC call costs a server, with aiortc as the caller: its own echo server and sidetone, measured by the
same clients in the same way. Everything stays on loopback. See load_aiortc.sh.

  echo                                    serves offers (JSON lines over TCP), prints its port, and sends back what it hears
  measure PID PORT SESSIONS SECONDS       calls the echo server at this port, and prints one JSON object
  measure PID URL SESSIONS SECONDS FILE LEAST
                                          calls sidetone (key in SIDETONE_API_KEY), prints one JSON object for each
                                          agent and one for both; FILE holds what the echo server cost, and fails when
                                          that is not LEAST times as much
"""

import asyncio
import fractions
import json
import os
import random
import sys
import time
import urllib.request

import aioice.ice
import av
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError

RATE = 48_000
FRAME = 960
# Before anything is measured: connecting, the voice's first words, the first reports.
WARM_UP = 8
# Nobody calls.
IDLE = 3
# Until the calls of one round are over for the server, too.
LEAVING = 10

aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


def peer():
    return RTCPeerConnection(RTCConfiguration(iceServers=[]))


class Room(AudioStreamTrack):
    """A quiet room: noise of −60 dBFS, so that every frame is sent and nobody seems to speak."""

    def __init__(self, seed):
        super().__init__()
        dice = random.Random(seed)
        self.noise = [
            b"".join(dice.randint(-55, 55).to_bytes(2, "little", signed=True) for _ in range(FRAME)) for _ in range(16)
        ]
        self.start, self.count = None, 0

    async def recv(self):
        if self.readyState != "live":
            raise MediaStreamError
        self.start = self.start or time.monotonic()
        wait = self.start + self.count * FRAME / RATE - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(self.noise[self.count % len(self.noise)])
        frame.pts = self.count * FRAME
        frame.sample_rate = RATE
        frame.time_base = fractions.Fraction(1, RATE)
        self.count += 1
        return frame


async def echo():
    calls = set()

    async def serve(reader, writer):
        pc = peer()
        calls.add(pc)
        pc.on("track", lambda track: pc.addTrack(track))
        offer = json.loads(await reader.readline())
        await pc.setRemoteDescription(RTCSessionDescription(sdp=offer["sdp"], type="offer"))
        await pc.setLocalDescription(await pc.createAnswer())
        writer.write(json.dumps({"sdp": pc.localDescription.sdp}).encode() + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def answer_of_echo(port, sdp):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(json.dumps({"sdp": sdp}).encode() + b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    return answer["sdp"]


class Sidetone:
    """An agent that talks all the time to callers who say nothing, or listens to them all the time."""

    def __init__(self, url, talks):
        self.url = url + "/api/v1"
        voices = self.ask("GET", "/voices?limit=500")["items"]
        voice = next((v["id"] for v in voices if "scripted" in (v["voice_key"] or "")), voices[0]["id"])
        greeting = "This is a long greeting, and it goes on for a good while. " * 32 if talks else "Hello."
        self.agent = self.ask(
            "POST",
            "/agents",
            {
                "name": "load",
                "system_prompt": "You talk.",
                "voice_id": voice,
                "llm_model": "echo",
                "first_message": greeting,
                "idle_check_in_after_secs": 600,
            },
        )["id"]

    def ask(self, method, path, body=None):
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-API-Key": os.environ["SIDETONE_API_KEY"], "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def answer(self, sdp):
        session = self.ask("POST", "/conversation/connect", {"agent_id": self.agent, "transport": "webrtc"})
        offer = {"sdp": sdp, "type": "offer"}
        return self.ask("POST", f"/conversation/{session['session_id']}/offer", offer)["sdp"]


def cpu_ms(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


class Caller:
    """One call; counts the frames that it hears."""

    def __init__(self, seed):
        self.pc = peer()
        self.heard = 0
        self.pc.addTrack(Room(seed))
        self.pc.createDataChannel("events")
        self.pc.on("track", lambda track: asyncio.ensure_future(self.listen(track)))

    async def listen(self, track):
        try:
            while True:
                await track.recv()
                self.heard += 1
        except MediaStreamError:
            pass

    async def call(self, answer):
        await self.pc.setLocalDescription(await self.pc.createOffer())
        sdp = await answer(self.pc.localDescription.sdp)
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="answer"))


async def measure(pid, address, sessions, seconds, file=None, least=None):
    # What the server does while nobody calls is no cost of a call.
    began, cpu = time.monotonic(), cpu_ms(pid)
    await asyncio.sleep(IDLE)
    idle = (cpu_ms(pid) - cpu) / (time.monotonic() - began)
    if address.isdigit():
        await calls(pid, lambda sdp: answer_of_echo(int(address), sdp), sessions, seconds, idle, "echo")
        return
    costs = []
    for agent in ("talks", "listens"):
        server = Sidetone(address, agent == "talks")
        answer = lambda sdp: asyncio.to_thread(server.answer, sdp)
        costs.append(await calls(pid, answer, sessions, seconds, idle, agent))
        await asyncio.sleep(LEAVING)
    cost = sum(costs) / 2
    with open(file) as printed:
        times = json.load(printed)["cpu_ms_a_session_second"] / cost
    print(json.dumps({"cpu_ms_a_session_second_half_talk": round(cost, 2), "times_cheaper": round(times, 1)}))
    if times < float(least):
        raise SystemExit(f"MISSED: not {least} times cheaper")


async def calls(pid, answer, sessions, seconds, idle, agent):
    """Makes calls, prints what they cost, and returns the CPU time, ms a session-second. `idle`: the server's without
    calls, ms a second."""
    callers = [Caller(seed) for seed in range(sessions)]
    for caller in callers:
        await caller.call(answer)
    await asyncio.sleep(WARM_UP)
    lost = [caller.pc.connectionState for caller in callers if caller.pc.connectionState != "connected"]
    if lost:
        raise SystemExit(f"{len(lost)} calls are not connected: {lost}")
    began, cpu, heard = time.monotonic(), cpu_ms(pid), [caller.heard for caller in callers]
    await asyncio.sleep(seconds)
    took, cpu = time.monotonic() - began, cpu_ms(pid) - cpu
    frames = sorted((caller.heard - before) / took for caller, before in zip(callers, heard))
    cost = (cpu / took - idle) / sessions
    print(
        json.dumps(
            {
                "agent": agent,
                "sessions": sessions,
                "idle_cpu_ms_a_second": round(idle, 2),
                "cpu_ms_a_session_second": round(cost, 2),
                "frames_a_second_heard": [round(frames[0], 1), round(frames[-1], 1)],
            }
        )
    )
    for caller in callers:
        await caller.pc.close()
    return cost


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        asyncio.run(echo())
    else:
        asyncio.run(measure(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), *sys.argv[6:]))
