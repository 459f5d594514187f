//! Bytes as SIP messages: whatever is read is read the same again when it is printed, and a stream gives
//! the same messages however it was cut.

use sip::message::Message;
use sip::message::parse::{Framing, parse};
use sip::message::stream::{Framed, Framer};

/// Runs the body on `bytes` as they stand.
pub fn fuzz(bytes: &[u8]) {
    for framing in [Framing::Datagram, Framing::Stream] {
        if let Ok(Some(message)) = parse(bytes, framing) {
            let printed = match &message {
                Message::Request(request) => {
                    // What is looked at of every request.
                    _ = (request.via(), request.from(), request.to(), request.cseq());
                    _ = (request.contact(), request.body());
                    request.to_bytes()
                }
                Message::Response(response) => {
                    _ = (response.via(), response.cseq(), response.to_tag());
                    response.to_bytes()
                }
            };
            let again = parse(&printed, framing);
            assert!(matches!(again, Ok(Some(again)) if again == message));
        }
    }
    let cut = bytes.first().map_or(1, |byte| usize::from(*byte).max(1));
    assert_eq!(framed(bytes, cut), framed(bytes, bytes.len().max(1)));
}

/// The messages of a stream, right and wrong, until it is lost. Keep-alives are not among them: what line
/// ends between messages mean may hang on how they came.
fn framed(bytes: &[u8], cut: usize) -> Vec<String> {
    let (mut framer, mut out) = (Framer::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        framer.push(piece);
        while let Some(next) = framer.next_message() {
            match next {
                Framed::Message(message) => out.push(format!("{message:?}")),
                Framed::Malformed(malformed) => out.push(format!("{malformed:?}")),
                Framed::Ping => {}
                Framed::Lost(_) => return out,
            }
        }
    }
    out
}
