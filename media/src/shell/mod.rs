//! The only folder with sockets, a clock and threads.
