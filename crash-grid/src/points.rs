//! Points at which a process of a story can be killed, and what becomes of the run when it is.

use portcullis_testkit::counter::Counter;
use portcullis_testkit::stage::{Aim, Sighted};

use super::cast::{Mode, Role};
use super::judge::{Blame, Fault, Finding, Judged, judge};
use super::life::{ACTED, ENDED, LET_GO, WAITING};
use super::place::{Exit, Medium, Place};
use super::story::Story;

/// More processes than any story needs to end.
const MOST_PROCESSES: usize = 40;

/// One process of a story that is not killed.
pub(crate) struct Leg {
    pub(crate) role: Role,
    /// The place as the process found it.
    pub(crate) before: Place,
    events_before: u64,
    /// What it went through: its points.
    pub(crate) sighted: Vec<Sighted>,
}

/// Which process comes after one that ended so; `None` at the end.
fn next(story: &Story, role: Role, code: i32) -> Option<Role> {
    match (role, code) {
        (Role::Drive, ENDED) => story.erases.then_some(Role::Eraser),
        (Role::Drive, WAITING) => Some(Role::Person),
        (Role::Drive | Role::Naive, LET_GO) | (Role::Person, ACTED) => Some(Role::Drive),
        (Role::Eraser, ACTED) => None,
        (role, code) => panic!("{} of {} ends with {code}", role.name(), story.name),
    }
}

/// Plays one part that must not fail.
pub(crate) fn play(story: &Story, place: &Place, role: Role, mode: Mode) -> Option<Role> {
    match place.play(story, role, mode, None) {
        Exit::Code(code) => next(story, role, code),
        exit => panic!("{} of {} failed: {exit:?}", role.name(), story.name),
    }
}

/// Goes on to the end, in one more process. What people approved and nothing can bring about any more is lost.
fn to_the_end(story: &Story, place: &Place, mode: Mode) -> Option<Fault> {
    match place.play(story, Role::Everybody, mode, None) {
        Exit::Code(ENDED) => None,
        exit => {
            Some(Fault::new(Blame::Loss, format!("the run does not come to its end: {exit:?}")))
        }
    }
}

/// Plays a story without a kill.
pub(crate) fn rehearse(story: &Story, medium: Medium, counter: &Counter) -> Vec<Leg> {
    let place = Place::fresh(medium, counter);
    let legs = rehearse_from(story, &place, Mode::Story);
    let end = judge(story, &place);
    assert_eq!(end.faults(), Vec::<Fault>::new(), "{}", story.name);
    assert_eq!(end.reason(), story.reasons.first().copied(), "{}", story.name);
    let ends: Vec<(u64, Finding)> = end.changes.iter().map(|(n, f)| (*n, *f)).collect();
    assert_eq!(ends, story.ends, "{}", story.name);
    legs
}

/// Goes on from a place without a kill, and keeps what each process found.
pub(crate) fn rehearse_from(story: &Story, place: &Place, mode: Mode) -> Vec<Leg> {
    let mut legs = Vec::new();
    let mut role = Some(Role::Drive);
    while let Some(now) = role {
        assert!(legs.len() < MOST_PROCESSES, "{} does not end", story.name);
        let (before, events_before) = (place.copy(), judge(story, place).events);
        role = play(story, place, now, mode);
        legs.push(Leg { role: now, before, events_before, sighted: place.sighted() });
    }
    legs
}

/// One kill.
pub(crate) struct Point<'a> {
    pub(crate) story: &'static Story,
    pub(crate) medium: Medium,
    pub(crate) leg: usize,
    pub(crate) part: &'a Leg,
    pub(crate) at: &'a Sighted,
    /// What people say up to the kill.
    pub(crate) mode: Mode,
    /// Whether a process was killed before.
    pub(crate) recovers: bool,
}

impl Point<'_> {
    pub(crate) fn name(&self) -> String {
        let Self { story, medium, at, .. } = self;
        format!("{} {} {} {}", story.name, medium.name(), self.process(), at.aim)
    }

    /// Which process of its story it is.
    pub(crate) fn process(&self) -> String {
        let again = if self.recovers { " again" } else { "" };
        format!("{} {}{again}", self.leg, self.part.role.name())
    }
}

/// How a point ends: what is known of the change at hand once a fresh process has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    DoneOnce,
    NotDone,
    Waits,
}

impl Fate {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::DoneOnce => "done once",
            Self::NotDone => "not done",
            Self::Waits => "waits for reconciliation",
        }
    }
}

/// What became of a point.
pub(crate) struct Outcome {
    /// `None` when it could not be tried to its end.
    pub(crate) fate: Option<Fate>,
    /// The changes right after the kill.
    pub(crate) left: String,
    /// The changes at each end that was gone to.
    pub(crate) ends: Vec<String>,
    pub(crate) faults: Vec<Fault>,
}

impl Outcome {
    /// A point whose trial broke.
    pub(crate) fn broken(why: String) -> Self {
        Self { fate: None, left: String::new(), ends: Vec::new(), faults: vec![Fault::other(why)] }
    }

    pub(crate) fn has(&self, blame: Blame) -> bool {
        self.faults.iter().any(|fault| fault.blame == blame)
    }
}

/// Kills at a point, goes on in fresh processes, and judges.
pub(crate) fn try_point(point: &Point<'_>) -> Outcome {
    let story = point.story;
    let place = point.part.before.copy();
    let exit = place.play(story, point.part.role, point.mode, Some(point.at.aim));
    let mut faults = fired(point, &place, &exit);
    let died = judge(story, &place);
    faults.extend(died.faults());
    faults.extend(kept(point, &place, &died));
    // A fresh process takes the run up at once.
    if let Exit::Failed(why) = place.play(story, Role::Drive, Mode::Story, None) {
        faults.push(Fault::new(Blame::Loss, format!("the run cannot be taken up: {why}")));
        return Outcome { fate: None, left: summary(&died), ends: Vec::new(), faults };
    }
    let taken = judge(story, &place);
    faults.extend(taken.faults());
    if died.held && taken.proven <= died.proven {
        faults.push(Fault::other("the lease of the dead was come by without proof of its death"));
    }
    let mut ends = Vec::new();
    if taken.waits_for_outcome() {
        faults.extend(stays(story, &place, &taken));
        for mode in [Mode::Truth, Mode::Again] {
            let branch = place.copy();
            faults.extend(to_the_end(story, &branch, mode));
            ends.push(judge(story, &branch));
        }
    } else {
        faults.extend(to_the_end(story, &place, Mode::Story));
        ends.push(judge(story, &place));
    }
    faults.extend(ends.iter().flat_map(|end| unexpected(story, end)));
    faults.sort();
    faults.dedup();
    Outcome {
        fate: Some(fate(&died, &taken)),
        left: summary(&died),
        ends: ends.iter().map(summary).collect(),
        faults,
    }
}

fn fate(died: &Judged, taken: &Judged) -> Fate {
    if taken.waits_for_outcome() {
        return Fate::Waits;
    }
    match died.change_at_hand() {
        Some(Finding::Once | Finding::Again | Finding::Unsettled | Finding::Twice) => {
            Fate::DoneOnce
        }
        _ => Fate::NotDone,
    }
}

/// The control of the kill itself: it fired, there, and nothing else ended the process.
pub(crate) fn fired(point: &Point<'_>, place: &Place, exit: &Exit) -> Vec<Fault> {
    let mut faults = Vec::new();
    if *exit != Exit::Killed {
        faults.push(Fault::other(format!("the process was not killed: {exit:?}")));
    }
    let there = |sight: &Sighted| {
        (sight.aim, &sight.what, &sight.wrote) == (point.at.aim, &point.at.what, &point.at.wrote)
    };
    if !place.sighted().iter().any(there) {
        faults.push(Fault::other("the process did not come to where it should be killed"));
    }
    faults
}

/// What the store said yes to is there, and nothing else is.
fn kept(point: &Point<'_>, place: &Place, died: &Judged) -> Vec<Fault> {
    let sighted = place.sighted();
    let answered = sighted.iter().filter(|sight| sight.is_stored_append());
    // A transaction that was committed counts before its store can say so.
    let committed =
        Some(point.at).filter(|at| at.is_commit() && !matches!(at.aim, Aim::Opening(_)));
    let committed = committed.filter(|at| at.is_append());
    let more: usize = answered.chain(committed).map(|sight| sight.what.len()).sum();
    let opened = match point.at.aim {
        Aim::Opening(_) => point.at.is_commit(),
        Aim::Store(_) | Aim::Effect(..) => true,
    };
    let expected = point.part.events_before.max(u64::from(opened)) + u64::try_from(more).unwrap();
    if died.events == expected {
        return Vec::new();
    }
    let blame = if died.events < expected { Blame::Loss } else { Blame::Other };
    let text = format!("{} events are stored and {expected} were answered", died.events);
    vec![Fault::new(blame, text)]
}

/// A run with an unknown outcome waits however often it is taken up, and nothing is recorded meanwhile.
fn stays(story: &Story, place: &Place, before: &Judged) -> Vec<Fault> {
    let exit = place.play(story, Role::Drive, Mode::Story, None);
    let after = judge(story, place);
    let mut faults = after.faults();
    if exit != Exit::Code(WAITING) || !after.waits_for_outcome() {
        faults.push(Fault::other("a run with an unknown outcome went on by itself"));
    }
    if after.events != before.events || after.changes != before.changes {
        faults.push(Fault::other("something happened while a run waited"));
    }
    faults
}

/// How an end differs from what the story allows.
fn unexpected(story: &Story, end: &Judged) -> Vec<Fault> {
    let mut faults = end.faults();
    if !end.reason().is_some_and(|reason| story.reasons.contains(&reason)) {
        faults.push(Fault::other(format!("the run ended as {:?}", end.reason())));
    }
    for (line, wanted) in story.ends {
        let found = end.changes[line];
        let blame = match (wanted, found) {
            (Finding::Unsettled, Finding::Unsettled) | (Finding::NotDone, Finding::NotDone) => None,
            (Finding::NotDone, _) => Some(Blame::Double),
            (_, Finding::Once | Finding::Again) => None,
            (_, Finding::NotDone) if end.denied_by_people.contains(line) => None,
            (_, Finding::NotDone) => Some(Blame::Loss),
            _ => Some(Blame::Other),
        };
        faults.extend(blame.map(|blame| {
            Fault::new(blame, format!("line {line} should be {wanted:?} and is {found:?}"))
        }));
    }
    faults
}

/// Each change in words.
fn summary(judged: &Judged) -> String {
    let words = judged.changes.iter().map(|(line, finding)| {
        let words = match finding {
            Finding::Once => "once",
            Finding::Again => "again-by-order",
            Finding::NotDone => "not",
            Finding::Waits => "waits",
            Finding::Started => "started",
            Finding::Unsettled => "unsettled",
            Finding::Twice => "TWICE",
            Finding::Lost => "LOST",
            Finding::Unrecorded => "UNRECORDED",
        };
        format!("{line}:{words}")
    });
    words.collect::<Vec<_>>().join(" ")
}
