//! The nouns, the events, the pure fold, the permit and the ports.

pub mod lease;
pub mod ports;
