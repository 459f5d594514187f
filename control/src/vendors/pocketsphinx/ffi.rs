//! The C functions of pocketsphinx and sphinxbase 0.8+5prealpha (Debian's version) that are used,
//! declared by hand from their headers. Nothing here is safe; `decoder.rs` makes it so.

use std::ffi::{c_char, c_float, c_int, c_void};

/// Declares C types that are only ever pointed at.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[repr(C)] pub(super) struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `ps_decoder_t`.
    Ps;
    /// `cmd_ln_t`: a configuration.
    CmdLn;
    /// `arg_t`: the definitions of the options.
    Arg;
    /// `ngram_model_t`.
    Ngram;
    /// `logmath_t`.
    LogMath;
    /// `ps_mllr_t`: a linear transform of the acoustic model.
    Mllr;
    /// `fe_t`: the front end, sound to cepstra.
    Fe;
    /// `cmn_t`: the running mean that is taken from the cepstra.
    Cmn;
}

/// `feat_t` up to the member that is needed (sphinxbase/feat.h).
#[repr(C)]
pub(super) struct Feat {
    refcount: c_int,
    name: *mut c_char,
    pub(super) cepsize: i32,
    n_stream: i32,
    stream_len: *mut u32,
    window_size: i32,
    n_sv: i32,
    sv_len: *mut u32,
    subvecs: *mut *mut i32,
    sv_buf: *mut c_float,
    sv_dim: i32,
    cmn: c_int,
    varnorm: i32,
    agc: c_int,
    compute_feat: *const c_void,
    pub(super) cmn_struct: *mut Cmn,
}

#[link(name = "pocketsphinx")]
unsafe extern "C" {
    pub(super) fn ps_args() -> *const Arg;
    pub(super) fn ps_init(config: *mut CmdLn) -> *mut Ps;
    pub(super) fn ps_free(ps: *mut Ps) -> c_int;
    pub(super) fn ps_get_config(ps: *mut Ps) -> *mut CmdLn;
    pub(super) fn ps_get_logmath(ps: *mut Ps) -> *mut LogMath;
    pub(super) fn ps_get_feat(ps: *mut Ps) -> *mut Feat;
    pub(super) fn ps_start_stream(ps: *mut Ps) -> c_int;
    pub(super) fn ps_start_utt(ps: *mut Ps) -> c_int;
    pub(super) fn ps_process_raw(
        ps: *mut Ps,
        data: *const i16,
        n_samples: usize,
        no_search: c_int,
        full_utt: c_int,
    ) -> c_int;
    pub(super) fn ps_end_utt(ps: *mut Ps) -> c_int;
    pub(super) fn ps_get_n_frames(ps: *mut Ps) -> c_int;
    pub(super) fn ps_get_hyp(ps: *mut Ps, best_score: *mut i32) -> *const c_char;
    pub(super) fn ps_get_prob(ps: *mut Ps) -> i32;
    pub(super) fn ps_set_lm(ps: *mut Ps, name: *const c_char, lm: *mut Ngram) -> c_int;
    pub(super) fn ps_set_search(ps: *mut Ps, name: *const c_char) -> c_int;
    pub(super) fn ps_unset_search(ps: *mut Ps, name: *const c_char) -> c_int;
    pub(super) fn ps_mllr_read(file: *const c_char) -> *mut Mllr;
    pub(super) fn ps_update_mllr(ps: *mut Ps, mllr: *mut Mllr) -> *mut Mllr;
}

#[link(name = "sphinxbase")]
unsafe extern "C" {
    pub(super) fn err_set_logfile(path: *const c_char) -> c_int;
    pub(super) fn cmd_ln_init(inout: *mut CmdLn, defn: *const Arg, strict: i32, ...) -> *mut CmdLn;
    pub(super) fn cmd_ln_free_r(config: *mut CmdLn) -> c_int;
    pub(super) fn ngram_model_read(
        config: *mut CmdLn,
        file_name: *const c_char,
        file_type: c_int,
        lmath: *mut LogMath,
    ) -> *mut Ngram;
    pub(super) fn ngram_model_free(model: *mut Ngram) -> c_int;
    pub(super) fn ngram_model_set_init(
        config: *mut CmdLn,
        models: *mut *mut Ngram,
        names: *mut *mut c_char,
        weights: *const c_float,
        n_models: i32,
    ) -> *mut Ngram;
    pub(super) fn ngram_model_set_interp(
        set: *mut Ngram,
        names: *const *const c_char,
        weights: *const c_float,
    ) -> *mut Ngram;
    pub(super) fn logmath_exp(lmath: *mut LogMath, logb_p: c_int) -> f64;
    pub(super) fn cmn_live_set(cmn: *mut Cmn, vec: *const c_float);
    pub(super) fn cmn_live_get(cmn: *mut Cmn, vec: *mut c_float);
    pub(super) fn fe_get_args() -> *const Arg;
    pub(super) fn fe_init_auto_r(config: *mut CmdLn) -> *mut Fe;
    pub(super) fn fe_free(fe: *mut Fe) -> c_int;
    pub(super) fn fe_start_utt(fe: *mut Fe) -> c_int;
    pub(super) fn fe_process_utt(
        fe: *mut Fe,
        spch: *const i16,
        nsamps: usize,
        cep_block: *mut *mut *mut c_float,
        nframes: *mut i32,
    ) -> c_int;
    pub(super) fn fe_free_2d(arr: *mut c_void);
}

/// `ngram_file_type_e`: tell by the file.
pub(super) const NGRAM_AUTO: c_int = 0;
