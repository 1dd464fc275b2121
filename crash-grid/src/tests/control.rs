//! What the grid must be able to see: a double effect, a kill that did not fire, a type of event that nobody hits.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_testkit::crash::Phase;
use portcullis_testkit::stage::{Aim, Sighted};

use crate::cast::{Mode, Role};
use crate::counting::Counting;
use crate::grid::{Choice, Rehearsals, chosen, coverage, killed_after, missing, try_all};
use crate::judge::{Blame, Fault, Finding, judge};
use crate::place::{Medium, Place};
use crate::points::{Fate, Outcome, Point, fired, play, rehearse};
use crate::report::Report;
use crate::story::{STORIES, Story, WHOLE};
use crate::{Asked, shard};

/// Tries all points and finds nothing wrong with any.
pub(super) fn no_faults(points: &[Point<'_>]) {
    let outcomes = try_all(points, false);
    let tried = points.iter().zip(outcomes).map(|(point, outcome)| (point, outcome.unwrap()));
    let wrong: Vec<String> = tried
        .filter(|(_, outcome)| !outcome.faults.is_empty())
        .map(|(point, outcome)| format!("{}: {:?}", point.name(), outcome.faults))
        .collect();
    assert!(wrong.is_empty(), "{} of {} points:\n{}", wrong.len(), points.len(), wrong.join("\n"));
}

#[test]
fn the_judge_finds_out_a_driver_that_does_not_look_at_the_record() {
    let counting = Counting::start();
    let story = WHOLE;
    for medium in Medium::ALL {
        let place = killed_after(story, medium, "write", &counting.counter);
        let died = judge(story, &place);
        assert_eq!((died.changes[&3], died.faults().len()), (Finding::Started, 0));
        let gate = place.copy();
        play(story, &place, Role::Naive, Mode::Story);
        let twice = judge(story, &place);
        assert_eq!(twice.changes[&3], Finding::Twice);
        assert_eq!(twice.faults(), [Fault::new(Blame::Double, "line 3: Twice")]);
        // The gate in the same place asks.
        play(story, &gate, Role::Drive, Mode::Story);
        let asked = judge(story, &gate);
        assert_eq!((asked.changes[&3], asked.waits_for_outcome()), (Finding::Waits, true));
    }
}

#[test]
fn a_kill_that_does_not_fire_is_noticed() {
    let counting = Counting::start();
    let story = Story::named("expired");
    for medium in Medium::ALL {
        let place = Place::fresh(medium, &counting.counter);
        let legs = rehearse(story, medium, &counting.counter);
        let at = Sighted { aim: Aim::Effect(9, Phase::Before), ..legs[0].sighted[0].clone() };
        let exit = place.play(story, Role::Drive, Mode::Story, Some(at.aim));
        let (part, mode) = (&legs[0], Mode::Story);
        let point = Point { story, medium, leg: 0, part, at: &at, mode, recovers: false };
        assert_eq!(fired(&point, &place, &exit).len(), 2);
    }
}

/// Every point over tables in memory, which costs little, and in a file those of a story in which people are asked.
#[test]
fn killed_at_every_event_no_change_is_made_twice_and_the_unknown_waits() {
    let counting = Counting::start();
    let asked: Vec<&'static Story> = vec![Story::named("asked")];
    let all: Vec<&'static Story> = STORIES.iter().collect();
    for (stories, medium) in [(all, Medium::Memory), (asked, Medium::Sqlite)] {
        let rehearsals = Rehearsals::play(&stories, &[medium], &counting.counter);
        let points = chosen(rehearsals.points(), Choice::Cover);
        assert!(points.len() > 20, "{} points", points.len());
        no_faults(&points);
    }
}

#[test]
fn a_type_of_event_that_no_story_comes_to_is_missing_by_name() {
    let counting = Counting::start();
    let stories: Vec<&'static Story> = STORIES.iter().filter(|s| s.name != "alone").collect();
    let rehearsals = Rehearsals::play(&stories, &[Medium::Memory], &counting.counter);
    let missing = missing(&coverage(&rehearsals.points()), &[Medium::Memory]);
    assert_eq!(
        missing,
        ["Before", "After"]
            .map(|side| format!("no story is killed {side} content.erased over memory"))
    );
    assert!(!self::missing(&BTreeMap::new(), &Medium::ALL).is_empty());
}

#[test]
fn shards_share_the_cover_and_part_the_rest() {
    let counting = Counting::start();
    let stories = [Story::named("host")];
    let rehearsals = Rehearsals::play(&stories, &[Medium::Memory], &counting.counter);
    let names = |choice| {
        let points = chosen(rehearsals.points(), choice);
        points.iter().map(Point::name).collect::<Vec<_>>()
    };
    let (all, cover) = (names(Choice::All), names(Choice::Cover));
    let shards = [1, 2, 3].map(|k| names(Choice::Shard { k, n: 3 }));
    let mut together: Vec<String> = shards.concat();
    together.sort();
    let shared = together.len() - cover.len() * 2;
    together.dedup();
    assert_eq!((together.len(), shared), (all.len(), all.len()));
    assert!(shards.iter().all(|shard| shard.len() < all.len()));
}

#[test]
fn what_is_asked_for_is_read() {
    let read =
        |text: &str| Asked::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let asked = read("--all --story late --store memory").unwrap();
    assert_eq!((asked.choice, asked.media), (Choice::All, vec![Medium::Memory]));
    assert_eq!(read("--shard 2/3").unwrap().choice, Choice::Shard { k: 2, n: 3 });
    for text in ["--shard", "--shard 0/3", "--shard 4/3", "--store disk", "--what"] {
        assert_eq!(read(text), None, "{text}");
    }
    assert_eq!(shard("1"), None);
}

#[test]
fn what_is_wrong_is_printed_counted_and_fails_the_run() {
    let counting = Counting::start();
    let stories = [Story::named("expired")];
    let rehearsals = Rehearsals::play(&stories, &[Medium::Memory], &counting.counter);
    let points = chosen(rehearsals.points(), Choice::All);
    let fault = |blame| Fault::new(blame, "line 0:\n Twice");
    let outcome = |faults| Outcome {
        fate: Some(Fate::NotDone),
        left: "0:not".to_owned(),
        ends: Vec::new(),
        faults,
    };
    let mut outcomes: Vec<Outcome> = points.iter().map(|_| outcome(Vec::new())).collect();
    let report = |outcomes: &[Outcome], missing: &[String]| {
        let report = Report {
            points: &points,
            outcomes,
            all: points.len(),
            choice: Choice::All,
            coverage: &coverage(&points),
            missing,
            took: Duration::from_secs(1),
        };
        (report.is_well(), report.faults(), report.closing(), report.grid())
    };
    assert!(report(&outcomes, &[]).0);
    assert_eq!(report(&outcomes, &["a type".to_owned()]).1, "missing: a type\n");
    assert!(!report(&outcomes, &["a type".to_owned()]).0);
    outcomes[0] = outcome(vec![fault(Blame::Double), fault(Blame::Other)]);
    outcomes[1] = outcome(vec![fault(Blame::Loss)]);
    let (well, faults, closing, grid) = report(&outcomes, &[]);
    assert!(!well);
    let words: Vec<&str> = faults.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(words, ["double", "wrong", "loss"]);
    assert!(faults.contains("line 0: Twice"), "{faults}");
    assert!(closing.contains("1 doubles, 1 losses, 1 otherwise wrong"), "{closing}");
    assert_eq!(grid.matches("WRONG").count(), 2);
}
