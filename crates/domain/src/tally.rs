//! What is counted of a conversation: the calls, questions and denials of all its runs within a window, and whether its
//! calls go round.
//!
//! A window begins with the first thing that is counted after the one before has passed. The row keeps sums and the last
//! eight results, so that it stays small however long the conversation is.

use portcullis_canon::Digest;
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::limits::{Limits, LimitsError};
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// Bounds of a conversation, over all runs of its thread. `None` is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadLimits {
    /// How long a window is, in milliseconds: the counts begin anew after it.
    pub window_ms: u64,
    /// Calls that may begin in a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Calls that can change something and may begin in a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_changes: Option<u64>,
    /// Calls about which people may be asked in a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_questions: Option<u64>,
    /// Denials and rejections in a window after which no call begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_denials: Option<u64>,
    /// The same in a row, with no call that began between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consecutive_denials: Option<u64>,
    /// How often a call, or a cycle of up to eight calls, may come back with the same results in a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_threshold: Option<u64>,
    /// Time since the conversation was opened, in milliseconds. No window ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_elapsed_ms: Option<u64>,
}

impl ThreadLimits {
    /// A window of one hour and no bound.
    pub const NONE: Self = Self {
        window_ms: 3_600_000,
        max_calls: None,
        max_changes: None,
        max_questions: None,
        max_denials: None,
        max_consecutive_denials: None,
        loop_threshold: None,
        max_elapsed_ms: None,
    };

    fn bounds(&self) -> [(&'static str, Option<u64>); 8] {
        [
            ("window_ms", Some(self.window_ms)),
            ("max_calls", self.max_calls),
            ("max_changes", self.max_changes),
            ("max_questions", self.max_questions),
            ("max_denials", self.max_denials),
            ("max_consecutive_denials", self.max_consecutive_denials),
            ("loop_threshold", self.loop_threshold),
            ("max_elapsed_ms", self.max_elapsed_ms),
        ]
    }

    /// True when nothing is bounded.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.bounds().iter().skip(1).all(|(_, bound)| bound.is_none())
    }

    /// Checks that each bound can be met.
    ///
    /// # Errors
    /// [`LimitsError`] names the first one that cannot.
    pub fn check(&self) -> Result<(), LimitsError> {
        if let Some((name, _)) = self.bounds().into_iter().find(|(_, bound)| *bound == Some(0)) {
            return Err(LimitsError::Zero(name));
        }
        if self.loop_threshold.is_some_and(|often| often > Limits::MAX_LOOP_THRESHOLD) {
            return Err(LimitsError::TooLarge("loop_threshold", Limits::MAX_LOOP_THRESHOLD));
        }
        Ok(())
    }
}

/// The limit of a conversation that keeps a call from beginning, or from being asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadLimit {
    /// `max_elapsed_ms`.
    Elapsed,
    /// `max_denials`, or `max_consecutive_denials`.
    Denials,
    /// `max_calls`.
    Calls,
    /// `max_changes`.
    Changes,
    /// `max_questions`.
    Questions,
    /// `loop_threshold`.
    Loop,
}

impl ThreadLimit {
    /// As it is recorded and shown.
    #[must_use]
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Elapsed => Refusal::ThreadElapsed,
            Self::Denials => Refusal::ThreadDenials,
            Self::Calls => Refusal::ThreadCalls,
            Self::Changes => Refusal::ThreadChanges,
            Self::Questions => Refusal::ThreadQuestions,
            Self::Loop => Refusal::ThreadLoop,
        }
    }
}

/// What the loop detector compares of a call before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Tool and arguments, keyed by the window's key.
    pub request: Digest,
    /// The key from now on: the salt of a run. Only where the window has none yet, or has lost it.
    pub key: Option<ContentRef>,
}

/// A call as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counting {
    /// Whether it can change something.
    pub changes: bool,
    /// Nothing where no loop is looked for.
    pub trace: Option<Trace>,
}

/// A result, as far as the loop detector compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returned {
    /// Tool and arguments, keyed by the window's key.
    pub request: Digest,
    /// What came back, keyed likewise.
    pub result: Digest,
}

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// A call began, or a host was told that it may make it.
    Call(Counting),
    /// People are asked about a call.
    Question(Counting),
    /// The rules, or a person, said no.
    Denial,
    /// A call came back.
    Answer(Returned),
}

/// The counts of one conversation in its current window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// The bounds by which it was last counted.
    pub limits: ThreadLimits,
    /// When the window began.
    pub since: Timestamp,
    /// Calls that began.
    pub calls: u64,
    /// Those of them that can change something.
    pub changes: u64,
    /// Calls about which people were asked.
    pub questions: u64,
    /// Denials and rejections.
    pub denials: u64,
    /// Those of them since the last call began.
    pub consecutive_denials: u64,
    /// The salt that keys what the loop detector compares.
    pub key: Option<ContentRef>,
    /// The last results, oldest first: as many as the longest cycle has.
    pub recent: Vec<Returned>,
    /// For each length of a cycle, from one: how many of the last results in a row equal the one that stands so far before.
    pub alike: Vec<u64>,
}

impl Tally {
    fn begin(limits: ThreadLimits, since: Timestamp) -> Self {
        Self {
            limits,
            since,
            calls: 0,
            changes: 0,
            questions: 0,
            denials: 0,
            consecutive_denials: 0,
            key: None,
            recent: Vec::new(),
            alike: vec![0; Limits::MAX_CYCLE],
        }
    }

    /// The counts as they are judged at an instant under these bounds: those of the current window, or none yet.
    #[must_use]
    pub fn at(now: Option<&Self>, limits: ThreadLimits, at: Timestamp) -> Self {
        let window_us = limits.window_ms.saturating_mul(1_000);
        match now.filter(|tally| at.micros_since(tally.since) < window_us) {
            Some(tally) => Self { limits, ..tally.clone() },
            None => Self::begin(limits, at),
        }
    }

    /// The counts with one thing more. `opened_at` is when the conversation was opened.
    ///
    /// # Errors
    /// The [`ThreadLimit`] that a call, or a question about one, would pass. What has happened is always counted.
    pub fn count(
        mut self,
        counted: &Counted,
        opened_at: Timestamp,
        at: Timestamp,
    ) -> Result<Self, ThreadLimit> {
        let one = |count: u64| count.saturating_add(1);
        match counted {
            Counted::Call(call) => {
                self.admit(call, opened_at, at)?;
                self.calls = one(self.calls);
                self.changes = self.changes.saturating_add(u64::from(call.changes));
                self.consecutive_denials = 0;
                self.rekey(call);
            }
            Counted::Question(call) => {
                self.admit(call, opened_at, at)?;
                if met(self.limits.max_questions, self.questions) {
                    return Err(ThreadLimit::Questions);
                }
                self.questions = one(self.questions);
                self.rekey(call);
            }
            Counted::Denial => {
                self.denials = one(self.denials);
                self.consecutive_denials = one(self.consecutive_denials);
            }
            Counted::Answer(returned) => self.returned(*returned),
        }
        Ok(self)
    }

    fn admit(
        &self,
        call: &Counting,
        opened_at: Timestamp,
        at: Timestamp,
    ) -> Result<(), ThreadLimit> {
        let limits = &self.limits;
        let elapsed_ms = at.micros_since(opened_at).checked_div(1_000).unwrap_or(u64::MAX);
        if met(limits.max_elapsed_ms, elapsed_ms) {
            Err(ThreadLimit::Elapsed)
        } else if met(limits.max_denials, self.denials)
            || met(limits.max_consecutive_denials, self.consecutive_denials)
        {
            Err(ThreadLimit::Denials)
        } else if met(limits.max_calls, self.calls) {
            Err(ThreadLimit::Calls)
        } else if call.changes && met(limits.max_changes, self.changes) {
            Err(ThreadLimit::Changes)
        } else if self.goes_round(call) {
            Err(ThreadLimit::Loop)
        } else {
            Ok(())
        }
    }

    /// Whether the call would begin a cycle once more that came back with the same results too often. Any other call goes on.
    fn goes_round(&self, call: &Counting) -> bool {
        let Some((often, trace)) = self.limits.loop_threshold.zip(call.trace) else { return false };
        // Under another key nothing is comparable.
        trace.key.is_none()
            && (1..).zip(&self.alike).any(|(length, alike)| {
                let wanted = often.saturating_sub(1).saturating_mul(length);
                *alike >= wanted && self.before(length).is_some_and(|r| r.request == trace.request)
            })
    }

    /// The result that stands so far from the end, from one.
    fn before(&self, distance: u64) -> Option<&Returned> {
        let distance = usize::try_from(distance).ok()?;
        self.recent.get(self.recent.len().checked_sub(distance)?)
    }

    fn rekey(&mut self, call: &Counting) {
        if let Some(key) = call.trace.and_then(|trace| trace.key) {
            self.key = Some(key);
            self.recent.clear();
            self.alike.fill(0);
        }
    }

    fn returned(&mut self, returned: Returned) {
        let alike: Vec<u64> = (1..)
            .zip(&self.alike)
            .map(|(length, alike)| match self.before(length) {
                Some(before) if *before == returned => alike.saturating_add(1),
                _ => 0,
            })
            .collect();
        self.alike = alike;
        self.recent.push(returned);
        let beyond = self.recent.len().saturating_sub(Limits::MAX_CYCLE);
        self.recent.drain(..beyond);
    }
}

fn met(bound: Option<u64>, count: u64) -> bool {
    bound.is_some_and(|bound| count >= bound)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_canon::Kind;

    use super::*;

    const OPENED: Timestamp = Timestamp::from_micros(1_000_000);

    fn at(ms: u64) -> Timestamp {
        OPENED.after(std::time::Duration::from_millis(ms))
    }

    fn digest(text: &str) -> Digest {
        Digest::of(Kind::Observation, text.as_bytes())
    }

    fn call(changes: bool) -> Counted {
        Counted::Call(Counting { changes, trace: None })
    }

    fn traced(request: &str) -> Counted {
        let trace = Some(Trace { request: digest(request), key: None });
        Counted::Call(Counting { changes: false, trace })
    }

    fn answer(request: &str, result: &str) -> Counted {
        Counted::Answer(Returned { request: digest(request), result: digest(result) })
    }

    /// The counts after these, all at one instant; else the first limit that one of them would pass.
    fn after(limits: ThreadLimits, counted: &[Counted]) -> Result<Tally, ThreadLimit> {
        let begun = Tally::at(None, limits, at(0));
        counted.iter().try_fold(begun, |tally, counted| tally.count(counted, OPENED, at(0)))
    }

    #[test]
    fn each_bound_keeps_out_the_first_call_beyond_it() {
        let none = ThreadLimits::NONE;
        let calls = ThreadLimits { max_calls: Some(2), ..none };
        assert!(after(calls, &[call(false), call(true)]).is_ok());
        let three = [call(false), call(true), call(false)];
        assert_eq!(after(calls, &three), Err(ThreadLimit::Calls));
        let changes = ThreadLimits { max_changes: Some(1), ..none };
        assert!(after(changes, &three).is_ok());
        assert_eq!(after(changes, &[call(true), call(true)]), Err(ThreadLimit::Changes));
        let asked = Counted::Question(Counting { changes: true, trace: None });
        let questions = ThreadLimits { max_questions: Some(1), ..none };
        assert!(after(questions, &[asked, call(true), call(true)]).is_ok());
        assert_eq!(after(questions, &[asked, asked]), Err(ThreadLimit::Questions));
        // Nobody is asked about what could not begin.
        assert_eq!(after(calls, &[call(true), call(true), asked]), Err(ThreadLimit::Calls));
        assert_eq!(after(changes, &[call(true), asked]), Err(ThreadLimit::Changes));
    }

    #[test]
    fn denials_keep_out_what_follows_and_are_themselves_always_counted() {
        let limits = ThreadLimits { max_denials: Some(2), ..ThreadLimits::NONE };
        let (no, yes) = (Counted::Denial, call(false));
        assert!(after(limits, &[no, yes]).is_ok());
        assert_eq!(after(limits, &[no, yes, no, yes]), Err(ThreadLimit::Denials));
        assert_eq!(after(limits, &[no, no, no]).unwrap().denials, 3);
        let row = ThreadLimits { max_consecutive_denials: Some(2), ..ThreadLimits::NONE };
        assert!(after(row, &[no, yes, no, yes]).is_ok(), "a call began between them");
        assert_eq!(after(row, &[no, no, yes]), Err(ThreadLimit::Denials));
    }

    #[test]
    fn a_window_begins_anew_after_its_time_and_not_before() {
        let limits = ThreadLimits { window_ms: 100, max_calls: Some(1), ..ThreadLimits::NONE };
        let first = after(limits, &[call(false)]).unwrap();
        let judged =
            |ms| Tally::at(Some(&first), limits, at(ms)).count(&call(false), OPENED, at(ms));
        assert_eq!(judged(99), Err(ThreadLimit::Calls));
        assert_eq!(judged(100).unwrap(), Tally { since: at(100), ..first.clone() });
        // A clock that went back does not end a window.
        let early = Timestamp::from_micros(0);
        let back = Tally::at(Some(&first), limits, early).count(&call(false), OPENED, early);
        assert_eq!(back, Err(ThreadLimit::Calls));
    }

    #[test]
    fn bounds_that_could_not_be_met_are_told() {
        let zero = |limits: ThreadLimits| limits.check().unwrap_err();
        let none = ThreadLimits::NONE;
        assert_eq!(zero(ThreadLimits { window_ms: 0, ..none }), LimitsError::Zero("window_ms"));
        assert_eq!(
            zero(ThreadLimits { max_calls: Some(0), ..none }),
            LimitsError::Zero("max_calls")
        );
    }

    #[test]
    fn the_age_of_a_conversation_is_ended_by_no_window() {
        let limits = ThreadLimits { window_ms: 10, max_elapsed_ms: Some(50), ..ThreadLimits::NONE };
        let judged = |ms| Tally::at(None, limits, at(ms)).count(&call(false), OPENED, at(ms));
        assert!(judged(49).is_ok());
        assert_eq!(judged(50), Err(ThreadLimit::Elapsed));
    }

    /// Makes these calls one after the other; the number of the first that is refused.
    fn first_refused(threshold: u64, calls: &[(&str, &str)]) -> Option<usize> {
        let limits = ThreadLimits { loop_threshold: Some(threshold), ..ThreadLimits::NONE };
        let mut tally = Tally::at(None, limits, at(0));
        for (number, (request, result)) in calls.iter().enumerate() {
            match tally.count(&traced(request), OPENED, at(0)) {
                Err(limit) => {
                    assert_eq!(limit, ThreadLimit::Loop);
                    return Some(number);
                }
                Ok(counted) => {
                    tally = counted.count(&answer(request, result), OPENED, at(0)).unwrap();
                }
            }
        }
        None
    }

    #[test]
    fn a_call_that_gave_the_same_so_often_does_not_begin_again() {
        let same = [("read", "7"); 5];
        assert_eq!(first_refused(3, &same), Some(3));
        assert_eq!(first_refused(5, &same), None);
        assert_eq!(first_refused(1, &same), Some(1));
        // A changed result is progress, and so is another call.
        let changing = [("read", "1"), ("read", "1"), ("read", "2"), ("read", "2"), ("read", "3")];
        assert_eq!(first_refused(3, &changing), None);
        let others = [("read", "1"), ("read", "1"), ("list", "1"), ("read", "1"), ("read", "1")];
        assert_eq!(first_refused(3, &others), None);
    }

    #[test]
    fn cycles_of_every_length_up_to_eight_are_seen() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        for length in 1..=8_usize {
            let cycle: Vec<_> = names.iter().take(length).map(|name| (*name, "same")).collect();
            let calls: Vec<_> = cycle.iter().copied().cycle().take(length * 3 + 1).collect();
            assert_eq!(first_refused(3, &calls), Some(length * 3), "{length}");
            // The whole cycle has to come back, and not only all but one of it.
            let (short, last) = calls.split_at(length * 3 - 1);
            let broken: Vec<_> = short.iter().copied().chain([("x", "other"), last[1]]).collect();
            assert_eq!(first_refused(3, &broken), None, "{length}");
        }
        let nine: Vec<_> = names.iter().map(|name| (*name, "same")).cycle().take(40).collect();
        assert_eq!(first_refused(3, &nine), None, "longer ones are not");
    }

    #[test]
    fn what_goes_round_is_refused_and_everything_else_goes_on() {
        let limits = ThreadLimits { loop_threshold: Some(2), ..ThreadLimits::NONE };
        let round = [traced("a"), answer("a", "1"), traced("a"), answer("a", "1")];
        let tally = after(limits, &round).unwrap();
        assert_eq!(tally.clone().count(&traced("a"), OPENED, at(0)), Err(ThreadLimit::Loop));
        let other = tally.clone().count(&traced("b"), OPENED, at(0)).unwrap();
        let other = other.count(&answer("b", "1"), OPENED, at(0)).unwrap();
        assert!(other.count(&traced("a"), OPENED, at(0)).is_ok());
        // A new window has nothing to compare.
        let later = Tally::at(Some(&tally), limits, at(3_600_000));
        assert!(later.count(&traced("a"), OPENED, at(3_600_000)).is_ok());
    }

    #[test]
    fn a_new_key_leaves_nothing_to_compare() {
        let limits = ThreadLimits { loop_threshold: Some(1), ..ThreadLimits::NONE };
        let tally = after(limits, &[traced("a"), answer("a", "1")]).unwrap();
        let key = Some(ContentRef { digest: digest("salt"), size: 32 });
        let trace = Some(Trace { request: digest("a"), key });
        let keyed = Counted::Call(Counting { changes: false, trace });
        let tally = tally.count(&keyed, OPENED, at(0)).unwrap();
        assert_eq!((tally.key, tally.recent.len()), (key, 0));
        assert!(tally.count(&traced("a"), OPENED, at(0)).is_ok());
    }

    #[test]
    fn the_row_stays_small() {
        let limits = ThreadLimits { loop_threshold: Some(32), ..ThreadLimits::NONE };
        let many: Vec<_> = (0..100).map(|n| answer(&n.to_string(), "1")).collect();
        assert_eq!(after(limits, &many).unwrap().recent.len(), Limits::MAX_CYCLE);
    }

    #[test]
    fn a_bound_that_nothing_could_meet_is_refused_by_name() {
        assert_eq!(ThreadLimits::NONE.check(), Ok(()));
        assert!(ThreadLimits::NONE.is_off());
        let zero = ThreadLimits { max_calls: Some(0), ..ThreadLimits::NONE };
        assert_eq!(zero.check(), Err(LimitsError::Zero("max_calls")));
        assert!(!zero.is_off());
        let window = ThreadLimits { window_ms: 0, ..ThreadLimits::NONE };
        assert_eq!(window.check(), Err(LimitsError::Zero("window_ms")));
        let wide = ThreadLimits { loop_threshold: Some(33), ..ThreadLimits::NONE };
        assert_eq!(wide.check(), Err(LimitsError::TooLarge("loop_threshold", 32)));
    }
}
