//! vendors
