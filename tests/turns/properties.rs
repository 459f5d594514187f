//! Properties over random conversations.
