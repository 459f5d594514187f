//! Its body and what it holds: `bodies::sip_transactions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::sip_transactions::fuzz(bytes));
