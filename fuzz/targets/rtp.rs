//! Its body and what it holds: `bodies::rtp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::rtp::fuzz(bytes));
