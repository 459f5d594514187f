//! Its body and what it holds: `bodies::rtcp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::rtcp::fuzz(bytes));
