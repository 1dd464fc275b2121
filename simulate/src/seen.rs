//! What happened how often, so that a reader sees that nothing is vacuous.

use std::collections::BTreeMap;

/// Kinds of happenings, in the order in which they are printed. Each has to come in a thousand seeds.
pub const KINDS: &[&str] = &[
    // what runs do
    "run begun",
    "run begun in a thread that has one",
    "run completed",
    "run failed",
    "run cancelled",
    "call allowed",
    "call asked",
    "call denied",
    "run aborted by the policy",
    "proposal that is not admitted",
    "batch begun",
    "batch ended",
    "batch interrupted",
    "batch refused",
    "policy changed",
    "effect",
    "look",
    "tool failed and did nothing",
    "tool lost its connection",
    "tool panicked",
    "tool was overdue",
    "tool ended its run",
    "outcome is no strict JSON",
    "no place for a blocking call",
    // what goes wrong
    "process crashed",
    "process crashed with a call open",
    "process crashed between effect and record",
    "process crashed between commit and answer",
    "process stopped longer than a lease",
    "clock jumped ahead",
    "clock jumped back",
    "store refused for now",
    "disk full",
    "append in doubt and stored",
    "append in doubt and not stored",
    "append delivered twice",
    "append delivered again later",
    "renewal failed",
    "wait abandoned",
    // runners
    "runner began",
    "run rested at a runner",
    "runner took up a run",
    "runner stopped with runs at hand",
    "nobody waits any longer for room in a line",
    "agent could not be made",
    // leases
    "lease held by another",
    "lease lost",
    "lease taken after its term",
    "lease taken from a proven dead",
    "resumed by two at once",
    "labels moved before commit 1",
    "outcome late after a deadline",
    "outcome late after a lost lease",
    "outcome late after its term",
    "call not started without cover",
    // outcomes that nobody knows
    "call made again with its key",
    "call known by its key",
    "probe asked",
    "probe found that it happened",
    "probe found that it did not happen",
    "probe could not say",
    "process crashed with a probe open",
    "host asked",
    "host found that it happened",
    "host found that it did not happen",
    "host found a conflict",
    "host could not say",
    "host panicked",
    "host never answered",
    "call under way when its probe answered",
    "call refused while an outcome is open",
    "grant kept while an outcome is open",
    // people
    "approved",
    "rejected",
    "said happened",
    "said did not happen",
    "said run again",
    "question about an outcome",
    "asked again at use",
    "grant used",
    "question or grant expired",
    "answer came too late",
    "answer of a stranger",
    "answer to something else",
    "answer given twice",
    "second word of a person, or the asker's",
    "cancelled with a call open",
    "call under way when its question was answered",
    "sweep closed something",
    "limit ended a run",
];

/// Counts by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    /// Counts one.
    pub(crate) fn count(&mut self, kind: &'static str) {
        debug_assert!(KINDS.contains(&kind), "`{kind}` is no kind");
        *self.0.entry(kind).or_insert(0) += 1;
    }

    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(kind).or_insert(0) += count;
        }
    }

    /// How often a kind came.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// The kinds that never came.
    pub fn never(&self) -> impl Iterator<Item = &'static str> {
        KINDS.iter().copied().filter(|kind| self.of(kind) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_came_is_named() {
        let mut seen = Seen::default();
        assert_eq!(seen.never().count(), KINDS.len());
        seen.count("effect");
        let mut sum = seen.clone();
        sum.add(&seen);
        assert_eq!((sum.of("effect"), sum.of("look")), (2, 0));
        assert!(sum.never().all(|kind| kind != "effect"));
    }
}
