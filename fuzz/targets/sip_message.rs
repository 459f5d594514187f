//! Its body and what it holds: `bodies::sip_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::sip_message::fuzz(bytes));
