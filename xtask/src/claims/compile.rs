//! Whether what is planted still compiles: every mutation of a claim, every fault of the grid and of the simulation.
//!
//! A planted fault that does not compile proves nothing, and a renaming is enough. Building each alone takes long, so as
//! many as touch different text are planted together and checked at once; what fails together is split until it is known
//! which one it was. What was seen to compile is kept in `target/mutants/compiled.txt` with a hash of its edits and of the
//! files that they change, and is not looked at again until one of them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::{crash_grid, process, simulate};

use super::list::{self, Edit};
use super::mutate::{self, Originals};
use super::suite::{Place, into_target};

/// Something that is planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planted {
    /// Its list and its id in it.
    pub(crate) name: String,
    /// The change.
    pub(crate) edits: Vec<Edit>,
    /// Whether it is meant not to compile.
    pub(crate) fails: bool,
}

/// What the lists plant.
fn planted(root: &Path) -> Result<Vec<Planted>> {
    let claims = list::read(root)?.claim;
    let mutation = |claim: &list::Claim| Planted {
        name: format!("claims {}", claim.id),
        edits: claim.edits().to_vec(),
        fails: claim.compile_fail,
    };
    let mut all: Vec<Planted> = claims.iter().map(mutation).collect();
    all.extend(crash_grid::planted(root)?);
    all.extend(simulate::planted(root)?);
    Ok(all)
}

/// Checks all that is planted, or only what changed since it was last seen to compile; one line per finding.
pub(crate) fn run(root: &Path, all: bool) -> Result<Vec<String>> {
    let begun = Instant::now();
    let planted = planted(root)?;
    let misplaced: Vec<String> = planted
        .iter()
        .flat_map(|one| mutate::misplaced_edits(root, &one.name, &one.edits))
        .collect();
    if !misplaced.is_empty() {
        return Ok(misplaced);
    }
    let place = mutate::copy(root)?;
    let mut known = if all { BTreeMap::new() } else { Known::read(root) };
    known.retain(|name, _| planted.iter().any(|one| one.name == *name));
    let mut due = Vec::new();
    for one in &planted {
        let hash = digest(root, one)?;
        if known.get(&one.name) != Some(&hash) {
            due.push((one, hash));
        }
    }
    println!(
        "{} planted, {} as they were when they last compiled",
        planted.len(),
        planted.len() - due.len()
    );
    let chosen: Vec<&Planted> = due.iter().map(|(one, _)| *one).collect();
    let (wrong, rounds) = judge(&chosen, |batch| check(root, &place, batch))?;
    for (one, hash) in due {
        if wrong.iter().any(|(name, _)| *name == one.name) {
            known.remove(&one.name);
        } else {
            known.insert(one.name.clone(), hash);
        }
    }
    Known::write(root, &known)?;
    println!("{} checked in {rounds} rounds, {:.0} s", chosen.len(), begun.elapsed().as_secs_f64());
    Ok(wrong.into_iter().map(|(name, why)| format!("{name}: {why}")).collect())
}

/// What a round says: nothing, or the files in which errors stand and the errors.
type Round = Result<(), Errors>;

/// Errors of the compiler.
#[derive(Debug)]
struct Errors {
    files: BTreeSet<String>,
    text: String,
}

/// Which of these do not do as they should, and in how many rounds that was found out. `check` plants a batch and
/// compiles; it gives back which of the batch could be planted together.
fn judge<'p>(
    chosen: &[&'p Planted],
    mut check: impl FnMut(&[&'p Planted]) -> Result<(usize, Round)>,
) -> Result<(Vec<(String, String)>, usize)> {
    let (alone, together): (Vec<_>, Vec<_>) = chosen.iter().copied().partition(|one| one.fails);
    let mut waiting: Vec<Vec<&Planted>> = alone.into_iter().map(|one| vec![one]).collect();
    waiting.extend((!together.is_empty()).then_some(together));
    let (mut wrong, mut rounds) = (Vec::new(), 0_usize);
    while let Some(wanted) = waiting.pop() {
        let (fitting, others) = fit(&wanted);
        let (planted, round) = check(&fitting)?;
        rounds += 1;
        let (batch, unplanted) = fitting.split_at(planted);
        let later: Vec<&Planted> = others.into_iter().chain(unplanted.iter().copied()).collect();
        waiting.extend((!later.is_empty()).then_some(later));
        match (batch, round) {
            ([one], Ok(())) if one.fails => {
                wrong.push((one.name.clone(), "it compiles and is meant not to".to_owned()));
            }
            ([one], Err(errors)) if !one.fails => {
                wrong.push((one.name.clone(), format!("it does not compile:\n{}", errors.text)));
            }
            (_, Ok(())) | ([_], Err(_)) => {
                println!("{} compile or fail as they should", batch.len())
            }
            (batch, Err(errors)) => {
                println!("{} do not compile together", batch.len());
                let (left, right) = split(batch, &errors.files);
                waiting.extend([left, right]);
            }
        }
    }
    Ok((wrong, rounds))
}

/// As many as change different text, in order, and the others.
fn fit<'p>(wanted: &[&'p Planted]) -> (Vec<&'p Planted>, Vec<&'p Planted>) {
    let mut finds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    wanted.iter().copied().partition(|one| {
        // One text within another is the same place; those that only touch each other do no harm.
        let meets = one.edits.iter().any(|edit| {
            let taken = finds.get(edit.file.as_str()).into_iter().flatten();
            taken.into_iter().any(|other| other.contains(&edit.find) || edit.find.contains(*other))
        });
        if !meets {
            for edit in &one.edits {
                finds.entry(&edit.file).or_default().push(&edit.find);
            }
        }
        !meets
    })
}

/// Two parts of a batch that does not compile: who changes a file in which an error stands, and the others; else halves.
fn split<'p>(
    batch: &[&'p Planted],
    files: &BTreeSet<String>,
) -> (Vec<&'p Planted>, Vec<&'p Planted>) {
    let (suspects, others): (Vec<_>, Vec<_>) = batch
        .iter()
        .copied()
        .partition(|one| one.edits.iter().any(|edit| files.contains(&edit.file)));
    if suspects.is_empty() || others.is_empty() {
        let (left, right) = batch.split_at(batch.len() / 2);
        return (left.to_vec(), right.to_vec());
    }
    (suspects, others)
}

/// Plants a batch in the copy, compiles, and takes it out again. The first that does not fit ends the batch.
fn check(root: &Path, place: &Place, batch: &[&Planted]) -> Result<(usize, Round)> {
    let mut undo: Vec<Originals> = Vec::new();
    let mut first_error = None;
    for one in batch {
        match mutate::apply(&place.root, &one.edits) {
            Ok(originals) => undo.push(originals),
            Err(error) => {
                first_error = Some(error);
                break;
            }
        }
    }
    let planted = undo.len();
    let round = match (planted, first_error) {
        (0, Some(error)) => Err(error),
        _ => compile(root, place),
    };
    for originals in undo.iter().rev() {
        mutate::restore(originals)?;
    }
    Ok((planted, round?))
}

fn compile(root: &Path, place: &Place) -> Result<Round> {
    let mut command = process::cargo(root);
    command.current_dir(&place.root).args(["check", "--workspace", "--tests", "--keep-going"]);
    command.args(["--locked", "--profile", "ci", "--message-format", "short"]);
    into_target(&mut command, place);
    let output = command.stdin(Stdio::null()).output().context("cargo cannot start")?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(errors(&process::plain(&String::from_utf8_lossy(&output.stderr)))))
}

/// Reads `crates/a/src/b.rs:1:2: error[E0425]: …`.
fn errors(stderr: &str) -> Errors {
    let (mut files, mut lines) = (BTreeSet::new(), Vec::new());
    for line in stderr.lines().filter(|line| line.contains("error")) {
        lines.push(format!("  {line}"));
        if let Some((file, _)) =
            line.split_once(".rs:").filter(|(_, rest)| rest.contains(": error"))
        {
            files.insert(format!("{file}.rs"));
        }
    }
    lines.truncate(8);
    Errors { files, text: lines.join("\n") }
}

/// A hash of the edits and of the files that they change: the same for as long as neither changes.
fn digest(root: &Path, one: &Planted) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for edit in &one.edits {
        let text = fs::read(root.join(&edit.file))
            .with_context(|| format!("{} cannot be read", edit.file))?;
        (&edit.file, &edit.find, &edit.replace, text, one.fails).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// What compiled, by its name, with its digest.
struct Known;

impl Known {
    fn path(root: &Path) -> PathBuf {
        root.join("target/mutants/compiled.txt")
    }

    /// A line that cannot be read is one that is not known.
    fn read(root: &Path) -> BTreeMap<String, u64> {
        let text = fs::read_to_string(Self::path(root)).unwrap_or_default();
        let line = |line: &str| {
            let (hash, name) = line.split_once(' ')?;
            Some((name.to_owned(), u64::from_str_radix(hash, 16).ok()?))
        };
        text.lines().filter_map(line).collect()
    }

    fn write(root: &Path, known: &BTreeMap<String, u64>) -> Result<()> {
        let lines = known.iter().map(|(name, hash)| format!("{hash:016x} {name}\n"));
        fs::write(Self::path(root), lines.collect::<String>())
            .context("what compiled cannot be kept")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn one(name: &str, file: &str, find: &str) -> Planted {
        let edit = Edit { file: file.to_owned(), find: find.to_owned(), replace: "x".to_owned() };
        Planted { name: name.to_owned(), edits: vec![edit], fails: false }
    }

    /// What is found when all compile but those named; how often it was compiled.
    fn found(all: &[Planted], broken: &[&str]) -> (Vec<String>, usize) {
        let all: Vec<&Planted> = all.iter().collect();
        let check = |batch: &[&Planted]| {
            let bad: Vec<_> =
                batch.iter().filter(|one| broken.contains(&one.name.as_str())).collect();
            let files = bad.iter().map(|one| one.edits[0].file.clone()).collect();
            let errors = Errors { files, text: "error".to_owned() };
            Ok((batch.len(), if bad.is_empty() { Ok(()) } else { Err(errors) }))
        };
        let (wrong, rounds) = judge(&all, check).expect("a judgement");
        let mut names: Vec<String> = wrong.into_iter().map(|(name, _)| name).collect();
        names.sort();
        (names, rounds)
    }

    #[test]
    fn what_does_not_compile_is_named_however_much_is_planted_at_once() {
        let mut all: Vec<Planted> = (0..40)
            .map(|n| one(&format!("n{n}"), &format!("f{}", n % 7), &format!("<{n}>")))
            .collect();
        assert_eq!(found(&all, &[]), (vec![], 1));
        assert_eq!(found(&all, &["n3", "n10", "n38"]).0, ["n10", "n3", "n38"]);
        all.push(Planted { fails: true, ..one("meant", "f9", "a") });
        assert_eq!(found(&all, &["meant"]).0, Vec::<String>::new());
        assert_eq!(found(&all, &[]).0, ["meant"]);
    }

    #[test]
    fn changes_of_one_place_are_not_planted_together() {
        let all = [one("a", "f", "one two"), one("b", "f", "two"), one("c", "g", "two")];
        let all: Vec<&Planted> = all.iter().collect();
        let (fitting, others) = fit(&all);
        let names = |all: Vec<&Planted>| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(fitting), names(others)),
            (vec!["a".into(), "c".into()], vec!["b".into()])
        );
    }

    #[test]
    fn errors_are_read_from_short_messages() {
        let text = "   Checking a v0.1.0\ncrates/a/src/b.rs:10:5: warning: unused\n\
            crates/a/src/c.rs:1:2: error[E0425]: cannot find `x`\nerror: could not compile `a`\n";
        let errors = errors(text);
        assert_eq!(errors.files, BTreeSet::from(["crates/a/src/c.rs".to_owned()]));
        assert_eq!(errors.text.lines().count(), 2);
    }

    #[test]
    fn a_changed_file_is_looked_at_again() {
        let tree = Scratch::new("compiled");
        tree.write("f", "two");
        tree.write("target/mutants/compiled.txt", "no line\n00000000000000ff claims a b\n");
        let planted = one("a", "f", "two");
        let before = digest(tree.path(), &planted).expect("a digest");
        assert_eq!(digest(tree.path(), &planted).expect("a digest"), before);
        tree.write("f", "two three");
        assert_ne!(digest(tree.path(), &planted).expect("a digest"), before);
        let mut known = Known::read(tree.path());
        assert_eq!(known, BTreeMap::from([("claims a b".to_owned(), 255)]));
        known.insert("grid c".to_owned(), 1);
        Known::write(tree.path(), &known).expect("written");
        assert_eq!(Known::read(tree.path()), known);
    }
}
