//! Bytes as offers and as answers to ours: what is agreed on stands in our answer, and our answer is one
//! that we would take.

use media::rtp::sdp::{Codec, Encryption, Flow, Local, Refusal, answer, offer};

/// Runs the body on `bytes` as they stand.
pub fn fuzz(bytes: &[u8]) {
    for encryption in [Encryption::Allow, Encryption::Disable, Encryption::Require] {
        let local = Local {
            address: [192, 0, 2, 1].into(),
            port: 20_000,
            session: 1,
            version: 1,
            codecs: Codec::ALL.to_vec(),
            encryption,
            random: [0x5a; 46],
        };
        if let Ok((text, agreed)) = answer(bytes, &local, Flow::SendRecv) {
            match encryption {
                Encryption::Require => assert!(agreed.keys.is_some()),
                Encryption::Disable => assert!(agreed.keys.is_none()),
                Encryption::Allow => {}
            }
            // Ours to them is theirs to us, as far as words go.
            match answer(text.as_bytes(), &local, Flow::SendRecv) {
                Ok((_, again)) => {
                    assert_eq!(again.codec, agreed.codec);
                    assert_eq!(again.payload_type, agreed.payload_type);
                    assert_eq!(again.events, agreed.events);
                    assert_eq!(again.keys.is_some(), agreed.keys.is_some());
                }
                Err(refusal) => panic!("our answer is refused: {refusal}\n{text}"),
            }
        }
        let offered = offer(&local, Flow::SendRecv);
        match offered.accept(bytes) {
            Ok(agreed) if encryption == Encryption::Require => assert!(agreed.keys.is_some()),
            Ok(agreed) => assert!(agreed.keys.is_none()),
            Err(Refusal::Malformed(_)) => {
                assert!(answer(bytes, &local, Flow::SendRecv).is_err());
            }
            Err(_) => {}
        }
    }
}
