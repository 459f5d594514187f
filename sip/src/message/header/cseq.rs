//! CSeq (RFC 3261 20.16) and RAck (RFC 3262 7.2), which names one.

use std::fmt;

use crate::message::{Method, scan};

/// The largest sequence number (RFC 3261 8.1.1.5): below 2³¹.
const MOST: u64 = (1 << 31) - 1;

/// A sequence number and the method it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CSeq {
    pub number: u32,
    pub method: Method,
}

impl CSeq {
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(scan::is_space).filter(|word| !word.is_empty());
        let number = sequence(words.next()?)?;
        let method = Method::parse(words.next()?)?;
        words.next().is_none().then_some(Self { number, method })
    }
}

impl fmt::Display for CSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.method)
    }
}

/// Which reliable provisional response a PRACK acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RAck {
    pub rseq: u32,
    pub cseq: CSeq,
}

impl RAck {
    pub fn parse(text: &str) -> Option<Self> {
        let (rseq, cseq) = scan::trim(text).split_once(scan::is_space)?;
        Some(Self {
            rseq: sequence(rseq)?,
            cseq: CSeq::parse(cseq)?,
        })
    }
}

impl fmt::Display for RAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rseq, self.cseq)
    }
}

fn sequence(text: &str) -> Option<u32> {
    scan::number(text)
        .filter(|number| *number <= MOST)
        .and_then(|number| u32::try_from(number).ok())
}
