//! Two sides on one sample clock.
