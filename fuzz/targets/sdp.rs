//! Its body and what it holds: `bodies::sdp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::sdp::fuzz(bytes));
