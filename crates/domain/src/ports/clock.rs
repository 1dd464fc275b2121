//! The ports for time and randomness.

use std::time::Duration;

use crate::ports::BoxFuture;
use crate::time::Timestamp;

/// A reading of a clock that never goes back: microseconds since an instant of no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Microseconds from `earlier` to this reading.
    #[must_use]
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What time it is, and waiting.
pub trait Clock: Send + Sync {
    /// The wall clock. It may jump; deadlines never use it.
    fn now(&self) -> Timestamp;

    /// The monotonic clock, for deadlines and durations.
    fn monotonic(&self) -> Monotonic;

    /// Resolves after `duration` of the monotonic clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// Random bytes that nobody can guess.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}
