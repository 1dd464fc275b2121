//! Loops of the same length and results through each system, in turns; steps a second, bytes, and ours over the peer's.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::bench::figures::{median, spread};
use crate::bench::peers::drivers::{Driver, Facts, Folder, Setting};
use crate::bench::peers::{Extent, Measured, Outcome};

/// The sizes of results, in bytes.
const SIZES: [(u32, &str); 2] = [(100, "100 B"), (8_192, "8 KiB")];

const HEAD: [&str; 9] = [
    "result",
    "steps",
    "system",
    "setting",
    "steps/s",
    "least to most",
    "ours is faster by",
    "KiB on disk a step",
    "KiB written a step",
];

/// What one kind of loop took in one system, round by round.
struct Line<'a> {
    driver: &'a Driver,
    setting: &'a Setting,
    rates: Vec<f64>,
    on_disk: Vec<f64>,
    written: Vec<f64>,
}

/// Runs all of them and makes the table.
pub(super) fn measure(drivers: &[Driver], place: &Path, extent: &Extent) -> Result<Outcome> {
    let mut measured = Measured { head: HEAD.to_vec(), rows: Vec::new(), notes: Vec::new() };
    let mut well = true;
    for (bytes, size) in SIZES {
        for length in &extent.lengths {
            let mut lines = lines(drivers);
            for round in 0..extent.rounds {
                println!("{size}, {length} steps, round {} of {}", round + 1, extent.rounds);
                well &= turn(&mut lines, place, (*length, bytes), round, &mut measured.notes)?;
            }
            let own = lines.first().map(|line| line.rates.clone()).unwrap_or_default();
            let length = length.to_string();
            measured.rows.extend(lines.iter().map(|line| line.row(size, &length, &own)));
        }
    }
    Ok(Outcome { measured, well })
}

fn lines(drivers: &[Driver]) -> Vec<Line<'_>> {
    let recording = drivers.iter().filter(|driver| driver.records);
    let settings = recording.flat_map(|driver| {
        let looped = driver.settings.iter().filter(|setting| setting.looped);
        looped.map(move |setting| (driver, setting))
    });
    let line = |(driver, setting)| Line {
        driver,
        setting,
        rates: Vec::new(),
        on_disk: Vec::new(),
        written: Vec::new(),
    };
    settings.map(line).collect()
}

/// One round: each system once, another one first each time. False when one failed.
fn turn(
    lines: &mut [Line<'_>],
    place: &Path,
    (length, bytes): (u32, u32),
    round: u32,
    notes: &mut Vec<String>,
) -> Result<bool> {
    let count = lines.len();
    let first = usize::try_from(round).unwrap_or(0) % count.max(1);
    let mut well = true;
    for place_in_turn in 0..count {
        let Some(line) = lines.get_mut((first + place_in_turn) % count) else { continue };
        let name = format!("{}, {}", line.driver.name, line.setting.name);
        match line.run(place, length, bytes) {
            Ok(facts) => note(notes, format!("{name}: {}; {}", facts.versions, facts.set)),
            Err(error) => {
                println!("{name} failed: {error:#}");
                note(notes, format!("{name} failed in a round, which does not count: {error:#}"));
                line.rates.push(f64::NAN);
                well = false;
            }
        }
    }
    Ok(well)
}

/// Adds a note that is not there yet.
fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

impl Line<'_> {
    fn run(&mut self, place: &Path, length: u32, bytes: u32) -> Result<Facts> {
        let folder = Folder::new(place)?;
        let mut words = vec!["--steps".to_owned(), length.to_string()];
        words.extend(["--bytes".to_owned(), bytes.to_string()]);
        words.extend(self.setting.words.iter().map(|word| (*word).to_owned()));
        let facts = self.driver.run("run", folder.path(), &words)?.facts()?;
        let size = u32::try_from(folder.size()? >> 10).context("a database of terabytes")?;
        let steps = f64::from(length);
        self.rates.push(steps / facts.seconds);
        self.on_disk.push(f64::from(size) / steps);
        self.written.push(facts.written / 1024.0 / steps);
        Ok(facts)
    }

    fn row(&self, size: &str, length: &str, own: &[f64]) -> Vec<String> {
        let rates: Vec<f64> = self.rates.iter().copied().filter(|rate| rate.is_finite()).collect();
        let ratios: Vec<f64> = own
            .iter()
            .zip(&self.rates)
            .map(|(own, rate)| own / rate)
            .filter(|r| r.is_finite())
            .collect();
        let (least, most) = spread(&rates);
        vec![
            size.to_owned(),
            length.to_owned(),
            self.driver.name.to_owned(),
            self.setting.name.to_owned(),
            format!("{:.0}", median(&rates)),
            format!("{least:.0} to {most:.0}"),
            format!("{:.2}", median(&ratios)),
            format!("{:.1}", median(&self.on_disk)),
            format!("{:.1}", median(&self.written)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::scratch::Scratch;

    fn driver(name: &'static str, script: &str) -> Driver {
        let first = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned()];
        let setting = Setting { name: "only", words: &[], looped: true };
        Driver::new(name, PathBuf::from("/bin/sh"), first, vec![setting])
    }

    fn telling(seconds: &str) -> String {
        format!(
            "printf 'seconds {seconds}\\nwritten 1048576\\nset s\\nversions v 1\\nasked 0\\n'; \
             head -c 204800 /dev/zero > \"$2/db\""
        )
    }

    fn extent() -> Extent {
        Extent { rounds: 2, kills: 0, lengths: vec![100] }
    }

    #[test]
    fn rates_ratios_and_bytes_are_told() {
        let tree = Scratch::new("loops");
        let mut aside = driver("aside", "exit 1");
        aside.records = false;
        let drivers = [driver("ours", &telling("0.5")), driver("peer", &telling("2")), aside];
        let outcome = measure(&drivers, tree.path(), &extent()).expect("measured");
        assert!(outcome.well);
        let rows = &outcome.measured.rows;
        assert_eq!(rows.len(), 4, "two sizes, two systems, and the control is left out");
        assert_eq!(
            rows[1],
            ["100 B", "100", "peer", "only", "50", "50 to 50", "4.00", "2.0", "10.2"]
        );
        assert_eq!(outcome.measured.notes, ["ours, only: v 1; s", "peer, only: v 1; s"]);
    }

    #[test]
    fn a_driver_that_fails_is_told_and_counts_for_nothing() {
        let tree = Scratch::new("loops-failed");
        let drivers = [driver("ours", &telling("1")), driver("peer", "echo broken >&2; exit 1")];
        let outcome = measure(&drivers, tree.path(), &extent()).expect("measured");
        assert!(!outcome.well);
        assert_eq!(outcome.measured.rows[1][4], "NaN");
        let failed = &outcome.measured.notes[1];
        assert!(failed.starts_with("peer, only failed") && failed.ends_with("broken"), "{failed}");
    }
}
