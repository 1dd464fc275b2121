//! Confined files and the confined child process.
