//! The grid: every story, killed at every moment that it goes through.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use portcullis::domain::event::{Body, LeaseCause};
use portcullis_testkit::crash::{Act, Phase};

use super::child::{ACTED, Aim, ENDED, LET_GO, Mode, Role, WAITING};
use super::judge::{Finding, Judged, judge};
use super::place::{Place, Sighted, build_folder};
use super::story::{STORIES, Story, WHOLE};

/// How many points are tried at once.
const WORKERS: usize = 4;

/// More processes than any story needs to end.
const MOST_PROCESSES: usize = 40;

/// `journal.opened` is appended when a store is opened for the first time, in the transaction that creates it, and
/// before anybody could wrap the store. The random kills and the store's own tests fall into it.
const OUT_OF_REACH: &str = "journal.opened";

/// One process of a story that is not killed.
#[derive(Debug)]
struct Leg {
    role: Role,
    /// The place as the process found it.
    before: Place,
    events_before: u64,
    sighted: Vec<Sighted>,
}

/// Which process comes after one that ended so; `None` at the end.
fn next(story: &Story, role: Role, code: Option<i32>) -> Option<Role> {
    match (role, code) {
        (Role::Drive, Some(ENDED)) => story.erases.then_some(Role::Eraser),
        (Role::Drive, Some(WAITING)) => Some(Role::Person),
        (Role::Drive | Role::Naive, Some(LET_GO)) | (Role::Person, Some(ACTED)) => {
            Some(Role::Drive)
        }
        (Role::Eraser, Some(ACTED)) => None,
        (role, code) => panic!("{} of {} ends with {code:?}", role.name(), story.name),
    }
}

/// Plays one part that must not fail.
fn play(story: &Story, place: &Place, role: Role, mode: Mode) -> Option<Role> {
    let status = place.play(story, role, mode, None);
    let expected = [ENDED, WAITING, LET_GO, ACTED];
    assert!(
        status.code().is_some_and(|code| expected.contains(&code)),
        "{} of {} failed with {status}: {}",
        role.name(),
        story.name,
        place.complaint()
    );
    next(story, role, status.code())
}

/// Goes on to the end, in one more process.
fn to_the_end(story: &Story, place: &Place, mode: Mode) {
    let status = place.play(story, Role::Everybody, mode, None);
    assert_eq!(status.code(), Some(ENDED), "{}: {}", story.name, place.complaint());
}

/// Plays a story without a kill.
fn rehearse(story: &Story) -> (Vec<Leg>, Judged) {
    let place = Place::fresh();
    let legs = rehearse_from(story, &place, Mode::Story);
    let end = judge(story, &place);
    assert_eq!(end.faults(), Vec::<String>::new(), "{}", story.name);
    assert_eq!(end.reason(), story.reasons.first().copied(), "{}", story.name);
    let ends: Vec<(u64, Finding)> = end.changes.iter().map(|(n, f)| (*n, *f)).collect();
    assert_eq!(ends, story.ends, "{}", story.name);
    (legs, end)
}

/// Goes on from a place without a kill, and keeps what each process found.
fn rehearse_from(story: &Story, place: &Place, mode: Mode) -> Vec<Leg> {
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
struct Point<'a> {
    story: &'static Story,
    leg: usize,
    part: &'a Leg,
    at: &'a Sighted,
    /// What people say up to the kill.
    mode: Mode,
}

/// What became of it.
struct Row {
    cells: Vec<String>,
    faults: Vec<String>,
}

/// Kills at a point, goes on in fresh processes, and judges.
fn try_point(point: &Point<'_>) -> Row {
    let story = point.story;
    let place = point.part.before.copy();
    let status = place.play(story, point.part.role, point.mode, Some(point.at.aim));
    let mut faults = fired(point, &place, status);
    let died = judge(story, &place);
    faults.extend(died.faults());
    let sighted = place.sighted();
    let stored = sighted.iter().filter(|sight| is_append(sight) && sight.stored == Some(true));
    let expected = point.part.events_before.max(1)
        + stored.map(|sight| u64::try_from(sight.what.len()).unwrap()).sum::<u64>();
    if died.events != expected {
        faults.push(format!("{} events are stored and {expected} were answered", died.events));
    }
    // A fresh process takes the run up at once.
    play(story, &place, Role::Drive, Mode::Story);
    let taken = judge(story, &place);
    faults.extend(taken.faults());
    if died.is_held() && taken.last_lease != Some(LeaseCause::HolderDead) {
        faults.push(format!("the lease of the dead was come by as {:?}", taken.last_lease));
    }
    let mut ends = Vec::new();
    if taken.waits_for_outcome() {
        faults.extend(stays(story, &place, &taken));
        for mode in [Mode::Truth, Mode::Again] {
            let branch = place.copy();
            to_the_end(story, &branch, mode);
            ends.push(judge(story, &branch));
        }
    } else {
        to_the_end(story, &place, Mode::Story);
        ends.push(judge(story, &place));
    }
    faults.extend(ends.iter().flat_map(|end| unexpected(story, end)));
    let mut cells = vec![
        story.name.to_owned(),
        format!("{} {}", point.leg, point.part.role.name()),
        point.at.aim.to_string(),
        point.at.what.join(" "),
        summary(&died),
        if taken.waits_for_outcome() { "asks" } else { "goes on" }.to_owned(),
    ];
    let mut told = ends.iter().map(summary).collect::<Vec<_>>();
    told.resize(2, String::new());
    cells.extend(told);
    cells.push(if faults.is_empty() { "ok" } else { "WRONG" }.to_owned());
    Row { cells, faults }
}

/// The control of the kill itself: it fired, there, and nothing else ended the process.
fn fired(point: &Point<'_>, place: &Place, status: ExitStatus) -> Vec<String> {
    let mut faults = Vec::new();
    if status.signal() != Some(9) {
        faults.push(format!("the process was not killed: {status} {}", place.complaint()));
    }
    if !place.sighted().iter().any(|sight| sight.aim == point.at.aim && sight.what == point.at.what)
    {
        faults.push("the process did not come to where it should be killed".to_owned());
    }
    faults
}

const fn is_append(sight: &Sighted) -> bool {
    matches!(sight.aim, Aim::Store(moment) if matches!(moment.act, Act::Append))
}

/// A run with an unknown outcome waits however often it is taken up, and nothing is recorded meanwhile.
fn stays(story: &Story, place: &Place, before: &Judged) -> Vec<String> {
    let status = place.play(story, Role::Drive, Mode::Story, None);
    let after = judge(story, place);
    let mut faults = Vec::new();
    if status.code() != Some(WAITING) || !after.waits_for_outcome() {
        faults.push("a run with an unknown outcome went on by itself".to_owned());
    }
    if after.events != before.events || after.changes != before.changes {
        faults.push("something happened while a run waited".to_owned());
    }
    faults
}

/// How an end differs from what the story allows.
fn unexpected(story: &Story, end: &Judged) -> Vec<String> {
    let mut faults = end.faults();
    if !end.reason().is_some_and(|reason| story.reasons.contains(&reason)) {
        faults.push(format!("the run ended as {:?}", end.reason()));
    }
    for (line, wanted) in story.ends {
        let found = end.changes[line];
        let fits = match wanted {
            Finding::NotDone => found == Finding::NotDone,
            Finding::Unsettled if found == Finding::Unsettled => true,
            _ => match found {
                Finding::Once | Finding::Again => true,
                Finding::NotDone => end.denied_by_people.contains(line),
                _ => false,
            },
        };
        if !fits {
            faults.push(format!("line {line} should be {wanted:?} and is {found:?}"));
        }
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

/// Tries all points, several at once; the rows come in the order of the points.
fn try_all(points: &[Point<'_>]) -> Vec<Row> {
    let taken = AtomicUsize::new(0);
    let rows: Mutex<Vec<Option<Row>>> = Mutex::new(points.iter().map(|_| None).collect());
    let work = || {
        while let Some((index, point)) = {
            let index = taken.fetch_add(1, Ordering::Relaxed);
            points.get(index).map(|point| (index, point))
        } {
            let row = catch_unwind(AssertUnwindSafe(|| try_point(point))).unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().cloned();
                let at = format!("{} {} {}", point.story.name, point.leg, point.at.aim);
                Row { cells: vec![at], faults: vec![said.unwrap_or_else(|| "a panic".to_owned())] }
            });
            rows.lock().unwrap()[index] = Some(row);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    rows.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

/// Renewals go on for as long as a call takes; the first two are the ones that every process reaches.
fn is_certain(sight: &Sighted) -> bool {
    !matches!(sight.aim, Aim::Store(moment) if moment.act == Act::Renewal && moment.number > 2)
}

#[test]
fn killed_at_every_event_no_change_is_made_twice_and_the_unknown_waits() {
    let begun = Instant::now();
    let rehearsed: Vec<(&'static Story, Vec<Leg>)> =
        STORIES.iter().map(|story| (story, rehearse(story).0)).collect();
    let points: Vec<Point<'_>> = rehearsed
        .iter()
        .flat_map(|(story, legs)| {
            legs.iter().enumerate().map(move |(leg, part)| (*story, leg, part))
        })
        .flat_map(|(story, leg, part)| {
            let certain = part.sighted.iter().filter(|sight| is_certain(sight));
            certain.map(move |at| Point { story, leg, part, at, mode: Mode::Story })
        })
        .collect();
    let rows = try_all(&points);
    report("crash-grid.txt", &rows, begun);
    covers_every_event(&points);
}

/// Prints the grid, keeps it beside what was built, and fails for a row that is wrong.
fn report(file: &str, rows: &[Row], begun: Instant) {
    let table = table(rows, begun);
    println!("{table}");
    std::fs::write(build_folder().join(file), &table).unwrap();
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| !row.faults.is_empty())
        .map(|row| format!("{}: {}", row.cells.join(" | "), row.faults.join("; ")))
        .collect();
    assert!(wrong.is_empty(), "{} of {} points:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// A process was killed on both sides of the append of every type of event, of renewals, and of effects. The
/// appends that are only written are among them: they hold `step.proposed`.
fn covers_every_event(points: &[Point<'_>]) {
    let hit: BTreeSet<(&str, Phase)> = points
        .iter()
        .filter(|point| is_append(point.at))
        .flat_map(|point| point.at.what.iter().map(|what| (what.as_str(), point.at.phase())))
        .collect();
    for (kind, _) in Body::TYPES.iter().filter(|(kind, _)| *kind != OUT_OF_REACH) {
        for phase in [Phase::Before, Phase::After] {
            assert!(hit.contains(&(kind, phase)), "no process was killed {phase:?} {kind}");
        }
    }
    for phase in [Phase::Before, Phase::After] {
        let at = |wanted: fn(&Aim) -> bool| {
            points.iter().any(|point| wanted(&point.at.aim) && point.at.phase() == phase)
        };
        assert!(at(|aim| matches!(aim, Aim::Effect(..))), "no effect {phase:?}");
        assert!(
            at(|aim| matches!(aim, Aim::Store(moment) if moment.act == Act::Renewal)),
            "no renewal {phase:?}"
        );
    }
}

fn table(rows: &[Row], begun: Instant) -> String {
    let head =
        ["story", "process", "killed at", "what", "left", "then", "in the end", "if run again", ""];
    let mut lines: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| row.cells.clone()));
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let wrong = rows.iter().filter(|row| !row.faults.is_empty()).count();
    let asks =
        rows.iter().filter(|row| row.cells.get(5).is_some_and(|cell| cell == "asks")).count();
    let seconds = begun.elapsed().as_secs_f32();
    let _ = writeln!(
        text,
        "{} kills, {asks} left an unknown outcome, {wrong} wrong, {seconds:.0} s",
        rows.len()
    );
    text
}

/// A place whose process was killed right after the first effect of a tool, before anybody knew of it.
fn killed_after(story: &'static Story, tool: &str) -> Place {
    let effect = |sight: &&Sighted| {
        matches!(sight.aim, Aim::Effect(_, Phase::After)) && sight.what == [tool]
    };
    let (legs, _) = rehearse(story);
    let found = legs.iter().find_map(|leg| Some((leg, leg.sighted.iter().find(effect)?.aim)));
    let (leg, aim) = found.unwrap();
    let place = leg.before.copy();
    let status = place.play(story, leg.role, Mode::Story, Some(aim));
    assert_eq!(status.signal(), Some(9));
    place
}

/// Taking a run up is a moment of its life too: the process that recovers is killed in its turn.
#[test]
fn killed_again_while_it_is_taken_up_no_change_is_made_twice() {
    let begun = Instant::now();
    let starts = [("host", "write"), ("host", "look"), ("two-people", "shred"), ("late", "slow")];
    let rehearsed: Vec<(&'static Story, Vec<Leg>)> = starts
        .into_iter()
        .map(|(name, tool)| {
            let story = Story::named(name);
            let place = killed_after(story, tool);
            (story, rehearse_from(story, &place, Mode::Again))
        })
        .collect();
    let points: Vec<Point<'_>> = rehearsed
        .iter()
        .flat_map(|(story, legs)| (0..).zip(&legs[..3]).map(move |(leg, part)| (*story, leg, part)))
        .flat_map(|(story, leg, part)| {
            part.sighted.iter().map(move |at| Point { story, leg, part, at, mode: Mode::Again })
        })
        .collect();
    let rows = try_all(&points);
    report("crash-grid-again.txt", &rows, begun);
    // The recovery's own appends were hit, and so was the second start of a call.
    for wanted in
        ["lease.acquired", "question.asked", "question.answered", "approval.used", "write"]
    {
        let hit = points.iter().filter(|point| point.at.what.iter().any(|what| what == wanted));
        assert!(hit.count() >= 2, "no process was killed at {wanted}");
    }
}

#[test]
fn the_judge_finds_out_a_driver_that_does_not_look_at_the_record() {
    let story = WHOLE;
    let place = killed_after(story, "write");
    let died = judge(story, &place);
    assert_eq!((died.changes[&3], died.faults().len()), (Finding::Started, 0));
    let gate = place.copy();
    play(story, &place, Role::Naive, Mode::Story);
    let twice = judge(story, &place);
    assert_eq!(twice.changes[&3], Finding::Twice);
    assert_eq!(twice.faults(), ["line 3: Twice"]);
    // The gate in the same place asks.
    play(story, &gate, Role::Drive, Mode::Story);
    let asked = judge(story, &gate);
    assert_eq!((asked.changes[&3], asked.waits_for_outcome()), (Finding::Waits, true));
}

#[test]
fn a_kill_that_does_not_fire_is_noticed() {
    let story = Story::named("expired");
    let place = Place::fresh();
    let (legs, _) = rehearse(story);
    let at = Sighted { aim: Aim::Effect(9, Phase::Before), ..legs[0].sighted[0].clone() };
    let status = place.play(story, Role::Drive, Mode::Story, Some(at.aim));
    let point = Point { story, leg: 0, part: &legs[0], at: &at, mode: Mode::Story };
    assert_eq!(fired(&point, &place, status).len(), 2);
}
