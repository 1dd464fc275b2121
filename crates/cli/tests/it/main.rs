//! The whole command, as a process.
