//! Breaking the product on purpose, in a copy: a claim whose tests still pass is no claim.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::table;
use crate::tidy;
use crate::workspace::Member;

use super::list::{Claim, Edit};
use super::suite::{self, Ended, Needed, Place, Suite};

/// What became of one mutated product.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// A test saw it.
    Killed(String),
    /// No test saw it, or it cannot be judged.
    Survived(String),
}

/// Finds edits whose text does not stand exactly once in its file.
pub(super) fn misplaced<'a>(
    root: &Path,
    claims: impl IntoIterator<Item = &'a Claim>,
) -> Vec<String> {
    claims.into_iter().flat_map(|claim| misplaced_edits(root, &claim.id, claim.edits())).collect()
}

/// The same for the edits of anything that has an id.
pub(crate) fn misplaced_edits(root: &Path, id: &str, edits: &[Edit]) -> Vec<String> {
    let mut findings = Vec::new();
    for edit in edits {
        let text = fs::read_to_string(root.join(&edit.file)).unwrap_or_default();
        let times = text.matches(&edit.find).count();
        if edit.find.is_empty() || times != 1 {
            let file = &edit.file;
            findings
                .push(format!("the mutation of `{id}` stands {times} times in {file}, not once"));
        }
    }
    findings
}

/// Mutates for each claim; false when one survived. Claims whose mutations lie in one file follow each other, so that
/// a crate is put back, and built again, as seldom as can be.
pub(super) fn run(root: &Path, members: &[Member], claims: &[&Claim]) -> Result<bool> {
    let begun = Instant::now();
    let misplaced = misplaced(root, claims.iter().copied());
    if !misplaced.is_empty() {
        bail!("{}", misplaced.join("\n"));
    }
    let place = copy(root)?;
    let mut claims = claims.to_vec();
    claims.sort_by_key(|claim| claim.edits().first().map(|edit| edit.file.as_str()));
    baseline(root, members, &place, &claims)?;
    let mut rows = Vec::new();
    let mut all_killed = true;
    for (number, claim) in claims.iter().enumerate() {
        let started = Instant::now();
        let edited = apply(&place.root, claim.edits())?;
        let fate = judge(root, members, &place, claim);
        restore(&edited)?;
        let (word, why) = match fate? {
            Fate::Killed(why) => ("killed", why),
            Fate::Survived(why) => ("SURVIVED", why),
        };
        all_killed &= word == "killed";
        let time = format!("{:.1} s", started.elapsed().as_secs_f64());
        println!("[{}/{}] {word}: {} ({why}, {time})", number + 1, claims.len(), claim.id);
        rows.push(vec![claim.id.clone(), word.to_owned(), why, time]);
    }
    let killed = rows.iter().filter(|row| row.get(1).is_some_and(|word| word == "killed")).count();
    println!("\n{}", table::render(&["claim", "mutant", "by", "time"], &rows));
    let seconds = begun.elapsed().as_secs();
    println!("{killed} killed, {} survived, in {seconds} s", rows.len() - killed);
    Ok(all_killed)
}

fn tests(claim: &Claim) -> impl Iterator<Item = &str> {
    claim.tests.iter().map(String::as_str)
}

/// All named tests pass while nothing is broken; otherwise a failure would prove nothing.
fn baseline(root: &Path, members: &[Member], place: &Place, claims: &[&Claim]) -> Result<()> {
    let names: BTreeSet<&str> = claims.iter().flat_map(|claim| tests(claim)).collect();
    let mut suite = Suite::empty();
    for needed in Needed::by(names.iter().copied()) {
        println!("baseline: building {}", needed.package);
        match suite::build(root, members, place, needed)? {
            Ok(built) => suite = suite.and(built),
            Err(message) => bail!("with nothing broken, the tests do not build:\n{message}"),
        }
    }
    let mut wrong = Vec::new();
    for test in &names {
        let found = suite.find(test)?;
        if found.is_empty() {
            wrong.push(format!("{test} does not exist"));
        }
        for found in found {
            match found.run(place.target.as_deref(), suite::WHOLE_LIMIT)? {
                Ended::Passed => {}
                ended => wrong.push(format!("{test} {}", words(ended))),
            }
        }
    }
    if !wrong.is_empty() {
        bail!("with nothing broken:\n{}", wrong.join("\n"));
    }
    println!("baseline: {} tests of {} claims pass", names.len(), claims.len());
    Ok(())
}

/// Builds and runs the claim's tests, package by package in their order, until one fails.
fn judge(root: &Path, members: &[Member], place: &Place, claim: &Claim) -> Result<Fate> {
    for needed in Needed::by(tests(claim)) {
        let suite = match suite::build(root, members, place, needed)? {
            Ok(_) if claim.compile_fail => {
                return Ok(Fate::Survived("the mutated code compiles".to_owned()));
            }
            Ok(suite) => suite,
            Err(_) if claim.compile_fail => return Ok(Fate::Killed("the compiler".to_owned())),
            Err(message) => {
                println!("{message}");
                return Ok(Fate::Survived("the mutated code does not compile".to_owned()));
            }
        };
        let own = |test: &&str| test.split_once("::").is_some_and(|(p, _)| p == needed.package);
        for test in tests(claim).filter(own) {
            if let Some(fate) = judge_test(&suite, place, test)? {
                return Ok(fate);
            }
        }
    }
    Ok(Fate::Survived("all its tests pass".to_owned()))
}

/// What one test decides; `None` when it passes.
fn judge_test(suite: &Suite, place: &Place, test: &str) -> Result<Option<Fate>> {
    let found = suite.find(test)?;
    if found.is_empty() {
        return Ok(Some(Fate::Survived(format!("{test} is gone from the mutated code"))));
    }
    for found in found {
        match found.run(place.target.as_deref(), suite::BROKEN_LIMIT)? {
            Ended::Passed => {}
            Ended::NotRun => {
                return Ok(Some(Fate::Survived(format!("{test} {}", words(Ended::NotRun)))));
            }
            ended => return Ok(Some(Fate::Killed(format!("{test} {}", words(ended))))),
        }
    }
    Ok(None)
}

fn words(ended: Ended) -> &'static str {
    match ended {
        Ended::Passed => "passes",
        Ended::Failed => "fails",
        Ended::TimedOut => "does not end",
        Ended::NotRun => "is not run",
    }
}

/// Brings `target/mutants/tree` up to date with the checkout. Files that are equal keep their times, so that cargo
/// builds only what changed since the last time.
pub(crate) fn copy(root: &Path) -> Result<Place> {
    let base = root.join("target/mutants");
    let place = Place { root: base.join("tree"), target: Some(base.join("target")) };
    fs::create_dir_all(&place.root)?;
    let mut kept = BTreeSet::new();
    for file in tidy::files(root)? {
        let bytes = fs::read(root.join(&file.path))?;
        let to = place.root.join(&file.path);
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(root.join(&file.path), &to)
                .with_context(|| format!("{} cannot be copied", file.path))?;
        }
        kept.insert(to);
    }
    sweep(&place.root, &kept)?;
    // Tests that read shared fixtures look beside the root.
    let fixtures = root.join("../shared");
    let link = base.join("shared");
    if fixtures.is_dir() && !link.exists() {
        std::os::unix::fs::symlink(fixtures.canonicalize()?, link)?;
    }
    Ok(place)
}

/// Removes files that the checkout no longer has; a leftover module or test would be built with the rest.
fn sweep(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            sweep(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Files as they were before the edits.
pub(crate) type Originals = Vec<(PathBuf, String)>;

/// Applies edits, and keeps the files as they were.
pub(crate) fn apply(root: &Path, edits: &[Edit]) -> Result<Originals> {
    let mut originals: Originals = Vec::new();
    for edit in edits {
        let path = root.join(&edit.file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("{} cannot be read", edit.file))?;
        if edit.find.is_empty() || text.matches(&edit.find).count() != 1 {
            restore(&originals)?;
            bail!(
                "the text to replace in {} does not stand there exactly once: `{}`",
                edit.file,
                edit.find
            );
        }
        fs::write(&path, text.replacen(&edit.find, &edit.replace, 1))?;
        if !originals.iter().any(|(known, _)| *known == path) {
            originals.push((path, text));
        }
    }
    Ok(originals)
}

/// Puts the files back.
pub(crate) fn restore(originals: &Originals) -> Result<()> {
    for (path, text) in originals {
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::sample;
    use super::*;
    use crate::scratch::Scratch;

    fn edit(find: &str, replace: &str) -> Edit {
        Edit { file: "a.rs".to_owned(), find: find.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn edits_are_applied_and_restored() {
        let tree = Scratch::new("apply");
        tree.write("a.rs", "one two");
        let originals =
            apply(tree.path(), &[edit("one", "three"), edit("three", "four")]).expect("applies");
        assert_eq!(tree.read("a.rs"), "four two");
        restore(&originals).expect("restores");
        assert_eq!(tree.read("a.rs"), "one two");
    }

    #[test]
    fn an_edit_that_does_not_stand_once_changes_nothing() {
        let tree = Scratch::new("twice");
        tree.write("a.rs", "one two two");
        assert!(apply(tree.path(), &[edit("one", "x"), edit("two", "y")]).is_err());
        assert_eq!(tree.read("a.rs"), "one two two");
        assert!(apply(tree.path(), &[edit("five", "x")]).is_err());
    }

    #[test]
    fn misplaced_edits_are_found() {
        let tree = Scratch::new("misplaced");
        tree.write("src/a.rs", "seen.contains(key) struct Permit");
        let findings = misplaced(tree.path(), &sample().claim);
        assert_eq!(findings, ["the mutation of `no-forgery` stands 0 times in src/b.rs, not once"]);
    }

    #[test]
    fn the_copy_follows_the_checkout_and_keeps_equal_files() {
        let tree = Scratch::new("copy");
        tree.write("a.rs", "one");
        tree.write("b.rs", "two");
        let place = copy(tree.path()).expect("copies");
        let before =
            fs::metadata(place.root.join("a.rs")).and_then(|data| data.modified()).expect("a time");
        fs::remove_file(tree.path().join("b.rs")).expect("removes");
        tree.write("c/d.rs", "three");
        let place = copy(tree.path()).expect("copies again");
        let after =
            fs::metadata(place.root.join("a.rs")).and_then(|data| data.modified()).expect("a time");
        assert_eq!(before, after);
        assert!(!place.root.join("b.rs").exists() && place.root.join("c/d.rs").exists());
    }
}
