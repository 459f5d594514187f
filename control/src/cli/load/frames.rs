//! The client's side of WebSocket framing (RFC 6455 section 5), as little of it as a load generator
//! needs: it must cost far less than the server that it measures.

/// The opcodes that occur here (section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Text,
    Close,
    Ping,
    Pong,
    /// Continuations and binary messages: nothing that this generator expects.
    Other,
}

/// One frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFrame<'a> {
    pub opcode: Opcode,
    pub payload: &'a [u8],
    /// Bytes of the buffer that this frame took.
    pub length: usize,
}

/// A server does not send more at once; more means that the framing is lost.
const MOST: u64 = 1 << 20;

/// Appends a masked frame.
pub(super) fn put(out: &mut Vec<u8>, opcode: Opcode, mask: [u8; 4], payload: &[u8]) {
    let code = match opcode {
        Opcode::Text | Opcode::Other => 1,
        Opcode::Close => 8,
        Opcode::Ping => 9,
        Opcode::Pong => 10,
    };
    out.push(0x80 | code);
    match u16::try_from(payload.len()) {
        Ok(short) if short < 126 => out.push(0x80 | short as u8),
        Ok(medium) => {
            out.push(0x80 | 126);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        Err(_) => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let from = out.len();
    out.extend_from_slice(payload);
    let (words, rest) = out[from..].as_chunks_mut::<4>();
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask) {
        *byte ^= key;
    }
}

/// The first frame of a buffer: `None` until all of it is there.
pub(super) fn first(buffer: &[u8]) -> Result<Option<ServerFrame<'_>>, &'static str> {
    let [code, short, ..] = *buffer else {
        return Ok(None);
    };
    if short & 0x80 != 0 {
        return Err("the server masks its frames");
    }
    let (header, length) = match short {
        126 => match buffer.get(2..4) {
            Some(bytes) => (4, u64::from(bytes[0]) << 8 | u64::from(bytes[1])),
            None => return Ok(None),
        },
        127 => match buffer.get(2..10) {
            Some(bytes) => (
                10,
                bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            ),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    if length > MOST {
        return Err("the server sent a frame of more than 1 MiB");
    }
    let end = header + usize::try_from(length).map_err(|_| "the server sent an endless frame")?;
    let Some(payload) = buffer.get(header..end) else {
        return Ok(None);
    };
    let opcode = match code & 0x0f {
        1 => Opcode::Text,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => Opcode::Other,
    };
    Ok(Some(ServerFrame {
        opcode,
        payload,
        length: end,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn masking_is_its_own_inverse_at_every_length() {
        for length in [0, 1, 5, 125, 126, 400, 65_535, 65_536] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut out = Vec::new();
            put(&mut out, Opcode::Text, [1, 2, 3, 4], &payload);
            let header = out.len() - payload.len();
            let body: Vec<u8> = out[header..]
                .iter()
                .enumerate()
                .map(|(i, byte)| byte ^ [1, 2, 3, 4][i % 4])
                .collect();
            assert_eq!(body, payload);
            assert_eq!(out[header - 4..header], [1, 2, 3, 4]);
        }
    }

    #[test]
    fn frames_are_found_only_when_whole() {
        let mut buffer = vec![0x81, 126, 1, 0];
        buffer.extend([7; 256]);
        buffer.extend([0x89, 0]);
        for cut in 0..260 {
            assert_eq!(first(&buffer[..cut]), Ok(None));
        }
        let frame = first(&buffer).unwrap().unwrap();
        assert_eq!(
            (frame.opcode, frame.payload.len(), frame.length),
            (Opcode::Text, 256, 260)
        );
        assert_eq!(first(&buffer[260..]).unwrap().unwrap().opcode, Opcode::Ping);
        assert!(first(&[0x81, 0x80]).is_err());
        assert!(first(&[0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
    }
}
