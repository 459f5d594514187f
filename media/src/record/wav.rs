//! Spool files and the stereo WAV made from them.
