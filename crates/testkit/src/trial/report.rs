//! What a trial found: where the process ended, where its run came to rest, and what is wrong.

use std::collections::BTreeMap;
use std::fmt;

use portcullis_domain::run::EndReason;

use crate::crash::{Moment, Phase};

/// On which side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The tool has not heard of it.
    Before,
    /// The tool is done, and the gate has not heard of it.
    After,
}

/// Where the process ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Nowhere.
    Undisturbed,
    /// At an append.
    Record {
        /// Which, and on which side.
        moment: Moment,
        /// The types of its events.
        events: Vec<&'static str>,
    },
    /// At a call of a tool.
    Effect {
        /// Which call, counted from 1.
        number: u64,
        /// The tool.
        tool: String,
        /// On which side.
        side: Side,
    },
    /// Twice: the process that took the run up ended too.
    Twice {
        /// Where the first one ended.
        first: Box<Self>,
        /// Where the second one ended.
        second: Box<Self>,
    },
}

impl Point {
    /// Where processes ended one after another.
    pub(super) fn of(aims: &[Self]) -> Self {
        let mut aims = aims.iter().cloned();
        let first = aims.next().unwrap_or(Self::Undisturbed);
        aims.fold(first, |first, second| Self::Twice {
            first: Box::new(first),
            second: Box::new(second),
        })
    }
}

impl fmt::Display for Point {
    /// One line, such as `after effect 1 (mail.send)` or `before append 3 (step.judged + step.started)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undisturbed => f.write_str("undisturbed"),
            Self::Record { moment, events } => {
                let side = if moment.phase == Phase::Before { "before" } else { "after" };
                write!(f, "{side} append {} ({})", moment.number, events.join(" + "))
            }
            Self::Effect { number, tool, side } => {
                let side = if *side == Side::Before { "before" } else { "after" };
                write!(f, "{side} effect {number} ({tool})")
            }
            Self::Twice { first, second } => write!(f, "{first}, then {second}"),
        }
    }
}

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An effect happened more often than undisturbed.
    Double,
    /// The run came to the same end as undisturbed, and an effect is missing.
    Loss,
    /// A tool says of itself what is not so.
    FalseClaim,
    /// What ran is not, byte for byte, what people said yes to.
    NotShown,
    /// The check of the record found something.
    NotIntact,
    /// The run could not be taken to an end, or to people who have no answer.
    Stuck,
}

impl Kind {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Loss => "loss",
            Self::FalseClaim => "false claim",
            Self::NotShown => "not shown",
            Self::NotIntact => "not intact",
            Self::Stuck => "stuck",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where the process ended.
    pub point: Point,
    /// What kind of wrong.
    pub kind: Kind,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.point, self.kind.as_str(), self.text)
    }
}

/// Where a run came to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It ended.
    Ended(EndReason),
    /// It waits for people, and they have no answer.
    Waits,
    /// It goes no further, for this reason.
    Stuck(String),
}

/// What became of one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Where the process ended.
    pub point: Point,
    /// Where the run came to rest in the end.
    pub rest: Rest,
    /// The effects that happened, in order.
    pub effects: Vec<String>,
    /// How often people had a call run again.
    pub run_again: u64,
}

impl Tried {
    /// What is wrong with it, beside `expected`, the undisturbed one.
    pub(super) fn judge(&self, expected: &Self) -> Vec<Finding> {
        let finding = |kind, text| Finding { point: self.point.clone(), kind, text };
        let mut findings = Vec::new();
        if let Rest::Stuck(why) = &self.rest {
            findings.push(finding(Kind::Stuck, why.clone()));
        }
        let same_end = matches!(self.rest, Rest::Ended(_)) && self.rest == expected.rest;
        let (mut now, then) = (tally(&self.effects), tally(&expected.effects));
        for name in then.keys() {
            now.entry(name).or_insert(0);
        }
        for (name, times) in now {
            let wanted = then.get(name).copied().unwrap_or(0);
            if times > wanted {
                let word = if self.run_again == 0 { "" } else { ", on people's word" };
                let text = format!("`{name}` happened {times} times instead of {wanted}{word}");
                findings.push(finding(Kind::Double, text));
            } else if times < wanted && same_end {
                let text = format!("`{name}` happened {times} times instead of {wanted}");
                findings.push(finding(Kind::Loss, text));
            }
        }
        findings
    }

    /// One word on it.
    fn word(&self, expected: &Self) -> &'static str {
        match &self.rest {
            Rest::Waits => "waits for people",
            Rest::Stuck(_) => "stuck",
            Rest::Ended(_) if tally(&self.effects) == tally(&expected.effects) => "done once",
            Rest::Ended(_) if self.effects.len() > expected.effects.len() => "done twice",
            Rest::Ended(_) => "not done",
        }
    }
}

fn tally(effects: &[String]) -> BTreeMap<&str, u64> {
    let mut tally = BTreeMap::new();
    for effect in effects {
        let times: &mut u64 = tally.entry(effect.as_str()).or_default();
        *times = times.saturating_add(1);
    }
    tally
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a report that nobody reads finds nothing"]
pub struct Report {
    /// The run that nothing disturbed.
    pub undisturbed: Tried,
    /// One for each point.
    pub tried: Vec<Tried>,
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The findings of one kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.kind == kind)
    }

    /// Fails the running test with every finding.
    ///
    /// # Panics
    /// When there is one, or when there was nothing to try.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    #[track_caller]
    pub fn assert_kept(&self) {
        if self.tried.is_empty() {
            panic!("the trial has no point, so it says nothing");
        }
        if !self.findings.is_empty() {
            let lines: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
            panic!("{} points tried:\n{}", self.tried.len(), lines.join("\n"));
        }
    }
}

impl fmt::Display for Report {
    /// A line for each point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tried in std::iter::once(&self.undisturbed).chain(&self.tried) {
            writeln!(f, "{:<16} {}", tried.word(&self.undisturbed), tried.point)?;
        }
        Ok(())
    }
}
