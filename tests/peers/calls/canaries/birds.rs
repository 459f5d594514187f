//! The canaries themselves: each a string that stands nowhere else, with the name of what it is.

use std::sync::Mutex;

use super::may_hold;

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kept {
    /// A secret: only its hash, or sealed.
    Secret,
    /// A private text: in the database, and for its account.
    Text,
    /// Something wrong that a stranger said: not at all.
    Thrown,
}

struct Bird {
    what: &'static str,
    song: String,
    kept: Kept,
}

/// All canaries of a test.
pub(super) struct Birds {
    all: Mutex<Vec<Bird>>,
}

impl Birds {
    pub(super) fn new() -> Self {
        Self {
            all: Mutex::new(Vec::new()),
        }
    }

    fn new_song(&self, what: &'static str, kept: Kept) -> String {
        let mut all = self.all.lock().unwrap();
        // Letters and digits: it passes every rule for names, words and tokens, and is one word.
        let song = format!(
            "canary{:02}{}",
            all.len(),
            &uuid::Uuid::new_v4().simple().to_string()[..16]
        );
        let known = song.clone();
        all.push(Bird { what, song, kept });
        known
    }

    pub(super) fn secret(&self, what: &'static str) -> String {
        self.new_song(what, Kept::Secret)
    }

    pub(super) fn text(&self, what: &'static str) -> String {
        self.new_song(what, Kept::Text)
    }

    pub(super) fn thrown(&self, what: &'static str) -> String {
        self.new_song(what, Kept::Thrown)
    }

    /// A number that nobody has, in E.164.
    pub(super) fn number(&self, what: &'static str) -> String {
        let mut all = self.all.lock().unwrap();
        let digits = uuid::Uuid::new_v4().as_u128() % 100_000_000;
        let song = format!("1555{digits:08}");
        let number = format!("+{song}");
        let kept = Kept::Text;
        all.push(Bird { what, song, kept });
        number
    }

    /// A secret that the server made and showed once.
    pub(super) fn shown_once(&self, what: &'static str, song: &str) {
        assert!(song.len() >= 16, "{what}: {song:?}");
        let (song, kept) = (song.to_owned(), Kept::Secret);
        self.all.lock().unwrap().push(Bird { what, song, kept });
    }

    /// 32 bytes in base64, which are a secret in either form.
    pub(super) fn master_key(&self) -> String {
        let bytes: Vec<u8> = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()]
            .iter()
            .flat_map(|id| *id.as_bytes())
            .collect();
        let key = base64_simd::STANDARD.encode_to_string(bytes);
        self.shown_once("the master key", &key);
        key
    }

    /// The song of the canary of this name.
    pub(super) fn first(&self, what: &str) -> String {
        let all = self.all.lock().unwrap();
        let bird = all.iter().find(|bird| bird.what == what);
        bird.unwrap_or_else(|| panic!("no canary for {what}"))
            .song
            .clone()
    }

    /// No secret is shown to its own account twice.
    pub(super) fn no_secret_in(&self, bytes: &[u8]) {
        for bird in self.all.lock().unwrap().iter() {
            let sings = find(bytes, bird.song.as_bytes()).is_some();
            assert!(
                bird.kept == Kept::Text || !sings,
                "{} is told twice",
                bird.what
            );
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.lock().unwrap().len()
    }

    /// None is found where it may not be, neither as it is nor in base64.
    pub(super) fn are_silent(&self, places: &[(&str, Vec<u8>)]) {
        let mut found = Vec::new();
        let all = self.all.lock().unwrap();
        for bird in all.iter() {
            let encoded = base64_simd::STANDARD_NO_PAD.encode_to_string(bird.song.as_bytes());
            // The last characters of base64 depend on what follows.
            let encoded = encoded[..encoded.len() - 2].to_owned();
            for (place, bytes) in places {
                let sings = [&bird.song, &encoded]
                    .into_iter()
                    .find_map(|song| find(bytes, song.as_bytes()));
                if let Some(at) = sings.filter(|_| !may_hold(place, bird.kept)) {
                    let around = &bytes[at.saturating_sub(200)..(at + 100).min(bytes.len())];
                    let around = String::from_utf8_lossy(around).into_owned();
                    found.push(format!("{} in {place}: …{around}…", bird.what));
                }
            }
        }
        println!("{} canaries in {} places", all.len(), places.len());
        assert!(
            found.is_empty(),
            "{} sing:\n{}",
            found.len(),
            found.join("\n\n")
        );
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle[0];
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if bytes[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}
