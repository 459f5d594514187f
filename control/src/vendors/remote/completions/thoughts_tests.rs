//! Thoughts and the marks of templates, however they are cut.

use super::*;

/// What is said in the end: what was taken back is not.
fn spoken(text: &str, size: usize, thinks: Option<bool>) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut stream = Spoken::new(thinks);
    let mut out = String::new();
    for piece in letters.chunks(size) {
        out.push_str(&stream.push(&piece.iter().collect::<String>()));
    }
    out.push_str(&stream.finish());
    let begun = text.to_lowercase();
    if thinks != Some(false) && BEGINNINGS.iter().any(|words| begun.starts_with(words)) {
        // Nothing of them is heard, not even for a while.
        assert!(!out.contains(TAKEN_BACK), "{text:?} by {size}: {out:?}");
    }
    let kept = out.rsplit(TAKEN_BACK).next();
    kept.unwrap_or_default().to_owned()
}

const CASES: &[(&str, &str)] = &[
    ("Hello there", "Hello there"),
    ("<think>I wonder é</think>\n\nYes. Sure.", "Yes. Sure."),
    ("<think>without end", ""),
    ("<THINK>hm</Think>Yes.", "Yes."),
    ("<thinking>hm</thinking>Yes.", "Yes."),
    ("<thought>hm</thought> Yes.", "Yes."),
    ("<thinking type=\"deep\">hm</thinking>Yes.", "Yes."),
    ("< think >hm</ think >Yes.", "Yes."),
    ("Yes. <think>hm</think>Sure.", "Yes. Sure."),
    ("Yes. <reasoning>without end", "Yes. "),
    ("<think></think>Yes.", "Yes."),
    ("<think>a <b>bold</b> idea</think>Yes.", "Yes."),
    ("<think>one</think><think>two</think>Yes.", "Yes."),
    (
        "The user asks for the time.</think>It is nine.",
        "It is nine.",
    ),
    (
        "Une idée.\n</think>\n\nIl est neuf heures.",
        "Il est neuf heures.",
    ),
    ("One. Two.</THINKING>Three.", "Three."),
    (
        "L'utilisateur demande l'heure.</think>Neuf heures.",
        "Neuf heures.",
    ),
    ("I need to know your name.", "I need to know your name."),
    ("The user", "The user"),
    ("[THINK]hm[/THINK]Yes.", "Yes."),
    ("◁think▷hm◁/think▷Yes.", "Yes."),
    ("<seed:think>hm</seed:think>Yes.", "Yes."),
    (
        "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
        "Yes.",
    ),
    ("<|begin_of_thought|>hm<|end_of_thought|>Yes.", "Yes."),
    (
        "<|channel|>analysis<|message|>The user asks.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        "Yes.",
    ),
    (
        "<|start|>assistant<|channel|>commentary to=functions.book <|constrain|>json<|message|>{\"a\":1}<|call|>",
        "",
    ),
    ("analysisThe user asks.assistantfinalYes.", "Yes."),
    ("<|im_start|>assistant\nYes.<|im_end|>", "Yes."),
    ("Yes.</s>", "Yes."),
    ("Yes.<|eot_id|>", "Yes."),
    ("Yes.<end_of_turn>", "Yes."),
    ("<tool_call>{\"name\": \"book\"}</tool_call>Yes.", "Yes."),
    ("<function=book>{}</function_call>", ""),
    ("<3 hearts", "<3 hearts"),
    ("<thi", "<thi"),
    ("a < b and c > d", "a < b and c > d"),
    (
        "[sic] <b>bold</b> [name: not provided]",
        "[sic] <b>bold</b> [name: not provided]",
    ),
    ("<<think>hm</think>Yes.", "<Yes."),
    ("<answer>Yes.</answer>", "Yes."),
];

#[test]
fn thoughts_are_kept_in_however_they_are_cut() {
    for (text, said) in CASES {
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(spoken(text, size, None), *said, "{text:?} by {size}");
        }
        // Without its marks this is known by its beginning alone.
        let known = !text.starts_with("analysisThe");
        for thinks in [true, false].into_iter().filter(|thinks| *thinks || known) {
            assert_eq!(
                spoken(text, 4, Some(thinks)).trim_start(),
                said.trim_start(),
                "{text:?}"
            );
        }
    }
}

#[test]
fn what_begins_as_thoughts_do_waits_and_other_text_does_not() {
    let mut stream = Spoken::new(None);
    assert_eq!(stream.push("We need to answer briefly. "), "");
    assert_eq!(stream.push("</think>Good day."), "Good day.");
    assert!(stream.closed_alone && stream.thought());
    let mut stream = Spoken::new(None);
    assert_eq!(stream.push("Good "), "Good ");
    assert_eq!(stream.push("day."), "day.");
    assert_eq!(stream.push("</think>Yes."), format!("{TAKEN_BACK}Yes."));
    let mut stream = Spoken::new(Some(true));
    assert_eq!(stream.push("Good day. "), "");
    assert_eq!(stream.finish(), "Good day. ");
    let mut stream = Spoken::new(Some(false));
    assert_eq!(
        stream.push("We need to know your name."),
        "We need to know your name."
    );
}
