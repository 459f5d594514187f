//! api_keys
