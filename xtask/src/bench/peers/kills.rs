//! A kill in the middle of a step, then the resumption that the system's documentation describes: how many effects
//! happened twice, and how many never.
//!
//! The process kills itself in the call of the tool, just before its effect or just after it, so that nothing of the
//! system gets a chance in between. The judge is a file outside of the system, to which the tool appends its step.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::bench::peers::drivers::{Driver, Folder, Setting};
use crate::bench::peers::{Extent, Measured, Outcome};

/// Steps of a run that is killed.
const STEPS: u32 = 30;

/// The signal that a process cannot refuse.
const SIGKILL: i32 = 9;

const HEAD: [&str; 8] = [
    "system",
    "setting",
    "kills",
    "effects twice",
    "worst run",
    "effects never",
    "a person asked",
    "runs not finished",
];

/// What became of the effects of all runs of one setting.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    kills: u32,
    twice: usize,
    worst: usize,
    never: usize,
    asked: u32,
    unfinished: u32,
}

impl Tally {
    fn add(&mut self, judged: Judged, asked: Option<u32>) {
        self.kills += 1;
        self.twice += judged.twice;
        self.worst = self.worst.max(judged.twice);
        self.never += judged.never;
        match asked {
            Some(asked) => self.asked += asked,
            None => self.unfinished += 1,
        }
    }

    fn row(&self, driver: &Driver, setting: &Setting) -> Vec<String> {
        let mut row = vec![driver.name.to_owned(), setting.name.to_owned()];
        row.extend([self.kills, self.asked, self.unfinished].map(|count| count.to_string()));
        let effects = [self.twice, self.worst, self.never].map(|count| count.to_string());
        row.splice(3..3, effects);
        row
    }
}

/// Kills each system the same number of times, and makes the table.
pub(super) fn measure(drivers: &[Driver], place: &Path, extent: &Extent) -> Result<Outcome> {
    let mut measured = Measured { head: HEAD.to_vec(), rows: Vec::new(), notes: Vec::new() };
    let mut well = true;
    for driver in drivers {
        for setting in &driver.settings {
            println!("killing {}, {}", driver.name, setting.name);
            let mut tally = Tally::default();
            for kill in 0..extent.kills {
                let (judged, asked) = killed(driver, setting, place, kill)?;
                let asked = asked.inspect_err(|error| {
                    let told = format!("{}, {}: {error:#}", driver.name, setting.name);
                    println!("not resumed: {told}");
                    if !measured.notes.contains(&told) {
                        measured.notes.push(told);
                    }
                });
                tally.add(judged, asked.ok());
            }
            well &= tally.unfinished == 0;
            measured.rows.push(tally.row(driver, setting));
        }
    }
    if let Some(note) = control(drivers, &measured.rows) {
        well = false;
        measured.notes.push(note);
    }
    Ok(Outcome { measured, well })
}

/// Runs that nobody records have to show doubled effects; else the judge is blind.
fn control(drivers: &[Driver], rows: &[Vec<String>]) -> Option<String> {
    let name = drivers.iter().find(|driver| !driver.records)?.name;
    let row = rows.iter().find(|row| row.first().is_some_and(|found| found == name))?;
    let blind = row.get(2).is_some_and(|kills| kills != "0")
        && row.get(3).is_some_and(|twice| twice == "0");
    blind.then(|| "the control had no effect twice: these counts prove nothing".to_owned())
}

/// One run with one kill, and its resumption: the effects, and how often a person was asked or why it did not end.
fn killed(
    driver: &Driver,
    setting: &Setting,
    place: &Path,
    kill: u32,
) -> Result<(Judged, Result<u32>)> {
    let folder = Folder::new(place)?;
    let effects = folder.path().join("effects");
    let mut words = vec!["--steps".to_owned(), STEPS.to_string()];
    words.extend(["--bytes".to_owned(), "100".to_owned(), "--effects".to_owned()]);
    words.push(effects.to_string_lossy().into_owned());
    words.extend(setting.words.iter().map(|word| (*word).to_owned()));
    let mut deadly = words.clone();
    let (moment, at) = point(kill);
    deadly.extend(["--die".to_owned(), moment.to_owned(), "--at".to_owned(), at.to_string()]);
    let ended = driver.run("run", folder.path(), &deadly)?;
    if ended.status.signal() != Some(SIGKILL) {
        let why =
            ended.facts().err().map_or_else(|| "it lived on".to_owned(), |e| format!("{e:#}"));
        bail!("{} was not killed in step {at}: {why}", driver.name);
    }
    let before = fs::read_to_string(&effects)?;
    // The tool of step `at` had its effect, or not yet: so it was killed there and not elsewhere.
    let expected = at + u32::from(moment == "after");
    let had = u32::try_from(before.lines().count())?;
    ensure!(had == expected, "{} had {had} effects and not {expected} when it died", driver.name);
    let resumed = driver.run("resume", folder.path(), &words)?.facts();
    let judged = Judged::of(&fs::read_to_string(&effects)?);
    Ok((judged, resumed.map(|facts| facts.asked)))
}

/// Where a kill comes: before and after the effect in turn, in steps that are spread over the run.
fn point(kill: u32) -> (&'static str, u32) {
    let moment = if kill.is_multiple_of(2) { "after" } else { "before" };
    // Nine has no factor in common with the number of places: each comes once before one comes again.
    (moment, 1 + (kill / 2 * 9) % (STEPS - 2))
}

/// What the file of effects says of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judged {
    /// Effects beyond the first of their step.
    twice: usize,
    /// Steps without an effect.
    never: usize,
}

impl Judged {
    fn of(effects: &str) -> Self {
        let counts = (0..STEPS).map(|step| {
            let step = step.to_string();
            effects.lines().filter(|line| *line == step).count()
        });
        let (mut twice, mut never) = (0, 0);
        for count in counts {
            twice += count.saturating_sub(1);
            never += usize::from(count == 0);
        }
        Self { twice, never }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_judge_counts_what_happened_twice_and_never() {
        let without = |lost: &[u32]| -> String {
            let steps = (0..STEPS).filter(|step| !lost.contains(step));
            steps.map(|step| format!("{step}\n")).collect()
        };
        let each = without(&[]);
        assert_eq!(Judged::of(&each), Judged { twice: 0, never: 0 });
        assert_eq!(Judged::of(&format!("{each}3\n3\n9\n")), Judged { twice: 3, never: 0 });
        assert_eq!(Judged::of(&without(&[7, 17, 29])), Judged { twice: 0, never: 3 });
    }

    #[test]
    fn kills_come_before_and_after_effects_all_over_the_run() {
        let points: BTreeSet<(&str, u32)> = (0..20).map(point).collect();
        assert_eq!(points.len(), 20);
        assert!(points.iter().all(|(_, at)| (1..STEPS - 1).contains(at)));
        assert_eq!(points.iter().filter(|(moment, _)| *moment == "after").count(), 10);
    }

    /// A loop in the shell: `from` is the first step of a resumed run.
    fn driver(name: &'static str, from: &str) -> Driver {
        let script = format!(
            r#"word=$1; shift 2
            while [ $# -gt 0 ]; do case $1 in
                --effects) effects=$2;; --die) die=$2;; --at) at=$2;; esac; shift 2; done
            step=0; [ "$word" = resume ] && step={from}
            while [ "$step" -lt {STEPS} ]; do
                [ "$die $at" = "before $step" ] && kill -9 $$
                echo "$step" >> "$effects"
                [ "$die $at" = "after $step" ] && kill -9 $$
                step=$((step + 1)); done
            printf 'seconds 1\nwritten 0\nset s\nversions v\nasked 0\n'"#
        );
        let first = vec!["-c".to_owned(), script, "sh".to_owned()];
        let setting = Setting { name: "only", words: &[], looped: true };
        Driver::new(name, PathBuf::from("/bin/sh"), first, vec![setting])
    }

    fn extent() -> Extent {
        Extent { rounds: 0, kills: 4, lengths: Vec::new() }
    }

    #[test]
    fn a_loop_that_begins_again_doubles_and_one_that_goes_on_behind_loses() {
        let tree = Scratch::new("kills");
        let mut again = driver("again", "0");
        again.records = false;
        let behind = driver("behind", r#"$(($(tail -n 1 "$effects") + 2))"#);
        let outcome = measure(&[again, behind], tree.path(), &extent()).expect("measured");
        assert!(outcome.well, "{:?}", outcome.measured.notes);
        // After steps 1 and 10 two and eleven effects were had, before them one and ten.
        let rows = &outcome.measured.rows;
        assert_eq!(rows[0], ["again", "only", "4", "24", "11", "0", "0", "0"]);
        assert_eq!(rows[1], ["behind", "only", "4", "0", "0", "4", "0", "0"]);
    }

    #[test]
    fn a_blind_control_and_a_run_that_does_not_end_are_told() {
        let tree = Scratch::new("kills-told");
        let mut blind = driver("blind", r#"$(($(tail -n 1 "$effects") + 1))"#);
        blind.records = false;
        let stuck = driver("stuck", "0 && { echo no >&2; exit 1; }");
        let outcome = measure(&[blind, stuck], tree.path(), &extent()).expect("measured");
        assert!(!outcome.well);
        assert_eq!(outcome.measured.rows[1][7], "4");
        assert!(outcome.measured.notes.iter().any(|note| note.contains("prove nothing")));
        assert!(outcome.measured.notes.iter().any(|note| note.starts_with("stuck, only: ")));
    }

    #[test]
    fn a_process_that_was_not_killed_where_it_should_be_is_an_error() {
        let tree = Scratch::new("kills-lived");
        let first = vec!["-c".to_owned(), "exit 0".to_owned()];
        let setting = Setting { name: "only", words: &[], looped: true };
        let lives = Driver::new("lives", PathBuf::from("/bin/sh"), first, vec![setting]);
        let told = measure(&[lives], tree.path(), &extent()).err().expect("an error");
        assert!(told.to_string().contains("was not killed"), "{told}");
    }
}
