//! The grid: every story over every store, killed at every point that it goes through.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis::domain::event::Body;
use portcullis_testkit::counter::Counter;
use portcullis_testkit::crash::Phase;
use portcullis_testkit::stage::{Aim, Side, Sighted};

use super::cast::Mode;
use super::judge::Blame;
use super::place::{Exit, Medium, Place};
use super::points::{Leg, Outcome, Point, rehearse, rehearse_from, try_point};
use super::story::{STORIES, Story};

/// How many points are tried at once.
const WORKERS: usize = 4;

/// Appended when an installation is made. In memory there is nothing yet that a crash could leave.
const FIRST_EVENT: &str = "journal.opened";

/// Which points are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As few as hit every type of event on every side, every effect, every renewal and a write of every table.
    Cover,
    /// Those of the cover, and every n-th of the rest, from the k-th on.
    Shard {
        k: usize,
        n: usize,
    },
    All,
}

/// A story that was played once without a kill.
struct Played {
    story: &'static Story,
    medium: Medium,
    /// What people say about an unknown outcome.
    mode: Mode,
    /// Whether it goes on from a process that was killed before.
    recovers: bool,
    legs: Vec<Leg>,
}

/// The stories, each played once without a kill.
pub(crate) struct Rehearsals {
    played: Vec<Played>,
}

/// Stories that are also played from a process on that was killed right after the first effect of this tool. The run is
/// taken up, a person has the call made again where it changes something, and it is made again.
const RECOVERIES: [(&str, &str); 5] = [
    ("host", "write"),
    ("host", "look"),
    ("two-people", "shred"),
    ("late", "slow"),
    ("batch", "look"),
];

/// The processes of a recovery: after them it is as any other run.
const RECOVERING: usize = 3;

impl Rehearsals {
    pub(crate) fn play(stories: &[&'static Story], media: &[Medium], counter: &Counter) -> Self {
        let mut played = Vec::new();
        for (story, medium) in pairs(stories, media) {
            let legs = rehearse(story, medium, counter);
            played.push(Played { story, medium, mode: Mode::Story, recovers: false, legs });
        }
        Self { played }
    }

    /// What follows a first kill, for those of the stories that have such a sequel.
    pub(crate) fn recover(stories: &[&'static Story], media: &[Medium], counter: &Counter) -> Self {
        let mut played = Vec::new();
        for (story, medium) in pairs(stories, media) {
            for (_, tool) in RECOVERIES.iter().filter(|(name, _)| *name == story.name) {
                let place = killed_after(story, medium, tool, counter);
                let mut legs = rehearse_from(story, &place, Mode::Again);
                legs.truncate(RECOVERING);
                played.push(Played { story, medium, mode: Mode::Again, recovers: true, legs });
            }
        }
        Self { played }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.played.extend(other.played);
        self
    }

    /// All points, in the order of the grid.
    pub(crate) fn points(&self) -> Vec<Point<'_>> {
        let legs = self.played.iter().flat_map(|played| {
            played.legs.iter().enumerate().map(move |(leg, part)| (played, leg, part))
        });
        legs.flat_map(|(played, leg, part)| {
            let Played { story, medium, mode, recovers, .. } = *played;
            let certain = part.sighted.iter().filter(|sight| is_certain(sight));
            certain.map(move |at| Point { story, medium, leg, part, at, mode, recovers })
        })
        .collect()
    }
}

fn pairs(
    stories: &[&'static Story],
    media: &[Medium],
) -> impl Iterator<Item = (&'static Story, Medium)> {
    media.iter().flat_map(|medium| stories.iter().map(move |story| (*story, *medium)))
}

/// A place whose process was killed right after the first effect of a tool, before anybody knew of it.
pub(crate) fn killed_after(
    story: &'static Story,
    medium: Medium,
    tool: &str,
    counter: &Counter,
) -> Place {
    let effect = |sight: &&Sighted| {
        matches!(sight.aim, Aim::Effect(_, Phase::After)) && sight.what == [tool]
    };
    let legs = rehearse(story, medium, counter);
    let found = legs.iter().find_map(|leg| Some((leg, leg.sighted.iter().find(effect)?.aim)));
    let (leg, aim) = found.unwrap();
    let place = leg.before.copy();
    assert_eq!(place.play(story, leg.role, Mode::Story, Some(aim)), Exit::Killed);
    place
}

/// Renewals go on for as long as a call takes; the first two are the ones that every process reaches.
fn is_certain(sight: &Sighted) -> bool {
    sight.renewal().is_none_or(|number| number <= 2)
}

/// What a point is a kill at: a type of event, an effect, a renewal or a write, on one side, over one store.
type Hit = (Medium, String, Side);

fn hits(point: &Point<'_>) -> Vec<Hit> {
    let side = point.at.side();
    let name = |what: &String| {
        if point.at.is_effect() { format!("effect of {what}") } else { what.clone() }
    };
    let renewal = point.at.renewal().map(|_| "renewal".to_owned());
    let write = point.at.wrote.as_ref().map(|what| format!("write of {what}"));
    let names = point.at.what.iter().map(name).chain(renewal).chain(write);
    names.map(|name| (point.medium, name, side)).collect()
}

/// The points of a choice, in order.
pub(crate) fn chosen<'p>(points: Vec<Point<'p>>, choice: Choice) -> Vec<Point<'p>> {
    let mut seen = BTreeSet::new();
    let mut rest = 0_usize;
    points
        .into_iter()
        .filter(|point| {
            let adds = hits(point).into_iter().filter(|hit| seen.insert(hit.clone())).count() > 0;
            let place = rest;
            rest += usize::from(!adds);
            match choice {
                Choice::All => true,
                Choice::Cover => adds,
                Choice::Shard { k, n } => adds || place % n == k - 1,
            }
        })
        .collect()
}

/// How often each thing was hit on each side.
pub(crate) fn coverage(points: &[Point<'_>]) -> BTreeMap<Hit, usize> {
    let mut coverage = BTreeMap::new();
    for hit in points.iter().flat_map(hits) {
        *coverage.entry(hit).or_default() += 1;
    }
    coverage
}

/// What has to be hit and is not: every type of event and every renewal on every side, and an effect on both.
pub(crate) fn missing(coverage: &BTreeMap<Hit, usize>, media: &[Medium]) -> Vec<String> {
    let mut missing = Vec::new();
    for medium in media {
        let sides = Side::ALL.iter().filter(|s| *medium == Medium::Sqlite || **s != Side::Inside);
        for side in sides {
            let hit = |name: &str| coverage.contains_key(&(*medium, name.to_owned(), *side));
            let types = Body::TYPES.iter().map(|(name, _)| *name);
            let reachable = types.filter(|t| *medium == Medium::Sqlite || *t != FIRST_EVENT);
            let unhit = reachable.chain(["renewal"]).filter(|name| !hit(name));
            missing.extend(
                unhit.map(|name| {
                    format!("no story is killed {side:?} {name} over {}", medium.name())
                }),
            );
            let is_effect =
                |(m, name, s): &&Hit| (m, s) == (medium, side) && name.starts_with("effect of ");
            if *side != Side::Inside && !coverage.keys().any(|hit| is_effect(&hit)) {
                missing.push(format!("no effect is killed {side:?} over {}", medium.name()));
            }
        }
    }
    missing
}

/// Tries all points, several at once; the outcomes come in the order of the points. With `first` no point is begun
/// any more once an effect happened twice or was lost.
pub(crate) fn try_all(points: &[Point<'_>], first: bool) -> Vec<Option<Outcome>> {
    let (taken, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(points.iter().map(|_| None).collect());
    let work = || {
        while let Some((index, point)) = {
            let index = taken.fetch_add(1, Ordering::Relaxed);
            let left = points.get(index).filter(|_| !stop.load(Ordering::Relaxed));
            left.map(|point| (index, point))
        } {
            let outcome = catch_unwind(AssertUnwindSafe(|| try_point(point)));
            let outcome = outcome.unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().cloned();
                Outcome::broken(said.unwrap_or_else(|| "a panic".to_owned()))
            });
            let found = outcome.has(Blame::Double) || outcome.has(Blame::Loss);
            stop.fetch_or(first && found, Ordering::Relaxed);
            outcomes.lock().unwrap()[index] = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    outcomes.into_inner().unwrap()
}

/// The stories with these names; all when none is named.
pub(crate) fn stories(names: &[String]) -> Option<Vec<&'static Story>> {
    if names.is_empty() {
        return Some(STORIES.iter().collect());
    }
    let named = |name: &String| STORIES.iter().find(|story| story.name == name);
    names.iter().map(named).collect()
}
