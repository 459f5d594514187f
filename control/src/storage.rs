//! Where recordings and tapes lie: an object store (a local folder, or a bucket of a vendor). Keys are
//! made by the server ([`ObjectKey`]), so nothing a client wrote becomes a path.
//!
//! Clients never talk to the store: links lead to this server, which reads through, so that a deleted
//! recording and a revoked token end access at once.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::prefix::PrefixStore;
use object_store::{GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::fs::{self, File};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use crate::config;

/// How long a store may take to begin an answer while a listener waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an upload that are sent at a time; a bucket takes no smaller parts than 5 MiB.
const PART: u64 = 5 << 20;
/// Uploads at a time, each with a part in memory: many calls may end together.
const UPLOADS: usize = 8;

/// The name of one object: words of `a-z 0-9 . -` joined by `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// The recording of a call.
    pub fn recording(account: impl std::fmt::Display, call: impl std::fmt::Display) -> Self {
        Self(format!("recordings/{account}/{call}.wav"))
    }

    /// What was kept of a recording that broke off.
    pub fn partial(account: impl std::fmt::Display, call: impl std::fmt::Display) -> Self {
        Self(format!("recordings/{account}/{call}.partial.wav"))
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

    fn path(&self) -> StorePath {
        StorePath::from(self.0.as_str())
    }
}

/// An object store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    /// Where objects lie, if that is on this machine: files are moved in, not copied.
    root: Option<PathBuf>,
    region: Arc<str>,
    uploads: Arc<Semaphore>,
}

/// The bytes of an object, as they come.
pub type Content = BoxStream<'static, io::Result<Bytes>>;

impl Storage {
    /// A store in `root`, which is created when it is missing.
    pub fn local(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root)?;
        Ok(Self {
            store: Arc::new(LocalFileSystem::new_with_prefix(&root)?),
            root: Some(root),
            region: "local".into(),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
        })
    }

    /// The bucket that the settings name. `env`: the environment, for the vendor's credentials
    /// (`AWS_…`, `GOOGLE_…`, `AZURE_…`). Nothing is asked of the bucket yet.
    pub fn remote(
        settings: &config::Storage,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> io::Result<Self> {
        let url = reqwest::Url::parse(&settings.url).map_err(io::Error::other)?;
        let vendors = ["AWS_", "GOOGLE_", "AZURE_"];
        let mut options: BTreeMap<String, String> = env
            .into_iter()
            .filter(|(name, _)| vendors.iter().any(|vendor| name.starts_with(vendor)))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        let mut set = |keys: &[&str], value: &str| {
            for key in keys.iter().filter(|_| !value.is_empty()) {
                options.insert((*key).to_owned(), value.to_owned());
            }
        };
        set(
            &["aws_endpoint", "azure_endpoint", "google_base_url"],
            &settings.endpoint,
        );
        set(&["aws_region"], &settings.region);
        if settings.endpoint.starts_with("http://") {
            set(&["allow_http"], "true");
        }
        let (store, prefix) = object_store::parse_url_opts(&url, options)?;
        let store: Arc<dyn ObjectStore> = store.into();
        let store = if prefix.is_root() {
            store
        } else {
            Arc::new(PrefixStore::new(store, prefix))
        };
        let region = match settings.region.as_str() {
            "" => url.scheme(),
            region => region,
        };
        Ok(Self {
            store,
            root: None,
            region: region.into(),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
        })
    }

    /// The region that records name.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The folder of a local store.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Moves a finished local file into the store. Only when the whole of it is there, the file is
    /// taken away.
    pub async fn take_file(&self, key: &ObjectKey, from: &Path) -> io::Result<()> {
        match &self.root {
            Some(root) => move_file(from, &root.join(&key.0)).await,
            None => {
                self.upload(key, from).await?;
                fs::remove_file(from).await
            }
        }
    }

    async fn upload(&self, key: &ObjectKey, from: &Path) -> io::Result<()> {
        // It is never closed; without a permit there would only be more in memory.
        let _turn = self.uploads.acquire().await.map_err(io::Error::other)?;
        let path = key.path();
        let mut file = File::open(from).await?;
        let length = file.metadata().await?.len();
        if length <= PART {
            self.store.put(&path, fs::read(from).await?.into()).await?;
        } else {
            let mut upload = self.store.put_multipart(&path).await?;
            if let Err(error) = in_parts(upload.as_mut(), &mut file).await {
                // The bucket forgets unfinished uploads by its own rules too.
                if let Err(error) = upload.abort().await {
                    tracing::debug!(%error, "an upload could not be taken back");
                }
                return Err(error);
            }
        }
        let stored = self.length(key).await?;
        if stored != length {
            return Err(io::Error::other(format!(
                "{stored} of {length} bytes are in the store"
            )));
        }
        Ok(())
    }

    /// The length of an object, bytes.
    pub async fn length(&self, key: &ObjectKey) -> io::Result<u64> {
        let path = key.path();
        let meta = in_time(self.store.head(&path)).await?;
        Ok(meta.size)
    }

    /// Reads a range of an object (`range.end` is not read); the object's whole length beside it.
    pub async fn read(&self, key: &ObjectKey, range: Range<u64>) -> io::Result<(Content, u64)> {
        let path = key.path();
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let found = in_time(self.store.get_opts(&path, options)).await?;
        let length = found.meta.size;
        Ok((found.into_stream().map_err(io::Error::from).boxed(), length))
    }

    /// Removes an object for good. One that is not there counts as removed.
    pub async fn delete(&self, key: &ObjectKey) -> io::Result<()> {
        let path = key.path();
        match in_time(self.store.delete(&path)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

async fn in_parts(upload: &mut dyn MultipartUpload, file: &mut File) -> io::Result<()> {
    loop {
        let mut part = Vec::new();
        if file.take(PART).read_to_end(&mut part).await? == 0 {
            upload.complete().await?;
            return Ok(());
        }
        upload.put_part(part.into()).await?;
    }
}

async fn in_time<T>(work: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(io::Error::from),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the object store does not answer",
        )),
    }
}

async fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).await?;
    }
    match fs::rename(from, to).await {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            // Another file system: copy beside the place, then rename, so nobody ever sees half
            // an object.
            let part = to.with_extension("part");
            let copied = async {
                fs::copy(from, &part).await?;
                File::open(&part).await?.sync_all().await?;
                fs::rename(&part, to).await
            };
            if let Err(error) = copied.await {
                // Half a file is of no use, and the disk may be full.
                drop(fs::remove_file(&part).await);
                return Err(error);
            }
            fs::remove_file(from).await
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

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
        assert_eq!(storage.length(&key).await.unwrap(), 4);
        let (content, length) = storage.read(&key, 1..3).await.unwrap();
        let parts: Vec<Bytes> = content.try_collect().await.unwrap();
        assert_eq!((length, parts.concat().as_slice()), (4, &b"IF"[..]));

        storage.delete(&key).await.unwrap();
        storage.delete(&key).await.unwrap();
        assert_eq!(
            storage.length(&key).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_bucket_is_named_by_its_url_and_nothing_is_asked_of_it_yet() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let settings = |url: &str| config::Storage {
            url: url.to_owned(),
            endpoint: "http://127.0.0.1:9".to_owned(),
            region: "eu-west-3".to_owned(),
        };
        let env = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let storage = Storage::remote(&settings("s3://bucket/some/prefix"), env.clone()).unwrap();
        assert_eq!((storage.region(), storage.root()), ("eu-west-3", None));
        assert!(!format!("{storage:?}").contains("AWS_SECRET"));
        assert!(Storage::remote(&settings("ftp://bucket"), env).is_err());
    }
}
