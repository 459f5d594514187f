//! Its body and what it holds: `bodies::dtmf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::dtmf::fuzz(bytes));
