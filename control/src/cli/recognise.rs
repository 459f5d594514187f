//! `sidetone wer`: how well the offline recogniser hears, measured with this machine's own tools.
//!
//! Human speech whose words are known (Asterisk's prompts, pocketsphinx's test data) and synthetic
//! callers go through the same pool that serves calls, each utterance as the first of its call, at
//! 16 kHz or through a telephone. The set `questions` also asks the model `faq` for its answer and
//! counts right ones.

mod sets;
mod sound;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use media::config::Language;
use media::rtp::sdp::Codec;
use media::speech::words as spoken;
use media::speech::{
    LanguageModel, LlmEvent, Message, ModelRequest, Recogniser, RecogniserEvent, ReplyId,
    SpeechEvent, SpeechSink, UtteranceId,
};

use crate::supervisor::Supervisor;
use crate::vendors::faq::FaqModel;
use crate::vendors::pocketsphinx::decoder::{FrontEnd, ModelFiles};
use crate::vendors::pocketsphinx::mllr::Fit;
use crate::vendors::pocketsphinx::pool::Pool;
use crate::vendors::words::words;
use sets::{Item, Set};

/// The command's options.
#[derive(clap::Args, Debug)]
pub struct WerArgs {
    /// What to listen to.
    #[arg(long, value_enum, default_value = "questions")]
    pub set: Set,
    /// Send the sound through a telephone first (8 kHz μ-law).
    #[arg(long)]
    pub telco: bool,
    /// Let the telephone also cut below 300 Hz and above 3400 Hz.
    #[arg(long, requires = "telco")]
    pub narrow: bool,
    /// Send it over RTP first, in this codec.
    #[arg(long, value_enum)]
    pub codec: Option<LineCodec>,
    /// Per cent of its packets that are lost; several, as in 0,5,10, make a table.
    #[arg(long, requires = "codec", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=50))]
    pub loss: Vec<u32>,
    /// How many of them in a row.
    #[arg(long, requires = "codec", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub burst: u32,
    /// Which of them are lost: the same ones for the same number.
    #[arg(long, requires = "codec", default_value_t = 0)]
    pub seed: u64,
    /// The synthetic callers: flite's `slt`, `rms`, `awb`, `kal16`, or `espeak`.
    #[arg(long, value_delimiter = ',', default_value = "slt,rms,awb,espeak")]
    pub voices: Vec<String>,
    /// Only the first so many utterances of each voice.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub first: Option<u32>,
    /// All utterances of a voice in one call, instead of a call for each.
    #[arg(long)]
    pub one_call: bool,
    /// Print each utterance as it should be and as it was heard.
    #[arg(long, short)]
    pub verbose: bool,
    /// Make the acoustic transform for a telephone's band, write it here, and end.
    #[arg(long, value_name = "FILE")]
    pub make_transform: Option<PathBuf>,
}

/// The codecs of telephone lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LineCodec {
    Pcmu,
    Pcma,
    G722,
    Opus,
}

impl LineCodec {
    /// As session descriptions know it.
    pub(super) const fn of_line(self) -> Codec {
        match self {
            Self::Pcmu => Codec::Pcmu,
            Self::Pcma => Codec::Pcma,
            Self::G722 => Codec::G722,
            Self::Opus => Codec::Opus,
        }
    }
}

impl WerArgs {
    /// The lines that are measured; `None`: the sound as it is.
    fn lines(&self) -> Vec<Option<sound::LossyPath>> {
        let Some(codec) = self.codec.map(LineCodec::of_line) else {
            return vec![None];
        };
        let line = |loss: &u32| sound::LossyPath {
            codec,
            loss: *loss,
            burst: self.burst,
            seed: self.seed,
        };
        self.loss.iter().map(line).map(Some).collect()
    }
}

/// Measures and prints a table.
pub fn run(args: &WerArgs) -> ExitCode {
    let result = match &args.make_transform {
        Some(path) => make_transform(path),
        None => measure(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidetone wer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &WerArgs) -> Result<(), String> {
    let scratch = Scratch::new()?;
    let pool = Pool::start(1, 1, &scratch.0, &Supervisor::default())?;
    let groups = sets::load(args.set, &args.voices, &scratch.0)?;
    let band = match (args.telco, args.narrow) {
        (false, _) => "16 kHz",
        (true, false) => "8 kHz μ-law",
        (true, true) => "300-3400 Hz μ-law",
    };
    let lines = args.lines();
    let band = match lines.first() {
        Some(Some(line)) => format!(
            "{band}, {} over RTP, {} lost in a row",
            line.codec.name(),
            line.burst
        ),
        _ => band.to_owned(),
    };
    println!(
        "{:<24} {:>7} {:>10} {:>7} {:>8} {:>8} {:>9}   ({band})",
        "set", "lost %", "utterances", "words", "WER %", "right %", "real time"
    );
    for (group, line) in groups
        .iter()
        .flat_map(|g| lines.iter().map(move |l| (g, *l)))
    {
        let mut total = Total::default();
        let mut call = args
            .one_call
            .then(|| RecognisedCall::open(&pool, &group.domain))
            .transpose()?;
        let count = args.first.map_or(usize::MAX, |first| first as usize);
        for item in group.items.iter().take(count) {
            let mut pcm = sound::through(&item.pcm, args.telco, args.narrow)?;
            if let Some(line) = line {
                let heard = sound::over(&pcm, line)?;
                total.packets += heard.packets;
                total.lost += heard.lost;
                pcm = heard.pcm;
            }
            let (heard, waited) = match &mut call {
                Some(call) => call.hear(&pcm)?,
                None => RecognisedCall::open(&pool, &group.domain)?.hear(&pcm)?,
            };
            let (wanted, got) = (words(&item.text), words(&heard));
            total.errors += edits(&wanted, &got);
            total.words += wanted.len();
            total.utterances += 1;
            total.decoding += waited;
            total.sound += Duration::from_secs_f64(pcm.len() as f64 / f64::from(media::time::RATE));
            let right = item.answer.as_ref().map(|answer| {
                let said = answer_to(&group.domain, &heard);
                let right = said.trim_start().starts_with(answer.as_str());
                total.answers += 1;
                total.right += usize::from(right);
                (right, said)
            });
            if args.verbose {
                show(item, &heard, right.as_ref());
            }
        }
        total.print(&group.name);
    }
    pool.stop();
    Ok(())
}

fn show(item: &Item, heard: &str, answer: Option<&(bool, String)>) {
    println!("  said  {}", item.text);
    println!("  heard {heard}");
    if let Some((right, said)) = answer {
        println!("  {} {said}", if *right { "right" } else { "WRONG" });
    }
}

#[derive(Default)]
struct Total {
    packets: usize,
    lost: usize,
    utterances: usize,
    words: usize,
    errors: usize,
    answers: usize,
    right: usize,
    decoding: Duration,
    sound: Duration,
}

impl Total {
    fn print(&self, name: &str) {
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let right = match self.answers {
            0 => "-".to_owned(),
            answers => format!("{:.1}", percent(self.right, answers)),
        };
        let lost = match self.packets {
            0 => "-".to_owned(),
            packets => format!("{:.1}", percent(self.lost, packets)),
        };
        println!(
            "{name:<24} {lost:>7} {:>10} {:>7} {:>8.1} {right:>8} {:>9.2}",
            self.utterances,
            self.words,
            percent(self.errors, self.words),
            self.decoding.as_secs_f64() / self.sound.as_secs_f64().max(0.001)
        );
    }
}

/// What a recogniser or a model may have said before it is read: an utterance and an answer have a few
/// dozen events each. One more is lost, and whoever says it is told so.
const MOST_EVENTS: usize = 1_024;

/// A call, as far as hearing goes.
struct RecognisedCall {
    recogniser: Box<dyn Recogniser>,
    heard: mpsc::Receiver<SpeechEvent>,
    next: u32,
}

impl RecognisedCall {
    fn open(pool: &Arc<Pool>, domain: &str) -> Result<Self, String> {
        let (events, heard) = mpsc::sync_channel(MOST_EVENTS);
        let seat = pool
            .seat(domain)
            .map_err(|none| format!("no recogniser: {none:?}"))?;
        Ok(Self {
            recogniser: Box::new(seat.recogniser(Arc::new(EventSender(events)))),
            heard,
            next: 0,
        })
    }

    /// One utterance, and how long its words took after its end, with the sound given as fast as it
    /// is taken (so this is decoding time, not a call's delay).
    fn hear(&mut self, pcm: &[i16]) -> Result<(String, Duration), String> {
        let id = UtteranceId(self.next);
        self.next += 1;
        self.recogniser.begin(id);
        for frame in pcm.chunks(320) {
            self.recogniser.audio(id, frame);
        }
        self.recogniser.finish(id);
        let ended = Instant::now();
        loop {
            match self.heard.recv_timeout(Duration::from_secs(120)) {
                Ok(SpeechEvent::Recogniser(RecogniserEvent::Final { text, .. })) => {
                    return Ok((spoken::words(&text).into_owned(), ended.elapsed()));
                }
                Ok(SpeechEvent::Recogniser(RecogniserEvent::Failed { message, .. })) => {
                    return Err(message);
                }
                Ok(_) => {}
                Err(_) => return Err("the recogniser did not answer".into()),
            }
        }
    }
}

/// What the model `faq` says with this prompt.
fn answer_to(prompt: &str, heard: &str) -> String {
    let (events, said) = mpsc::sync_channel(MOST_EVENTS);
    let mut model = FaqModel::new(Language::English, Arc::new(EventSender(events)), None);
    let request = ModelRequest {
        left_out: false,
        messages: vec![
            Message::System {
                content: prompt.to_owned(),
            },
            Message::User {
                content: heard.to_owned(),
            },
        ],
        tools: Vec::new(),
        temperature: None,
        max_tokens: 512,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
    };
    model.start(ReplyId(1), request);
    let texts = said.try_iter().filter_map(|event| match event {
        SpeechEvent::Llm {
            event: LlmEvent::Text(text),
            ..
        } => Some(text),
        _ => None,
    });
    texts.collect()
}

struct EventSender(mpsc::SyncSender<SpeechEvent>);

impl SpeechSink for EventSender {
    fn send(&self, event: SpeechEvent) -> bool {
        self.0.try_send(event).is_ok()
    }
}

/// Renders sentences wide and through a telephone, and fits the maps from the one to the other.
fn make_transform(path: &Path) -> Result<(), String> {
    let scratch = Scratch::new()?;
    let front_end = FrontEnd::open(&ModelFiles::packaged()?)?;
    let mut fit = Fit::default();
    for (voice, sentence) in sets::transform_sentences() {
        let pcm = sets::spoken(voice, &sentence, &scratch.0)?;
        let wide = sound::with_noise(&pcm);
        let narrow = sound::through(&wide, true, false)?;
        fit.add(&front_end, &wide, &narrow);
    }
    let transform = fit.solve().ok_or("too little speech for a transform")?;
    std::fs::write(path, transform.file())
        .map_err(|error| format!("{}: {error}", path.display()))?;
    for (band, mean) in ["wide", "telephone"].into_iter().zip(fit.usual_means()) {
        println!("usual mean, {band}: {mean:.1?}");
    }
    println!(
        "fitted to {} frames, written to {}",
        fit.frames(),
        path.display()
    );
    Ok(())
}

/// Word errors: the fewest substitutions, deletions and insertions.
fn edits(wanted: &[String], got: &[String]) -> usize {
    let mut row: Vec<usize> = (0..=got.len()).collect();
    for (i, want) in wanted.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, word) in got.iter().enumerate() {
            let replaced = diagonal + usize::from(want != word);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[got.len()]
}

/// A folder of our own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("sidetone-wer-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind is in the system's temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
