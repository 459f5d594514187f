//! Every call of these tests is played again when it is over, here and in a second process (`kit::tape`). What would
//! be noticed then.

use kit::tape::{in_second_process, in_this_process, is_second};
use kit::virtual_call::{VirtualCall, config};

use crate::rows::{agent, heard};

/// A second process is this program with this test alone.
#[test]
fn both_processes_notice_a_changed_tape() {
    if is_second() {
        return;
    }
    let call = VirtualCall::new(config(agent()), heard(&["Hello?"]), &[(1000, 2000)]).run(4000);
    let verdict = |tape: &[u8]| {
        let spans = Some(vec![(16_000, 32_000)]);
        let here = in_this_process(tape, &spans);
        assert_eq!(here, in_second_process(tape, &spans));
        here.lines().next().unwrap().to_owned()
    };
    let mut tape = call.tape.bytes().to_vec();
    let whole = verdict(&tape);
    assert!(whole.contains("difference None"), "{whole}");
    // The caller's first sample is 0, and then 4.
    let key = b"\"audio\":\"";
    let sound = tape.windows(key.len()).position(|at| at == key).unwrap() + key.len();
    assert_eq!(tape[sound], b'A');
    tape[sound] = b'B';
    let changed = verdict(&tape);
    assert!(changed.contains("difference Some"), "{changed}");
}
