//! The C library behind a safe face: a front end, and a decoder that one thread uses at a time.
//!
//! The library ends the process on some faults (`E_FATAL`), mostly files that are not there or are no
//! models. So files are looked at before their names are handed over, and models come from packages or
//! from `lm.rs`, never from a stranger.

#![expect(unsafe_code, reason = "calls into a C library; each with its reason")]

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;

use super::cepstra::{CEPSTRA, Mean};
use super::ffi;

/// Where the packaged English models are.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    pub acoustic: PathBuf,
    pub dictionary: PathBuf,
    pub language: PathBuf,
}

impl ModelFiles {
    /// Debian's `pocketsphinx-en-us`, or which of its files is missing.
    pub fn packaged() -> Result<Self, String> {
        let base = Path::new("/usr/share/pocketsphinx/model/en-us");
        let files = Self {
            acoustic: base.join("en-us"),
            dictionary: base.join("cmudict-en-us.dict"),
            language: base.join("en-us.lm.bin"),
        };
        let parts = [
            "mdef",
            "means",
            "variances",
            "sendump",
            "transition_matrices",
            "noisedict",
            "feat.params",
        ];
        let mut needed: Vec<PathBuf> = parts.iter().map(|part| files.acoustic.join(part)).collect();
        needed.extend([files.dictionary.clone(), files.language.clone()]);
        match needed.iter().find(|path| !path.is_file()) {
            None => Ok(files),
            Some(path) => Err(format!(
                "the English models of the offline recogniser are not installed ({} is missing; package pocketsphinx-en-us)",
                path.display()
            )),
        }
    }
}

/// Sound to cepstra, as the decoder does it, but keeping every frame.
pub struct FrontEnd {
    fe: *mut ffi::Fe,
}

// SAFETY: the front end owns all that it points to and has no thread of its own; it is used by one
// thread at a time, because it is not Sync.
unsafe impl Send for FrontEnd {}

impl FrontEnd {
    /// The front end of the packaged model.
    pub fn open(files: &ModelFiles) -> Result<Self, String> {
        let text = std::fs::read_to_string(files.acoustic.join("feat.params"))
            .map_err(|error| error.to_string())?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let value = |key: &str, default: &str| {
            let at = words.iter().position(|word| *word == key);
            c_string(at.and_then(|at| words.get(at + 1)).unwrap_or(&default))
        };
        let (low, high) = (value("-lowerf", "130")?, value("-upperf", "6800")?);
        let (filters, transform, lifter) = (
            value("-nfilt", "25")?,
            value("-transform", "dct")?,
            value("-lifter", "22")?,
        );
        // SAFETY: the definitions are a static table of the library; every option is a pair of C
        // strings that live until the call returns, and a null ends them. A failure gives null.
        let fe = unsafe {
            // The library tells every step on stderr, for the whole process.
            ffi::err_set_logfile(c"/dev/null".as_ptr());
            let config = ffi::cmd_ln_init(
                ptr::null_mut(),
                ffi::fe_get_args(),
                1,
                c"-lowerf".as_ptr(),
                low.as_ptr(),
                c"-upperf".as_ptr(),
                high.as_ptr(),
                c"-nfilt".as_ptr(),
                filters.as_ptr(),
                c"-transform".as_ptr(),
                transform.as_ptr(),
                c"-lifter".as_ptr(),
                lifter.as_ptr(),
                c"-remove_silence".as_ptr(),
                c"no".as_ptr(),
                ptr::null::<c_char>(),
            );
            if config.is_null() {
                return Err("the front end refused its options".into());
            }
            let fe = ffi::fe_init_auto_r(config);
            ffi::cmd_ln_free_r(config);
            fe
        };
        if fe.is_null() {
            return Err("the front end did not start".into());
        }
        Ok(Self { fe })
    }

    /// The cepstra of some sound at 16 kHz, a frame each 10 ms.
    pub(super) fn cepstra(&self, pcm: &[i16]) -> Vec<[f32; CEPSTRA]> {
        let mut block: *mut *mut f32 = ptr::null_mut();
        let mut count = 0;
        // SAFETY: `fe` is live; the sound is read for its length only; the library allocates `block`
        // with `count` rows of 13 floats (its default and the model's), which are copied before it is
        // freed by the matching function.
        unsafe {
            ffi::fe_start_utt(self.fe);
            if ffi::fe_process_utt(
                self.fe,
                pcm.as_ptr(),
                pcm.len(),
                &raw mut block,
                &raw mut count,
            ) < 0
                || block.is_null()
            {
                return Vec::new();
            }
            let rows = std::slice::from_raw_parts(block, usize::try_from(count).unwrap_or(0));
            let frames = rows
                .iter()
                .map(|row| row.cast::<[f32; CEPSTRA]>().read())
                .collect();
            ffi::fe_free_2d(block.cast());
            frames
        }
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        // SAFETY: made by `open`, freed once.
        unsafe { ffi::fe_free(self.fe) };
    }
}

/// What was heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hypothesis {
    pub text: String,
    /// Posterior of the best path, 0 to 1.
    pub confidence: f32,
}

/// One decoder: 94 MiB, half a second to open. Decodes one utterance at a time.
pub struct Decoder {
    ps: *mut ffi::Ps,
    packaged: *mut ffi::Ngram,
    /// Language models that are loaded, the last used last.
    loaded: Vec<String>,
    transform: Option<PathBuf>,
}

// SAFETY: as for FrontEnd: what it points to is its own, and it is not Sync.
unsafe impl Send for Decoder {}

/// Frames that a mean counts for at the start of an utterance (sphinxbase's `CMN_WIN`).
pub(super) const MEAN_WEIGHT: f32 = 500.0;

/// Language models a decoder keeps at hand.
const KEPT_MODELS: usize = 4;

/// The share of the agent's own words in the mixed language model.
const OWN_SHARE: f32 = 0.5;

impl Decoder {
    pub fn open(files: &ModelFiles) -> Result<Self, String> {
        let acoustic = c_path(&files.acoustic)?;
        let dictionary = c_path(&files.dictionary)?;
        let language = c_path(&files.language)?;
        // SAFETY: as in FrontEnd::open; `ps_init` keeps its own reference to the configuration.
        let ps = unsafe {
            let config = ffi::cmd_ln_init(
                ptr::null_mut(),
                ffi::ps_args(),
                1,
                c"-hmm".as_ptr(),
                acoustic.as_ptr(),
                c"-dict".as_ptr(),
                dictionary.as_ptr(),
                c"-logfn".as_ptr(),
                c"/dev/null".as_ptr(),
                ptr::null::<c_char>(),
            );
            if config.is_null() {
                return Err("the decoder refused its options".into());
            }
            let ps = ffi::ps_init(config);
            ffi::cmd_ln_free_r(config);
            ps
        };
        if ps.is_null() {
            return Err("the decoder did not start".into());
        }
        // SAFETY: `ps` is live, the file was seen to exist, and a failure gives null. The structure of
        // `feat_t` is checked by its cepstral size before anything is read from it.
        let (packaged, cepstra) = unsafe {
            let packaged = ffi::ngram_model_read(
                ffi::ps_get_config(ps),
                language.as_ptr(),
                ffi::NGRAM_AUTO,
                ffi::ps_get_logmath(ps),
            );
            (packaged, (*ffi::ps_get_feat(ps)).cepsize)
        };
        let decoder = Self {
            ps,
            packaged,
            loaded: Vec::new(),
            transform: None,
        };
        if decoder.packaged.is_null() {
            return Err("the packaged language model cannot be read".into());
        }
        if usize::try_from(cepstra) != Ok(CEPSTRA) {
            return Err("this version of the library keeps its features otherwise".into());
        }
        Ok(decoder)
    }

    /// Listen with this language model from now on: the one of `lm.rs` in the file `own`, mixed with
    /// the packaged one; or the packaged one alone. `key` names it, and loads it once.
    pub fn use_language(&mut self, key: &str, own: Option<&Path>) -> Result<(), String> {
        let name = c_string(key)?;
        if let Some(at) = self.loaded.iter().position(|loaded| loaded == key) {
            let key = self.loaded.remove(at);
            self.loaded.push(key);
        } else {
            self.load(&name, own)?;
            self.loaded.push(key.to_owned());
            if self.loaded.len() > KEPT_MODELS {
                let oldest = c_string(&self.loaded.remove(0))?;
                // SAFETY: `ps` is live, and the search of that name is not the current one.
                unsafe { ffi::ps_unset_search(self.ps, oldest.as_ptr()) };
            }
        }
        // SAFETY: `ps` is live and idle (no utterance is open here).
        match unsafe { ffi::ps_set_search(self.ps, name.as_ptr()) } {
            0 => Ok(()),
            _ => Err("the language model was not accepted".into()),
        }
    }

    /// Whether the language model is at hand, so that using it costs nothing.
    pub fn has_language(&self, key: &str) -> bool {
        self.loaded.iter().any(|loaded| loaded == key)
    }

    fn load(&self, name: &CStr, own: Option<&Path>) -> Result<(), String> {
        let Some(own) = own else {
            // SAFETY: both are live; the search keeps its own reference to the model.
            return match unsafe { ffi::ps_set_lm(self.ps, name.as_ptr(), self.packaged) } {
                0 => Ok(()),
                _ => Err("the packaged language model was not accepted".into()),
            };
        };
        if !own.is_file() {
            return Err(format!("{} is missing", own.display()));
        }
        let path = c_path(own)?;
        // SAFETY: `ps` is live. The arrays hold two entries each and live until the call returns; the
        // set keeps its own references to its members and copies of their names, and the search keeps
        // one to the set, so the references made here are given back.
        unsafe {
            let config = ffi::ps_get_config(self.ps);
            let agent = ffi::ngram_model_read(
                config,
                path.as_ptr(),
                ffi::NGRAM_AUTO,
                ffi::ps_get_logmath(self.ps),
            );
            if agent.is_null() {
                return Err("the agent's language model cannot be read".into());
            }
            let mut models = [self.packaged, agent];
            let mut names = [c"packaged".as_ptr().cast_mut(), c"own".as_ptr().cast_mut()];
            let weights = [1.0 - OWN_SHARE, OWN_SHARE];
            let set = ffi::ngram_model_set_init(
                config,
                models.as_mut_ptr(),
                names.as_mut_ptr(),
                weights.as_ptr(),
                2,
            );
            ffi::ngram_model_free(agent);
            if set.is_null() {
                return Err("the language models cannot be mixed".into());
            }
            // Mix both, with the weights above, instead of choosing one.
            ffi::ngram_model_set_interp(set, ptr::null(), ptr::null());
            let taken = ffi::ps_set_lm(self.ps, name.as_ptr(), set);
            ffi::ngram_model_free(set);
            match taken {
                0 => Ok(()),
                _ => Err("the mixed language model was not accepted".into()),
            }
        }
    }

    /// Move the acoustic model by the transform in this file (`mllr.rs`).
    pub fn use_transform(&mut self, file: &Path) -> Result<(), String> {
        if self.transform.as_deref() == Some(file) {
            return Ok(());
        }
        if !file.is_file() {
            return Err(format!("{} is missing", file.display()));
        }
        let path = c_path(file)?;
        // SAFETY: `ps` is live and idle; it takes over the transform and frees the one before.
        let taken = unsafe {
            let transform = ffi::ps_mllr_read(path.as_ptr());
            if transform.is_null() {
                return Err("the acoustic transform cannot be read".into());
            }
            ffi::ps_update_mllr(self.ps, transform)
        };
        if taken.is_null() {
            return Err("the acoustic transform was not accepted".into());
        }
        self.transform = Some(file.to_owned());
        Ok(())
    }

    /// Begin an utterance of a channel with this cepstral mean. The noise of the utterance before is
    /// forgotten: it may have been another call's, and it makes the first word of this one worse.
    pub(super) fn begin(&mut self, mean: &Mean) -> Result<(), String> {
        // SAFETY: `ps` is live; the mean has the 13 values that the structure's size was checked for.
        let begun = unsafe {
            ffi::ps_start_stream(self.ps);
            ffi::cmn_live_set((*ffi::ps_get_feat(self.ps)).cmn_struct, mean.as_ptr());
            ffi::ps_start_utt(self.ps)
        };
        if begun == 0 {
            Ok(())
        } else {
            Err("the decoder did not begin".into())
        }
    }

    /// More sound of the utterance, 16 kHz.
    pub(super) fn feed(&mut self, pcm: &[i16]) -> Result<(), String> {
        // SAFETY: `ps` is live with an open utterance; the sound is read for its length only.
        match unsafe { ffi::ps_process_raw(self.ps, pcm.as_ptr(), pcm.len(), 0, 0) } {
            0.. => Ok(()),
            _ => Err("the decoder refused the sound".into()),
        }
    }

    /// The words so far.
    pub(super) fn interim(&self) -> String {
        // SAFETY: `ps` is live; the text belongs to the decoder and is copied at once.
        unsafe {
            let text = ffi::ps_get_hyp(self.ps, ptr::null_mut());
            if text.is_null() {
                String::new()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        }
    }

    /// Ends the utterance: what was heard, the running mean (which began as the one given, counted
    /// for [`MEAN_WEIGHT`] frames), and how many frames it has seen.
    pub(super) fn end(&mut self) -> Result<(Hypothesis, Mean, f32), String> {
        let mut mean = [0.0; CEPSTRA];
        // SAFETY: `ps` is live with an open utterance; the mean has room for 13 values.
        let confidence = unsafe {
            if ffi::ps_end_utt(self.ps) != 0 {
                return Err("the decoder did not end".into());
            }
            ffi::cmn_live_get((*ffi::ps_get_feat(self.ps)).cmn_struct, mean.as_mut_ptr());
            ffi::logmath_exp(ffi::ps_get_logmath(self.ps), ffi::ps_get_prob(self.ps))
        };
        // SAFETY: `ps` is live.
        let frames = unsafe { ffi::ps_get_n_frames(self.ps) }.max(0) as f32;
        let text = self.interim();
        let heard = Hypothesis {
            text,
            confidence: confidence.clamp(0.0, 1.0) as f32,
        };
        Ok((heard, mean, frames))
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: both were made by `open` and are freed once; a null model is accepted.
        unsafe {
            ffi::ps_free(self.ps);
            if !self.packaged.is_null() {
                ffi::ngram_model_free(self.packaged);
            }
        }
    }
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a zero byte in a name".into())
}

fn c_path(path: &Path) -> Result<CString, String> {
    c_string(path.to_str().ok_or("a path that is no text")?)
}
