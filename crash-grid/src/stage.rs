//! What a process goes through, and the point at which it ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use portcullis_testkit::crash::{Act, Moment, Phase, Sight};

/// How long one process waits for what another thread of it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Where a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aim {
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
    pub(crate) fn from_text(text: &str) -> Option<Self> {
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
pub(crate) enum Side {
    Before,
    Inside,
    After,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::Inside, Self::After];
}

/// A point that a process went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighted {
    pub(crate) aim: Aim,
    /// Whether the store said yes; only after it was asked.
    pub(crate) stored: Option<bool>,
    /// Types of events, or the tool; none for a renewal.
    pub(crate) what: Vec<String>,
    /// What was written last, inside a transaction.
    pub(crate) wrote: Option<String>,
}

impl Sighted {
    pub(crate) fn in_store(sight: &Sight) -> Self {
        Self {
            aim: Aim::Store(sight.moment),
            stored: sight.stored,
            what: sight.events.iter().map(|event| (*event).to_owned()).collect(),
            wrote: sight.wrote.clone(),
        }
    }

    pub(crate) fn in_tool(number: u64, phase: Phase, tool: &str) -> Self {
        let what = vec![tool.to_owned()];
        Self { aim: Aim::Effect(number, phase), stored: None, what, wrote: None }
    }

    /// `append:3:after ok step.judged,step.started -`
    pub(crate) fn line(&self) -> String {
        let stored = match self.stored {
            None => "-",
            Some(true) => "ok",
            Some(false) => "refused",
        };
        let what = if self.what.is_empty() { "-".to_owned() } else { self.what.join(",") };
        let wrote = self.wrote.as_deref().unwrap_or("-");
        format!("{} {stored} {what} {wrote}\n", self.aim)
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
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

    pub(crate) fn side(&self) -> Side {
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
    pub(crate) fn is_commit(&self) -> bool {
        self.wrote.as_deref() == Some("commit")
    }

    /// Whether the store answered an append with yes.
    pub(crate) fn is_stored_append(&self) -> bool {
        self.is_append() && self.stored == Some(true)
    }

    pub(crate) const fn is_append(&self) -> bool {
        matches!(self.aim, Aim::Store(Moment { act: Act::Append, .. }))
    }

    pub(crate) const fn is_effect(&self) -> bool {
        matches!(self.aim, Aim::Effect(..))
    }

    /// Which renewal of the process it is at.
    pub(crate) const fn renewal(&self) -> Option<u64> {
        match self.aim {
            Aim::Store(Moment { act: Act::Renewal, number, .. }) => Some(number),
            _ => None,
        }
    }
}

/// Keeps what a process goes through, and ends it where it is aimed at.
pub(crate) struct Stage {
    aim: Option<Aim>,
    log: Box<dyn Fn(&Sighted) + Send + Sync>,
    end: Box<dyn Fn() + Send + Sync>,
    ended: AtomicBool,
    done: Mutex<BTreeMap<String, u64>>,
    more: Condvar,
}

impl Stage {
    pub(crate) fn new(
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
    pub(crate) fn reach(&self, sighted: &Sighted) {
        if self.has_ended() {
            return;
        }
        (self.log)(sighted);
        let mut done = self.done.lock().unwrap();
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

    /// Whether the process is over. Only one that lives on in memory can ask.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) const fn aim(&self) -> Option<Aim> {
        self.aim
    }

    /// Whether the store has taken this.
    pub(crate) fn has_done(&self, what: &str) -> bool {
        self.done.lock().unwrap().contains_key(what)
    }

    /// Waits until the store has taken this so often, or the process is over.
    pub(crate) fn wait_for(&self, what: &str, times: u64) {
        let done = self.done.lock().unwrap();
        let missing = |done: &mut BTreeMap<String, u64>| {
            !self.has_ended() && done.get(what).is_none_or(|seen| *seen < times)
        };
        let (_done, timeout) = self.more.wait_timeout_while(done, PATIENCE, missing).unwrap();
        assert!(!timeout.timed_out(), "no {what}");
    }
}

#[cfg(test)]
mod tests {
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
}
