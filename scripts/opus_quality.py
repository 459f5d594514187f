"""Encodes and decodes speech by libopus as the server does (16 kHz, mono, 20 ms), and prints how it
sounds then and how long it took. See opus_quality.sh.

  BITS:COMPLEXITY ...     thousands of bits a second, and 0 to 10
"""

import ctypes
import glob
import os
import subprocess
import sys
import tempfile
import time
import wave

import numpy
from pesq import pesq

RATE, FRAME = 16_000, 320
HUMANS = "/usr/share/pocketsphinx/test/data/librivox/*.wav"
TEXT = "Our office is open from nine to five on weekdays, and on Saturday until noon. You can park behind the house."
USUAL = ["28:5", "28:1", "48:5", "48:1", "48:0", "64:1"]

# opus_defines.h
VOIP, VOICE, MUSIC = 2048, 3001, 3002
SET_BITRATE, SET_COMPLEXITY, SET_COPIES, SET_LOSS, SET_SIGNAL, GET_LOOKAHEAD = 4002, 4010, 4012, 4014, 4024, 4027

opus = ctypes.CDLL(os.environ["LIBOPUS"])
opus.opus_encoder_create.restype = opus.opus_decoder_create.restype = ctypes.c_void_p
opus.opus_get_version_string.restype = ctypes.c_char_p


def read(path):
    with wave.open(path) as file:
        rate, sound = file.getframerate(), numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
    if rate != RATE:
        at = numpy.arange(len(sound) * RATE // rate) * rate / RATE
        sound = numpy.interp(at, numpy.arange(len(sound)), sound).astype("<i2")
    return sound[: 12 * RATE]


def voices():
    humans = sorted(glob.glob(HUMANS))[:4]
    if not humans:
        raise SystemExit("pocketsphinx-testdata is missing: run bash scripts/setup.sh test")
    yield from ((True, read(path)) for path in humans)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        for voice in ("slt", "rms", "awb"):
            subprocess.run(["flite", "-voice", voice, "-t", TEXT, "-o", file.name], check=True)
            yield False, read(file.name)
        for voice in ("en", "fr"):
            subprocess.run(["espeak-ng", "-v", voice, "-w", file.name, TEXT], check=True)
            yield False, read(file.name)


def through(sound, bits, complexity, signal, loss):
    """The sound after both, bits a second, and microseconds of CPU a frame to encode."""
    error = ctypes.c_int()
    encoder = ctypes.c_void_p(opus.opus_encoder_create(RATE, 1, VOIP, ctypes.byref(error)))
    decoder = ctypes.c_void_p(opus.opus_decoder_create(RATE, 1, ctypes.byref(error)))
    asked = [(SET_BITRATE, bits), (SET_COMPLEXITY, complexity), (SET_SIGNAL, signal), (SET_COPIES, 1), (SET_LOSS, loss)]
    for request, value in asked:
        if opus.opus_encoder_ctl(encoder, request, value) != 0:
            raise SystemExit(f"libopus does not take {bits}:{complexity}")
    ahead = ctypes.c_int()
    opus.opus_encoder_ctl(encoder, GET_LOOKAHEAD, ctypes.byref(ahead))
    packet, pcm = ctypes.create_string_buffer(1500), ctypes.create_string_buffer(2 * FRAME)
    heard, total, took, frames = [], 0, 0.0, len(sound) // FRAME
    for frame in numpy.split(sound[: frames * FRAME], frames):
        said, began = frame.tobytes(), time.process_time()
        length = opus.opus_encode(encoder, said, FRAME, packet, len(packet))
        took += time.process_time() - began
        if length < 0:
            raise SystemExit(f"libopus does not encode at {bits}:{complexity}: error {length}")
        opus.opus_decode(decoder, packet, length, pcm, FRAME, 0)
        heard.append(numpy.frombuffer(pcm.raw, "<i2"))
        total += length
    opus.opus_encoder_destroy(encoder)
    opus.opus_decoder_destroy(decoder)
    return numpy.concatenate(heard)[ahead.value :], total * 8 * 50 / frames, took / frames * 1e6


def main():
    settings = [tuple(map(int, setting.split(":"))) for setting in sys.argv[1:] or USUAL]
    everybody = list(voices())
    print(opus.opus_get_version_string().decode())
    print("PESQ-WB, 4.64 at most: the mean, of humans alone, and the worst of nine voices")
    # A "music" with so many bits has no SILK in it, a voice has; only SILK has copies.
    for name, signal, loss in [
        ("CELT", MUSIC, 0),
        ("SILK without copies", VOICE, 0),
        ("SILK with copies", VOICE, 10),
    ]:
        for thousands, complexity in settings:
            scores, humans, bits, us = [], [], [], []
            for human, sound in everybody:
                heard, used, took = through(sound, thousands * 1000, complexity, signal, loss)
                score = pesq(RATE, sound[: len(heard)], heard, "wb")
                scores.append(score)
                bits.append(used)
                us.append(took)
                if human:
                    humans.append(score)
            print(
                f"{name:19}  {thousands} kbit/s, complexity {complexity}: {numpy.mean(scores):.2f} "
                f"{numpy.mean(humans):.2f} {min(scores):.2f}  {numpy.mean(bits) / 1000:.0f} kbit/s used, "
                f"{numpy.mean(us):.0f} us of CPU a frame",
                flush=True,
            )


if __name__ == "__main__":
    main()
