//! What a process goes through, and the point at which it ends: its log is the list of all points there are.
//!
//! A process that is not killed logs every point. Each line of that log is an [`Aim`] for the same process started again,
//! so that nobody has to list where a process can be killed. A [`crate::crash::CrashStore`] tells of appends, of writes
//! inside of them and of renewals; a tool tells of both sides of its effect.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use portcullis_testkit::crash::Phase;
//! use portcullis_testkit::stage::{Aim, Side, Sighted, Stage};
//!
//! let log = Arc::new(Mutex::new(String::new()));
//! let keep = Arc::clone(&log);
//! // A process would append to a file, and send itself SIGKILL.
//! let stage = Stage::new(
//!     Aim::from_text("effect:1:after"),
//!     move |sighted| keep.lock().unwrap().push_str(&sighted.line()),
//!     || {},
//! );
//! stage.reach(&Sighted::in_tool(1, Phase::Before, "send"));
//! assert!(!stage.has_ended());
//! stage.reach(&Sighted::in_tool(1, Phase::After, "send"));
//! assert!(stage.has_ended());
//! let log = log.lock().unwrap();
//! let last = Sighted::from_line(log.lines().last().unwrap()).unwrap();
//! assert_eq!((last.side(), last.what), (Side::After, vec!["send".to_owned()]));
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::crash::{Act, Moment, Phase, Sight};

/// Where a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// In the store.
    Store(Moment),
    /// While the store is opened, after its n-th statement.
    Opening(u64),
    /// In a tool, at its n-th call in this process, before or after its effect.
    Effect(u64, Phase),
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(moment) => write!(f, "{moment}"),
            Self::Opening(number) => write!(f, "opening:{number}"),
            Self::Effect(number, Phase::Before) => write!(f, "effect:{number}:before"),
            Self::Effect(number, _) => write!(f, "effect:{number}:after"),
        }
    }
}

impl Aim {
    /// Reads what an aim is displayed as, so that one process can tell another where to end.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if let Some(number) = text.strip_prefix("opening:") {
            return number.parse().ok().map(Self::Opening);
        }
        let Some(rest) = text.strip_prefix("effect:") else {
            return Moment::from_text(text).map(Self::Store);
        };
        let (number, phase) = rest.split_once(':')?;
        let phase = match phase {
            "before" => Phase::Before,
            "after" => Phase::After,
            _ => return None,
        };
        Some(Self::Effect(number.parse().ok()?, phase))
    }
}

/// On which side of what a process ends, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Nothing of it happened.
    Before,
    /// A part of it is written and not committed, or committed and not answered.
    Inside,
    /// It is over, and nobody has heard of it.
    After,
}

impl Side {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Before, Self::Inside, Self::After];
}

/// A point that a process went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighted {
    /// The point.
    pub aim: Aim,
    /// Whether the store said yes; only after it was asked.
    pub stored: Option<bool>,
    /// Types of events, or the tool; none for a renewal.
    pub what: Vec<String>,
    /// What was written last, inside a transaction.
    pub wrote: Option<String>,
}

impl Sighted {
    /// A moment of a store.
    #[must_use]
    pub fn in_store(sight: &Sight) -> Self {
        Self {
            aim: Aim::Store(sight.moment),
            stored: sight.stored,
            what: sight.events.iter().map(|event| (*event).to_owned()).collect(),
            wrote: sight.wrote.clone(),
        }
    }

    /// A side of an effect: the n-th call of a tool in its process.
    #[must_use]
    pub fn in_tool(number: u64, phase: Phase, tool: &str) -> Self {
        let what = vec![tool.to_owned()];
        Self { aim: Aim::Effect(number, phase), stored: None, what, wrote: None }
    }

    /// One line of a log, such as `append:3:after ok step.judged,step.started -`
    #[must_use]
    pub fn line(&self) -> String {
        let stored = match self.stored {
            None => "-",
            Some(true) => "ok",
            Some(false) => "refused",
        };
        let what = if self.what.is_empty() { "-".to_owned() } else { self.what.join(",") };
        let wrote = self.wrote.as_deref().unwrap_or("-");
        format!("{} {stored} {what} {wrote}\n", self.aim)
    }

    /// Reads a line without its end.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let aim = Aim::from_text(parts.next()?)?;
        let stored = match parts.next()? {
            "-" => None,
            "ok" => Some(true),
            "refused" => Some(false),
            _ => return None,
        };
        let what = parts.next().filter(|what| *what != "-");
        let what = what.into_iter().flat_map(|what| what.split(',')).map(str::to_owned).collect();
        let wrote = parts.next()?;
        Some(Self { aim, stored, what, wrote: (wrote != "-").then(|| wrote.to_owned()) })
    }

    /// On which side of what it is.
    #[must_use]
    pub fn side(&self) -> Side {
        match self.aim {
            // A transaction that is begun has written nothing.
            Aim::Opening(_) => match self.wrote.as_deref() {
                Some("begin") => Side::Before,
                Some("commit") => Side::After,
                _ => Side::Inside,
            },
            Aim::Store(Moment { phase, .. }) | Aim::Effect(_, phase) => match phase {
                Phase::Before => Side::Before,
                Phase::Inside(_) => Side::Inside,
                Phase::After => Side::After,
            },
        }
    }

    /// Whether the transaction is committed, and its store has not said so yet.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        self.wrote.as_deref() == Some("commit")
    }

    /// Whether the store answered an append with yes.
    #[must_use]
    pub fn is_stored_append(&self) -> bool {
        self.is_append() && self.stored == Some(true)
    }

    /// Whether it is a moment of an append.
    #[must_use]
    pub const fn is_append(&self) -> bool {
        matches!(self.aim, Aim::Store(Moment { act: Act::Append, .. }))
    }

    /// Whether it is a side of an effect.
    #[must_use]
    pub const fn is_effect(&self) -> bool {
        matches!(self.aim, Aim::Effect(..))
    }

    /// Which renewal of the process it is at.
    #[must_use]
    pub const fn renewal(&self) -> Option<u64> {
        match self.aim {
            Aim::Store(Moment { act: Act::Renewal, number, .. }) => Some(number),
            _ => None,
        }
    }
}

/// Keeps what a process goes through, and ends it where it is aimed at.
pub struct Stage {
    aim: Option<Aim>,
    log: Box<dyn Fn(&Sighted) + Send + Sync>,
    end: Box<dyn Fn() + Send + Sync>,
    ended: AtomicBool,
    done: Mutex<BTreeMap<String, u64>>,
    more: Condvar,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("aim", &self.aim).finish_non_exhaustive()
    }
}

impl Stage {
    /// A stage of one process: `log` keeps its points, and `end` ends it at the one that it is aimed at.
    pub fn new(
        aim: Option<Aim>,
        log: impl Fn(&Sighted) + Send + Sync + 'static,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            aim,
            log: Box::new(log),
            end: Box::new(end),
            ended: AtomicBool::new(false),
            done: Mutex::default(),
            more: Condvar::new(),
        }
    }

    /// Keeps a point, and ends the process when it is the one.
    pub fn reach(&self, sighted: &Sighted) {
        if self.has_ended() {
            return;
        }
        (self.log)(sighted);
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if self.aim == Some(sighted.aim) {
            self.ended.store(true, Ordering::Release);
            (self.end)();
        }
        if sighted.stored == Some(true) {
            let renewal = sighted.renewal().map(|_| "renewal".to_owned());
            for what in sighted.what.iter().cloned().chain(renewal) {
                *done.entry(what).or_default() += 1;
            }
        }
        drop(done);
        self.more.notify_all();
    }

    /// Whether the process is over. Only one whose end returned can ask.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Where it ends.
    #[must_use]
    pub const fn aim(&self) -> Option<Aim> {
        self.aim
    }

    /// Whether the store has taken an event of this type; a renewal is called `renewal`.
    #[must_use]
    pub fn has_done(&self, what: &str) -> bool {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).contains_key(what)
    }

    /// Waits until the store has taken this so often, or the process is over; false when that takes longer than
    /// `patience`.
    #[must_use]
    pub fn wait_for(&self, what: &str, times: u64, patience: Duration) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |done: &mut BTreeMap<String, u64>| {
            !self.has_ended() && done.get(what).is_none_or(|seen| *seen < times)
        };
        let waited = self.more.wait_timeout_while(done, patience, missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_point_is_read_as_it_is_written() {
        for line in [
            "append:3:before - step.judged,step.started -\n",
            "append:3:inside:2 - step.judged,step.started events\n",
            "renewal:1:after refused - -\n",
            "opening:1 - journal.opened begin\n",
            "effect:2:after - send -\n",
        ] {
            let read = Sighted::from_line(line.trim_end()).unwrap();
            assert_eq!(read.line(), line);
        }
        for line in ["", "append:3 - - -", "effect:1:inside - send -", "append:3:after yes - -"] {
            assert_eq!(Sighted::from_line(line), None, "{line}");
        }
    }

    fn stored(line: &str) -> Sighted {
        Sighted::from_line(line).unwrap()
    }

    #[test]
    fn what_the_store_took_can_be_waited_for_and_nothing_comes_after_the_end() {
        let ends = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ends);
        let end = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let stage = Stage::new(Aim::from_text("append:2:before"), |_| {}, end);
        stage.reach(&stored("append:1:before - step.opened -"));
        assert!(!stage.has_done("step.opened"));
        assert!(!stage.wait_for("step.opened", 1, Duration::from_millis(1)));
        stage.reach(&stored("append:1:after ok step.opened -"));
        stage.reach(&stored("renewal:1:after ok - -"));
        stage.reach(&stored("renewal:2:after refused - -"));
        assert!(stage.wait_for("step.opened", 1, Duration::from_secs(9)));
        assert!(stage.wait_for("renewal", 1, Duration::from_secs(9)));
        assert!(!stage.wait_for("renewal", 2, Duration::from_millis(1)), "one was refused");
        stage.reach(&stored("append:2:before - step.judged -"));
        stage.reach(&stored("append:2:before - step.judged -"));
        stage.reach(&stored("append:2:after ok step.judged -"));
        assert!(!stage.has_done("step.judged"));
        assert_eq!(ends.load(Ordering::Relaxed), 1);
        // Nobody waits in a process that is over.
        assert!(stage.wait_for("step.judged", 1, Duration::from_secs(9)));
    }
}
