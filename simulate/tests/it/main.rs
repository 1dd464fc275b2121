//! The simulation against itself: a bounded part of the histories, the model, and the faults that both have to find.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod histories;
mod model;
