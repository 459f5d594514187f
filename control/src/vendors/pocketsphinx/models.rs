//! The files a decoder listens with: the agents' language models, made when first needed, and the
//! acoustic transforms.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::super::queue::lock;
use super::decoder::Decoder;
use super::{lm, mllr};

/// Language model files kept on disk. A model is made in a tenth of a second, so few are enough.
const KEPT_FILES: usize = 64;

/// The transform for a telephone's band, made by `sidetone wer --make-transform`.
const TELEPHONE: &str = include_str!("telephone.mllr");

const MODEL_PREFIX: &str = "words-";
const TELEPHONE_FILE: &str = "telephone.mllr";
const WIDE_FILE: &str = "wide.mllr";

/// What a call's callers may say.
pub(super) struct Words {
    pub(super) key: String,
    text: String,
}

impl Words {
    pub(super) fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self {
            key: format!("{:016x}", hasher.finish()),
            text: text.to_owned(),
        }
    }
}

/// The folder.
pub(super) struct ModelFolder {
    folder: PathBuf,
    dictionary: PathBuf,
    /// Held while a language model file is made or read, so that none is removed under a reader.
    busy: Mutex<()>,
}

impl ModelFolder {
    /// Writes the transforms, and removes the language models of an earlier version.
    pub(super) fn prepare(folder: &Path, dictionary: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        for path in model_files(folder)? {
            std::fs::remove_file(path)?;
        }
        std::fs::write(folder.join(TELEPHONE_FILE), TELEPHONE)?;
        std::fs::write(folder.join(WIDE_FILE), mllr::Transform::identity().file())?;
        let (folder, dictionary) = (folder.to_owned(), dictionary.to_owned());
        Ok(Self {
            folder,
            dictionary,
            busy: Mutex::new(()),
        })
    }

    pub(super) fn transform(&self, narrow: bool) -> PathBuf {
        self.folder
            .join(if narrow { TELEPHONE_FILE } else { WIDE_FILE })
    }

    /// Makes the decoder listen for these words.
    pub(super) fn use_words(&self, decoder: &mut Decoder, words: &Words) -> Result<(), String> {
        if decoder.has_language(&words.key) {
            return decoder.use_language(&words.key, None);
        }
        let _held = lock(&self.busy);
        let path = self
            .folder
            .join(format!("{MODEL_PREFIX}{}.arpa", words.key));
        if !path.is_file() {
            self.make_model(words, &path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        decoder.use_language(&words.key, Some(&path))
    }

    fn make_model(&self, words: &Words, path: &Path) -> io::Result<()> {
        let dictionary = std::fs::read_to_string(&self.dictionary)?;
        let known = lm::dictionary(&dictionary);
        let model = lm::build(&words.text, |word| known.contains(word));
        if !model.unknown.is_empty() {
            tracing::info!(words = ?model.unknown, "the recogniser cannot know these words of the agent");
        }
        make_room(&self.folder)?;
        let unfinished = path.with_extension("new");
        std::fs::write(&unfinished, model.arpa)?;
        std::fs::rename(unfinished, path)
    }
}

fn model_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with(MODEL_PREFIX) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes the oldest language model files, so that one more fits the bound.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for path in model_files(folder)? {
        files.push((path.metadata()?.modified()?, path));
    }
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(KEPT_FILES);
    for (_, path) in &files[..surplus] {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
