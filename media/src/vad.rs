//! Speech or not, one verdict a frame.
