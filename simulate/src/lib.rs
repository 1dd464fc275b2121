//! Seeded histories of the gate, and a model of it that is explored exhaustively.
//!
//! A history runs the real engine over the real store in memory, on one thread, with a clock, entropy, processes, tools
//! and people that a seed decides. A naive oracle, written apart from the engine, judges what came of it. The same seed
//! gives the same history, byte for byte.
//!
//! ```
//! let outcome = portcullis_simulate::simulate(7, None)?;
//! assert_eq!(outcome.broken, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It knows nothing of SQLite, files, networks, real processes or real time.

#![forbid(unsafe_code)]

mod acts;
mod crew;
mod draw;
mod executor;
mod history;
mod host;
mod log;
mod model;
mod oracle;
mod people;
mod planted;
mod seen;
mod store;
mod tools;
mod world;

pub use model::{Bounds, Explored, Wrong, explore};
pub use planted::Planted;
pub use seen::{KINDS, Seen};

/// A rule that a history broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule, in one sentence.
    pub rule: &'static str,
    /// How it was broken.
    pub how: String,
}

/// What came of one history.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What happened how often.
    pub seen: Seen,
    /// Events that were committed.
    pub events: u64,
    /// The first rule that was broken.
    pub broken: Option<Broken>,
    log: Vec<log::Entry>,
    names: log::Names,
}

impl Outcome {
    /// Forgets what happened, to save memory; the seed tells it again.
    pub fn forget(&mut self) {
        self.log.clear();
    }

    /// What happened, one line for each thing.
    #[must_use]
    pub fn trace(&self) -> String {
        log::trace(&self.log, &self.names)
    }
}

/// Why a history could not be played.
#[derive(Debug, thiserror::Error)]
#[error("the simulated tools cannot be registered: {0}")]
pub struct SimulateError(#[from] portcullis_engine::RegisterError);

/// Plays the history of one seed, with a fault planted or without, and judges it.
///
/// # Errors
/// [`SimulateError`] when the simulation's own tools do not fit the gate any more.
pub fn simulate(seed: u64, planted: Option<Planted>) -> Result<Outcome, SimulateError> {
    let left = history::play(seed, planted)?;
    let events = left.log.iter().map(|entry| match &entry.what {
        log::What::Committed { events, .. } => u64::try_from(events.len()).unwrap_or(0),
        _ => 0,
    });
    let events = events.sum();
    let first = left.broken.into_iter().next();
    Ok(Outcome {
        seed,
        events,
        broken: first.map(|(rule, how)| Broken { rule, how }),
        seen: left.seen,
        log: left.log,
        names: left.names,
    })
}
