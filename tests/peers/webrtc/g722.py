"""G.722 by FFmpeg's libraries: PCM16 at 16 kHz in, the coded bytes and what they decode to out.

First the number of coded bytes as four bytes, then the bytes, then the samples.
"""

import struct
import sys

import av


def frames(pcm):
    """Frames of 20 ms."""
    for start in range(0, len(pcm), 640):
        piece = pcm[start : start + 640]
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(piece) // 2)
        frame.sample_rate = 16000
        frame.pts = start // 2
        frame.planes[0].update(piece)
        yield frame


def codec(mode):
    context = av.CodecContext.create("g722", mode)
    context.sample_rate = 16000
    context.layout = "mono"
    context.format = "s16"
    return context


encoder, decoder = codec("w"), codec("r")
coded, decoded = b"", b""
packets = [packet for frame in frames(sys.stdin.buffer.read()) for packet in encoder.encode(frame)]
packets += encoder.encode(None)
for packet in packets:
    coded += bytes(packet)
    for frame in decoder.decode(packet):
        decoded += bytes(frame.planes[0])[: 2 * frame.samples]
sys.stdout.buffer.write(struct.pack("<I", len(coded)) + coded + decoded)
