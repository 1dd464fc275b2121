//! The ports: what the core needs from the world, as traits.

mod process;

pub use process::Processes;
