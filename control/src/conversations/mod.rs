//! conversations
