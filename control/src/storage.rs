//! Where recordings and tapes lie: an object store. Today a local folder; another store is another
//! variant of [`Storage`], with the same five verbs. Keys are made by the server
//! ([`ObjectKey`]), so nothing a client wrote becomes a path.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs::{self, File};

/// The name of one object: words of `a-z 0-9 . -` joined by `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// The recording of a call.
    pub fn recording(account: impl std::fmt::Display, call: impl std::fmt::Display) -> Self {
        Self(format!("recordings/{account}/{call}.wav"))
    }

    /// The tape that is kept beside a recording.
    pub fn tape(account: impl std::fmt::Display, call: impl std::fmt::Display) -> Self {
        Self(format!("recordings/{account}/{call}.tape"))
    }

    /// A key as it was stored; `None` for text that is none (so a damaged row cannot lead outside).
    pub fn parse(text: &str) -> Option<Self> {
        let word = |word: &str| {
            !word.is_empty()
                && !word.starts_with('.')
                && word
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
        };
        text.split('/').all(word).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object store.
#[derive(Clone, Debug)]
pub enum Storage {
    /// A folder on this machine.
    Local { root: PathBuf },
}

impl Storage {
    /// A store in `root`, which is created when it is missing.
    pub fn local(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root)?;
        Ok(Self::Local { root })
    }

    /// The region that records name.
    pub const fn region(&self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
        }
    }

    /// Moves a finished local file into the store.
    pub async fn take_file(&self, key: &ObjectKey, from: &Path) -> io::Result<()> {
        let to = self.path(key);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).await?;
        }
        match fs::rename(from, &to).await {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                // Another file system: copy beside the place, then rename, so nobody ever sees half
                // an object.
                let part = to.with_extension("part");
                fs::copy(from, &part).await?;
                File::open(&part).await?.sync_all().await?;
                fs::rename(&part, &to).await?;
                fs::remove_file(from).await
            }
            other => other,
        }
    }

    /// Opens an object for reading; its length in bytes beside it.
    pub async fn open(&self, key: &ObjectKey) -> io::Result<(File, u64)> {
        let file = File::open(self.path(key)).await?;
        let length = file.metadata().await?.len();
        Ok((file, length))
    }

    /// Removes an object for good. One that is not there counts as removed.
    pub async fn delete(&self, key: &ObjectKey) -> io::Result<()> {
        match fs::remove_file(self.path(key)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        match self {
            Self::Local { root } => root.join(&key.0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn keys_that_were_not_made_here_are_refused() {
        assert_eq!(
            ObjectKey::parse("recordings/a1/b2.wav").unwrap().as_str(),
            "recordings/a1/b2.wav"
        );
        for bad in [
            "",
            "/etc/passwd",
            "a//b",
            "../x",
            "a/../b",
            "a/.b",
            "a/b\0",
            "a\\b",
            "A/b",
            "a/",
        ] {
            assert_eq!(ObjectKey::parse(bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_file_is_moved_in_read_and_removed() {
        let folder = std::env::temp_dir().join(format!("storage-{}", uuid::Uuid::new_v4()));
        let storage = Storage::local(folder.join("objects")).unwrap();
        let source = folder.join("made.wav");
        std::fs::write(&source, b"RIFF").unwrap();
        let key = ObjectKey::recording("a1", "c1");

        storage.take_file(&key, &source).await.unwrap();
        assert!(!source.exists());
        let (mut file, length) = storage.open(&key).await.unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).await.unwrap();
        assert_eq!((length, text.as_str()), (4, "RIFF"));

        storage.delete(&key).await.unwrap();
        storage.delete(&key).await.unwrap();
        assert_eq!(
            storage.open(&key).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
