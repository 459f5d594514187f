//! The model `faq`: answers with the sentence of the agent's prompt that fits the caller's words best.
//!
//! Deterministic and offline: BM25 over the prompt's sentences (`index.rs`), with stems, synonyms and
//! sound-alikes (`terms.rs`), because its words come from a recogniser that mishears. It asks back when
//! nothing fits, and calls a tool when the caller, or the prompt's sentence that fits, names one.

mod index;
mod lists;
mod terms;

use std::sync::{Arc, Mutex};

use media::config::{Language, ToolSpec};
use media::speech::{
    LanguageModel, LlmEvent, Message, ModelRequest, ReplyId, SpeechEvent, SpeechSink,
};

use tokio::runtime::Handle;

use super::queue::lock;
use super::{tools, words};
pub use index::Index;

/// Of a prompt up to this length, bytes, the index is made where the call lives. A longer one, which may have 512 KiB,
/// would hold up the other calls of the media thread.
const SHORT: usize = 4 << 10;

/// One call's model.
pub struct FaqModel {
    sink: Arc<dyn SpeechSink>,
    memory: Arc<Mutex<Memory>>,
    /// Where long prompts are read. `None`: where the call lives, too.
    elsewhere: Option<Handle>,
}

/// What the model knows.
struct Memory {
    language: Language,
    prompt: String,
    index: Index,
}

impl FaqModel {
    pub fn new(language: Language, sink: Arc<dyn SpeechSink>, elsewhere: Option<Handle>) -> Self {
        Self {
            sink,
            memory: Arc::new(Mutex::new(Memory {
                language,
                prompt: String::new(),
                index: Index::new("", language),
            })),
            elsewhere,
        }
    }
}

impl Memory {
    fn answer(&mut self, request: &ModelRequest) -> Vec<LlmEvent> {
        let prompt = system_text(&request.messages);
        if prompt != self.prompt {
            self.index = Index::new(&prompt, self.language);
            self.prompt = prompt;
        }
        if let Some((result, is_error)) = tools::fresh_result(&request.messages) {
            let told = if is_error {
                say(self.language).tool_failed.into()
            } else {
                tools::in_words(result)
            };
            return vec![LlmEvent::Text(told)];
        }
        let asked = tools::caller_words(&request.messages);
        if let Some(tool) = named_tool(asked, &request.tools) {
            return vec![tool_call(tool, asked, request)];
        }
        if let Some(courtesy) = self.courtesy(asked, request) {
            return vec![courtesy];
        }
        let best = self.index.best(asked);
        if let Some(first) = best.first()
            && let Some(tool) = request.tools.iter().find(|tool| first.contains(&tool.name))
        {
            return vec![tool_call(tool, asked, request)];
        }
        if best.is_empty() {
            let lost = say(self.language).lost;
            let turns = request
                .messages
                .iter()
                .filter(|m| matches!(m, Message::User { .. }))
                .count();
            return vec![LlmEvent::Text(lost[turns % lost.len()].to_owned())];
        }
        best.into_iter()
            .map(|sentence| LlmEvent::Text(format!("{sentence} ")))
            .collect()
    }

    /// Greetings, thanks and goodbyes, when they are all that was said.
    fn courtesy(&self, asked: &str, request: &ModelRequest) -> Option<LlmEvent> {
        let said = words::words(asked);
        let only = |list: &[&str]| {
            !said.is_empty()
                && said.iter().any(|word| list.contains(&word.as_str()))
                && said.iter().all(|word| {
                    list.contains(&word.as_str()) || terms::is_stop(word, self.language)
                })
        };
        let say = say(self.language);
        if only(say.bye_words) {
            if let Some(tool) = request.tools.iter().find(|tool| tool.name == "end_call") {
                return Some(tool_call(tool, asked, request));
            }
            return Some(LlmEvent::Text(say.bye.to_owned()));
        }
        if only(say.thanks_words) {
            return Some(LlmEvent::Text(say.welcome.to_owned()));
        }
        only(say.hello_words).then(|| LlmEvent::Text(say.hello.to_owned()))
    }
}

impl LanguageModel for FaqModel {
    fn start(&mut self, reply: ReplyId, request: ModelRequest) {
        let long = system(&request.messages).map(str::len).sum::<usize>() > SHORT;
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| long) else {
            // Somebody else has it only while a prompt that was longer is being read.
            let events = lock(&self.memory).answer(&request);
            return tell(&*self.sink, reply, events);
        };
        let (memory, sink) = (Arc::clone(&self.memory), Arc::clone(&self.sink));
        elsewhere.spawn_blocking(move || {
            let events = lock(&memory).answer(&request);
            tell(&*sink, reply, events);
        });
    }

    /// An answer that comes too late has nobody who waits for it.
    fn cancel(&mut self, _reply: ReplyId) {}
}

fn tell(sink: &dyn SpeechSink, reply: ReplyId, events: Vec<LlmEvent>) {
    for event in events.into_iter().chain([LlmEvent::Done]) {
        if !sink.send(SpeechEvent::Llm { reply, event }) {
            return;
        }
    }
}

/// What the agent is told, piece by piece.
fn system(messages: &[Message]) -> impl Iterator<Item = &str> {
    messages.iter().filter_map(|message| match message {
        Message::System { content } => Some(content.as_str()),
        _ => None,
    })
}

fn system_text(messages: &[Message]) -> String {
    system(messages).flat_map(|text| [text, "\n"]).collect()
}

fn tool_call(tool: &ToolSpec, asked: &str, request: &ModelRequest) -> LlmEvent {
    LlmEvent::ToolCall(tools::call(
        tool,
        tools::arguments(tool, asked),
        &request.messages,
    ))
}

/// The tool whose name the caller said: `book_table` is said "book table", with small words between.
fn named_tool<'a>(asked: &str, offered: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    let said: Vec<String> = words::words(asked)
        .iter()
        .map(|word| terms::stem(word))
        .collect();
    offered.iter().find(|tool| {
        let name: Vec<String> = words::words(&tool.name.replace(['_', '-'], " "))
            .iter()
            .map(|word| terms::stem(word))
            .collect();
        // One word alone is too often meant otherwise, unless it is all that was said.
        (name.len() > 1 || said == name) && in_order(&name, &said)
    })
}

/// All of `needles` occur in `hay`, in order, with at most two words between neighbours.
fn in_order(needles: &[String], hay: &[String]) -> bool {
    let starts = (0..hay.len()).filter(|&i| needles.first() == Some(&hay[i]));
    for start in starts {
        let mut at = start;
        let rest = &needles[1..];
        let found = rest.iter().all(|needle| {
            let window = hay.iter().enumerate().skip(at + 1).take(3);
            match window.into_iter().find(|(_, word)| *word == needle) {
                Some((next, _)) => {
                    at = next;
                    true
                }
                None => false,
            }
        });
        if found {
            return true;
        }
    }
    false
}

/// What the model says of itself.
struct Say {
    lost: &'static [&'static str],
    tool_failed: &'static str,
    hello: &'static str,
    welcome: &'static str,
    bye: &'static str,
    hello_words: &'static [&'static str],
    thanks_words: &'static [&'static str],
    bye_words: &'static [&'static str],
}

fn say(language: Language) -> &'static Say {
    match language {
        Language::English => &ENGLISH,
        Language::French => &FRENCH,
    }
}

const ENGLISH: Say = Say {
    lost: &[
        "I'm sorry, I don't know that. Could you ask in other words?",
        "I'm not sure I understood. What would you like to know?",
    ],
    tool_failed: "I'm sorry, that did not work. Is there anything else?",
    hello: "Hello! What would you like to know?",
    welcome: "You're welcome. Is there anything else?",
    bye: "Thank you for calling. Goodbye!",
    hello_words: &[
        "hello",
        "hi",
        "hey",
        "morning",
        "afternoon",
        "evening",
        "good",
    ],
    thanks_words: &[
        "thanks",
        "thank",
        "great",
        "perfect",
        "wonderful",
        "okay",
        "lovely",
    ],
    bye_words: &["goodbye", "bye", "good"],
};

const FRENCH: Say = Say {
    lost: &[
        "Je suis désolé, je ne le sais pas. Pouvez-vous demander autrement ?",
        "Je ne suis pas sûr d'avoir compris. Que voulez-vous savoir ?",
    ],
    tool_failed: "Je suis désolé, cela n'a pas marché. Autre chose ?",
    hello: "Bonjour ! Que voulez-vous savoir ?",
    welcome: "Je vous en prie. Autre chose ?",
    bye: "Merci de votre appel. Au revoir !",
    hello_words: &["bonjour", "bonsoir", "salut", "allô"],
    thanks_words: &["merci", "parfait", "super"],
    bye_words: &["revoir", "adieu"],
};

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use media::config::ToolKind;

    use super::*;

    #[derive(Default)]
    struct EventSink(Mutex<Vec<LlmEvent>>);

    impl SpeechSink for EventSink {
        fn send(&self, event: SpeechEvent) -> bool {
            if let SpeechEvent::Llm { event, .. } = event {
                lock(&self.0).push(event);
            }
            true
        }
    }

    const PROMPT: &str = "You are the receptionist of a small hotel. Be friendly and short.\n\
        Breakfast is served from 7 to 10:30 in the morning.\n\
        Parking costs 12 dollars a night.\n\
        When the caller wants a table in the restaurant, use book_table.";

    fn asked(language: Language, prompt: &str, said: &str) -> Vec<LlmEvent> {
        let ear = Arc::new(EventSink::default());
        let sink: Arc<dyn SpeechSink> = Arc::clone(&ear) as _;
        let mut model = FaqModel::new(language, sink, None);
        let tool = ToolSpec {
            name: "book_table".into(),
            description: String::new(),
            kind: ToolKind::Client,
            parameters: "{}".into(),
            timeout_ms: 1000,
            filler_message: None,
        };
        let messages = vec![
            Message::System {
                content: prompt.into(),
            },
            Message::User {
                content: said.into(),
            },
        ];
        let request = ModelRequest {
            left_out: false,
            messages,
            tools: vec![tool],
            temperature: None,
            max_tokens: 100,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
        };
        model.start(ReplyId(1), request);
        lock(&ear.0).clone()
    }

    fn text(said: &str) -> String {
        let events = asked(Language::English, PROMPT, said);
        assert_eq!(events.last(), Some(&LlmEvent::Done));
        let texts = events.iter().map(|event| match event {
            LlmEvent::Text(text) => text.as_str(),
            _ => "",
        });
        texts.collect()
    }

    #[test]
    fn the_best_sentence_answers() {
        assert_eq!(
            text("when can i have breakfast").trim(),
            "Breakfast is served from 7 to 10:30 in the morning."
        );
        assert_eq!(
            text("how much do you charge for parking the car").trim(),
            "Parking costs 12 dollars a night."
        );
        // Misheard words are matched by their sound.
        assert_eq!(
            text("wet time is brake fast").trim(),
            "Breakfast is served from 7 to 10:30 in the morning."
        );
    }

    /// Where each event was told.
    struct Places(std::sync::mpsc::Sender<(std::thread::ThreadId, LlmEvent)>);

    impl SpeechSink for Places {
        fn send(&self, event: SpeechEvent) -> bool {
            let SpeechEvent::Llm { event, .. } = event else {
                return false;
            };
            self.0.send((std::thread::current().id(), event)).is_ok()
        }
    }

    #[tokio::test]
    async fn a_long_prompt_is_not_read_where_the_calls_live() {
        let (told, events) = std::sync::mpsc::channel();
        let here = std::thread::current().id();
        let mut model = FaqModel::new(
            Language::English,
            Arc::new(Places(told)),
            Some(Handle::current()),
        );
        let filler = "The garden has roses and tulips. ".repeat(4_000);
        for (prompt, stays) in [
            (PROMPT.to_owned(), true),
            (format!("{filler}\n{PROMPT}"), false),
        ] {
            let messages = vec![
                Message::System { content: prompt },
                Message::User {
                    content: "when can i have breakfast".into(),
                },
            ];
            model.start(
                ReplyId(1),
                ModelRequest {
                    left_out: false,
                    messages,
                    tools: Vec::new(),
                    temperature: None,
                    max_tokens: 100,
                    frequency_penalty: 0.0,
                    presence_penalty: 0.0,
                },
            );
            let mut text = String::new();
            loop {
                let (place, event) = events.recv().expect("an event");
                assert_eq!(place == here, stays);
                match event {
                    LlmEvent::Text(part) => text.push_str(&part),
                    last => {
                        assert_eq!(last, LlmEvent::Done);
                        break;
                    }
                }
            }
            assert_eq!(
                text.trim(),
                "Breakfast is served from 7 to 10:30 in the morning."
            );
        }
    }

    #[test]
    fn asks_back_when_nothing_fits() {
        assert!(text("who won the football").contains('?'));
        assert!(text("").contains('?'));
    }

    #[test]
    fn courtesies_get_courtesies() {
        assert!(text("hello there").starts_with("Hello"));
        assert!(text("thank you very much").contains("welcome"));
        assert!(text("okay good bye").contains("Goodbye"));
    }

    #[test]
    fn tools_are_called_when_named_by_caller_or_prompt() {
        for said in [
            "please book a table",
            "could we have a table in your restaurant tonight",
        ] {
            let events = asked(Language::English, PROMPT, said);
            assert!(
                matches!(&events[0], LlmEvent::ToolCall(call) if call.name == "book_table"),
                "{said}: {events:?}"
            );
        }
    }

    #[test]
    fn french_prompts_answer_french_questions() {
        let prompt = "Vous êtes la réception d'un hôtel.\nLe petit déjeuner est servi de 7 à 10 heures.\nLe parking coûte 12 euros.";
        let events = asked(
            Language::French,
            prompt,
            "à quelle heure est le petit déjeuner",
        );
        assert_eq!(
            events[0],
            LlmEvent::Text("Le petit déjeuner est servi de 7 à 10 heures. ".into())
        );
    }
}
