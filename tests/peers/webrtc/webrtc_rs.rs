//! The same calls by another implementation of WebRTC than aiortc and ours: webrtc-rs, a program of its own. Building it
//! takes longer than `make test` may: `make soak` runs these, and otherwise they are only compiled.

#![cfg_attr(
    not(feature = "webrtc-rs"),
    expect(dead_code, reason = "`make soak` runs these tests")
)]

use crate::phone::Phone;
use crate::{barge_in, calls};

#[cfg_attr(feature = "webrtc-rs", tokio::test)]
async fn webrtc_rs_is_greeted_speaks_is_answered_and_both_sides_are_kept() {
    calls::whole_call(Phone::webrtc_rs).await;
}

#[cfg_attr(feature = "webrtc-rs", tokio::test)]
async fn webrtc_rs_interrupts_and_the_transcript_says_how_much_was_heard() {
    barge_in::interrupted_call(Phone::webrtc_rs).await;
}

#[cfg_attr(feature = "webrtc-rs", tokio::test)]
async fn candidates_of_webrtc_rs_may_all_come_later() {
    calls::trickled_call(Phone::webrtc_rs).await;
}

#[cfg_attr(feature = "webrtc-rs", tokio::test)]
async fn webrtc_rs_may_answer_an_offer_of_the_server() {
    calls::answering_call(Phone::webrtc_rs).await;
}
