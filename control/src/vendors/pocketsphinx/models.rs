//! The files a decoder listens with: the agents' language models, made when first needed, and the
//! acoustic transforms.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
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
const MODEL_EXTENSION: &str = "arpa";
/// Words of the agent that have no pronunciation, one a line; beside the model.
const UNKNOWN_EXTENSION: &str = "unknown.txt";
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
            .join(format!("{MODEL_PREFIX}{}.{MODEL_EXTENSION}", words.key));
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
        make_room(&self.folder)?;
        if !model.unknown.is_empty() {
            // What an agent says is not for the log.
            let list = path.with_extension(UNKNOWN_EXTENSION);
            write_private(&list, &(model.unknown.join("\n") + "\n"))?;
            let (words, list) = (model.unknown.len(), list.display());
            tracing::info!(words, %list, "the recogniser cannot know some words of an agent");
        }
        let unfinished = path.with_extension("new");
        write_private(&unfinished, &model.arpa)?;
        std::fs::rename(unfinished, path)
    }
}

/// Writes a file that nobody else may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// All that was written for agents: models, lists of unknown words, what was left unfinished.
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
        if path.extension().is_some_and(|end| end == MODEL_EXTENSION) {
            files.push((path.metadata()?.modified()?, path));
        }
    }
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(KEPT_FILES);
    for (_, path) in &files[..surplus] {
        std::fs::remove_file(path)?;
        match std::fs::remove_file(path.with_extension(UNKNOWN_EXTENSION)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::{Logged, TempDir};

    fn folder() -> (TempDir, ModelFolder) {
        let root = TempDir::new().unwrap();
        let dictionary = root.path().join("small.dict");
        std::fs::write(&dictionary, "good G UH D\nday D EY\n").unwrap();
        let made = ModelFolder::prepare(&root.path().join("models"), &dictionary).unwrap();
        (root, made)
    }

    fn make(folder: &ModelFolder, text: &str) -> PathBuf {
        let words = Words::of(text);
        let path = folder
            .folder
            .join(format!("{MODEL_PREFIX}{}.{MODEL_EXTENSION}", words.key));
        folder.make_model(&words, &path).unwrap();
        path
    }

    #[test]
    fn words_that_nobody_can_pronounce_stand_in_a_private_file_and_not_in_the_log() {
        let (_root, folder) = folder();
        let log = Logged::start();
        let path = make(&folder, "Good day, Zyxcanary and Qwertcanary.");
        let logged = log.text();
        assert!(!logged.to_lowercase().contains("canary"), "{logged}");
        let list = path.with_extension(UNKNOWN_EXTENSION);
        assert!(logged.contains(list.to_str().unwrap()), "{logged}");
        let listed = std::fs::read_to_string(&list).unwrap();
        for word in ["zyxcanary", "qwertcanary"] {
            assert!(listed.lines().any(|line| line == word), "{listed}");
        }
        for file in [&path, &list] {
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    #[test]
    fn lists_go_with_their_models() {
        let (_root, folder) = folder();
        for number in 0..KEPT_FILES {
            let old = folder.folder.join(format!("{MODEL_PREFIX}{number}.none"));
            for end in [MODEL_EXTENSION, UNKNOWN_EXTENSION] {
                std::fs::write(old.with_extension(end), "").unwrap();
            }
        }
        make(&folder, "Good day zyx.");
        let count = |end: &str| {
            let files = model_files(&folder.folder).unwrap();
            let ends = |path: &&PathBuf| path.to_str().unwrap().ends_with(end);
            files.iter().filter(ends).count()
        };
        assert_eq!(count(MODEL_EXTENSION), KEPT_FILES);
        assert_eq!(count(UNKNOWN_EXTENSION), KEPT_FILES);
    }
}
