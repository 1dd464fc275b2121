//! Doubles that mean no good: tools, a policy, a store and an agent that do what the gate has to bear.
//!
//! Each does one wrong thing at a moment that a test chooses, and tells how often it was asked, so that a test can also
//! show that its fault came to pass.

mod agent;
mod policy;
mod store;
mod tools;

pub use agent::HostileAgent;
pub use policy::{Conduct, UnrulyPolicy};
pub use store::FaultyStore;
pub use tools::{Does, HostileTools};
