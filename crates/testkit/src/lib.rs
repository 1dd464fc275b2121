//! What tests of consumers and back ends use: contract suites, scripted ports, crash points.

pub mod skip;
