//! Agent audio that waits to be sent and to be played.
