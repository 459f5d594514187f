//! Its body and what it holds: `bodies::sip_endpoint`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::sip_endpoint::fuzz(bytes));
