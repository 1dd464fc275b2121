//! The points of the command's processes: played once without a kill, chosen, and tried.

use std::collections::BTreeSet;

use portcullis_testkit::killer::{Call, Kill, Side};

use super::super::grid::Choice;
use super::super::judge::{Blame, Fault};
use super::super::points::Fate;
use super::home::{Home, Saved};
use super::operator::{Account, act, bring_to_end};
use super::story::{Leg, OLD, STORIES, Story};

/// How many points of each process are drawn for the cover, beside all calls on the folder of files.
pub(crate) const DRAWN: usize = 6;

/// What they are drawn by.
pub(crate) const SEED: u64 = 7;

/// How often a process is started at a point that it does not come to: threads may do a call more or less.
const TRIES: usize = 3;

/// One process of a story that was not killed.
pub(crate) struct Played {
    pub(crate) story: &'static Story,
    pub(crate) leg: Leg,
    /// Which of its story.
    pub(crate) number: usize,
    before: Saved,
    /// What the kernel was asked for before it.
    led: Account,
    pub(crate) calls: Vec<Call>,
    /// Which of the calls change the folder of files, from 1.
    on_files: BTreeSet<usize>,
}

/// One kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Which of the processes that are tried.
    pub(crate) process: usize,
    pub(crate) kill: Kill,
    /// Its place among the chosen.
    pub(crate) place: usize,
}

/// What became of a point.
pub(crate) struct Outcome {
    /// `None` when the process did not come there, or it could not be judged.
    pub(crate) fate: Option<Fate>,
    pub(crate) is_reached: bool,
    pub(crate) faults: Vec<Fault>,
}

/// Plays all stories without a kill.
pub(crate) fn rehearse(home: &Home<'_>) -> Vec<Played> {
    let mut played = Vec::new();
    for story in STORIES {
        home.begin(story);
        let mut led = Account::default();
        for (number, leg) in story.legs.iter().enumerate() {
            let (before, before_it) = (home.save(), led.clone());
            let (ended, told) = act(home, story, &led, leg.verb, None);
            assert_eq!(ended.code, Some(leg.exit), "{} {number}: {ended:?}", story.name);
            led.note(home, story, told.clone());
            if leg.is_tried {
                let files = home.files();
                let on_files =
                    |(at, call): (usize, &Call)| call.path.starts_with(&files).then_some(at + 1);
                let on_files = told.calls.iter().enumerate().filter_map(on_files).collect();
                let (leg, calls) = (*leg, told.calls);
                played.push(Played { story, leg, number, before, led: before_it, calls, on_files });
            }
        }
        let end = bring_to_end(home, story, &mut led);
        assert_eq!(end, Ok(()), "{}", story.name);
        assert_eq!(faults(home, story, &led), Vec::<Fault>::new(), "{}", story.name);
    }
    played
}

/// All points, in order.
pub(crate) fn all(played: &[Played]) -> Vec<Kill> {
    let kills = |played: &Played| {
        let sides = |nth| Side::ALL.map(|side| Kill { nth, side });
        (1..=played.calls.len()).flat_map(sides).collect::<Vec<_>>()
    };
    played.iter().flat_map(kills).collect()
}

/// The points of a choice.
pub(crate) fn chosen(played: &[Played], all: &[Kill], choice: Choice) -> Vec<Point> {
    let mut rest = all.iter();
    let mut number = 0_usize;
    let mut points = Vec::new();
    for (process, played) in played.iter().enumerate() {
        let drawn = drawn(process, played.calls.len());
        for kill in rest.by_ref().take(2 * played.calls.len()) {
            let covers =
                played.on_files.contains(&kill.nth) || drawn.contains(&(kill.nth, kill.side));
            let is_chosen = match choice {
                Choice::All => true,
                Choice::Cover => covers,
                Choice::Shard { k, n } => covers || number % n == k - 1,
            };
            number += 1;
            if is_chosen {
                points.push(Point { process, kill: *kill, place: points.len() });
            }
        }
    }
    points
}

/// Some of the points of a process, the same each time.
fn drawn(process: usize, calls: usize) -> BTreeSet<(usize, Side)> {
    let all = (1..=calls).flat_map(|nth| Side::ALL.map(|side| (nth, side)));
    let word = |nth: usize, side: Side| {
        let at = u64::try_from((process * 4096 + nth) * 2 + usize::from(side == Side::After));
        // SplitMix64's mixing.
        let word = (SEED ^ at.unwrap()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ (word >> 27)
    };
    let mut all: Vec<_> = all.map(|(nth, side)| (word(nth, side), nth, side)).collect();
    all.sort_unstable();
    all.into_iter().take(DRAWN).map(|(_, nth, side)| (nth, side)).collect()
}

/// Kills a process at a point, goes on as an operator does, and judges.
pub(crate) fn try_point(home: &Home<'_>, own: &[Played], point: Point) -> Outcome {
    let played = &own[point.process];
    let story = played.story;
    let mut account = played.led.clone();
    let mut is_reached = false;
    for _ in 0..TRIES {
        home.restore(&played.before);
        let (_, told) = act(home, story, &account, played.leg.verb, Some(point.kill));
        if told.killed {
            account.note(home, story, told);
            is_reached = true;
            break;
        }
    }
    if !is_reached {
        return Outcome { fate: None, is_reached, faults: Vec::new() };
    }
    let done = at_hand(home, story, &account);
    if let Err(why) = bring_to_end(home, story, &mut account) {
        let faults = vec![Fault::new(Blame::Loss, why)];
        return Outcome { fate: None, is_reached, faults };
    }
    let fate = match (account.waited, done) {
        (true, _) => Fate::Waits,
        (false, true) => Fate::DoneOnce,
        (false, false) => Fate::NotDone,
    };
    Outcome { fate: Some(fate), is_reached, faults: faults(home, story, &account) }
}

/// Whether the last change that the kernel was asked for has happened.
fn at_hand(home: &Home<'_>, story: &Story, account: &Account) -> bool {
    let begun = story.changes.iter().filter(|change| account.times(home, **change).0 > 0);
    begun.last().is_some_and(|change| account.happened(*change) > 0)
}

/// What no kill may lead to, by the folder of files and by what the kernel was asked for.
pub(crate) fn faults(home: &Home<'_>, story: &Story, account: &Account) -> Vec<Fault> {
    let mut faults = Vec::new();
    for change in story.changes {
        let (file, does, wanted) = (change.file, change.does, usize::from(change.is_wanted));
        let (happened, (asked, made)) = (account.happened(*change), account.times(home, *change));
        if happened > wanted || made > wanted || asked > wanted + account.again {
            let text = format!(
                "{file}: {does:?} happened {happened} times, of {asked} that were tried and {made} that were made"
            );
            faults.push(Fault::new(Blame::Double, text));
        } else if happened < wanted {
            faults.push(Fault::new(Blame::Loss, format!("{file}: {does:?} never happened")));
        }
    }
    let names = home.names();
    if names != [OLD] {
        faults.push(Fault::other(format!("the folder has {names:?}")));
    }
    if account.status.as_deref() != Some(story.ends) {
        faults.push(Fault::other(format!("the run ends as {:?}", account.status)));
    }
    faults
}
