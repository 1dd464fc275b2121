//! A run is killed at every moment and taken up again: no change twice, and what is unknown waits for a person.
//!
//! This binary plays all parts. The test keeps the score; the processes that drive, answer, sweep and erase are this
//! binary once more, each told what to do and at which moment to send itself `SIGKILL`. Changes are single bytes in
//! files that only ever grow, so what happened can be counted from outside, whatever the record says.

mod child;
mod grid;
mod judge;
mod place;
mod random;
mod story;
mod tools;
