//! `cargo xtask crash-grid`: the grid, and the planted faults that it has to find.
//!
//! `crash-grid/faults.toml` is the list of faults:
//!
//! ```toml
//! [[fault]]
//! id = "unknown-taken-as-failed"           # lower case words joined by `-`
//! text = "What the fault does, in one sentence."
//! stories = ["alone"]                      # in which the grid has to find it
//! store = "sqlite"                         # over which store
//! edit = [{ file = "crates/…", find = "exact text", replace = "other text" }]
//! ```
//!
//! Each fault is applied in the copy that `claims --mutate` uses. The grid finds it when an effect happened twice or was
//! lost, alone or with a run that cannot be taken up any more; a build that fails, or whatever else is wrong, does not count.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::claims::patches::{self, Edit, Place, Planted};
use crate::{Usage, process, table, workspace};

/// The package of the grid.
const PROGRAM: &str = "portcullis-crash-grid";

/// The package of the command, which is killed too.
const COMMAND: &str = "portcullis-cli";

/// The list of faults.
const FAULTS: &str = "crash-grid/faults.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    fault: Vec<Fault>,
}

/// A small change that makes an effect happen twice, or lose it, when a process is killed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    id: String,
    text: String,
    stories: Vec<String>,
    store: String,
    edit: Vec<Edit>,
}

/// Runs the command; false when anything is wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    match arguments.split_first() {
        Some((word, only)) if word == "--faults" => faults(root, only),
        _ => grid(root, arguments),
    }
}

/// The part of the grid that belongs to the tests, and whether all faults can still be planted.
pub(crate) fn stage(root: &Path) -> Result<Vec<String>> {
    let mut findings = misplaced(root, &read(root)?.fault);
    if !grid(root, &["--quick".to_owned()])? {
        findings.push("the crash grid is not clean".to_owned());
    }
    Ok(findings)
}

/// Whether the checkout has the grid.
pub(crate) fn present(root: &Path) -> bool {
    root.join(FAULTS).is_file()
}

fn grid(root: &Path, arguments: &[String]) -> Result<bool> {
    let mut build = process::cargo(root);
    build.args(["build", "--quiet", "--locked", "--profile", "ci", "--package", COMMAND]);
    if !process::show(&mut build)? {
        bail!("the command does not build");
    }
    let mut command = process::cargo(root);
    command.args(["run", "--quiet", "--locked", "--profile", "ci", "--package", PROGRAM, "--"]);
    command.args(arguments).arg("--out").arg(root.join("target/crash-grid"));
    command.arg("--command").arg(workspace::target(root).join("ci/portcullis"));
    process::show(&mut command)
}

fn read(root: &Path) -> Result<List> {
    let text = fs::read_to_string(root.join(FAULTS))
        .with_context(|| format!("{FAULTS} cannot be read"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<List> {
    let list: List =
        toml::from_str(text).with_context(|| format!("{FAULTS} is no list of faults"))?;
    let mut ids = BTreeSet::new();
    for fault in &list.fault {
        if !ids.insert(fault.id.as_str()) {
            bail!("the fault `{}` stands twice in {FAULTS}", fault.id);
        }
        if fault.edit.is_empty() || fault.stories.is_empty() {
            bail!("the fault `{}` in {FAULTS} has no edit or no story", fault.id);
        }
    }
    Ok(list)
}

/// What the list plants.
pub(crate) fn planted(root: &Path) -> Result<Vec<Planted>> {
    let name = |fault: Fault| Planted {
        name: format!("crash-grid {}", fault.id),
        edits: fault.edit,
        fails: false,
    };
    Ok(read(root)?.fault.into_iter().map(name).collect())
}

fn misplaced(root: &Path, faults: &[Fault]) -> Vec<String> {
    faults.iter().flat_map(|fault| patches::misplaced(root, &fault.id, &fault.edit)).collect()
}

/// Plants each fault, or those that are named, and requires that the grid finds it.
fn faults(root: &Path, only: &[String]) -> Result<bool> {
    let list = read(root)?;
    if let Some(unknown) = only.iter().find(|id| !list.fault.iter().any(|fault| fault.id == **id)) {
        bail!(Usage(format!("no fault has the id `{unknown}`")));
    }
    let misplaced = misplaced(root, &list.fault);
    if !misplaced.is_empty() {
        bail!("{}", misplaced.join("\n"));
    }
    let chosen: Vec<&Fault> =
        list.fault.iter().filter(|fault| only.is_empty() || only.contains(&fault.id)).collect();
    let place = patches::copy(root)?;
    baseline(root, &place)?;
    let mut rows = Vec::new();
    for (number, fault) in chosen.iter().enumerate() {
        let begun = Instant::now();
        let edited = patches::apply(&place.root, &fault.edit)?;
        let found = judge(root, &place, fault);
        patches::restore(&edited)?;
        let (word, how) = match found? {
            Ok(how) => ("caught", how),
            Err(why) => ("MISSED", why),
        };
        let time = format!("{:.1} s", begun.elapsed().as_secs_f64());
        println!("[{}/{}] {word}: {} ({how}, {time})", number + 1, chosen.len(), fault.id);
        rows.push(vec![fault.id.clone(), word.to_owned(), how, fault.text.clone()]);
    }
    let caught = rows.iter().filter(|row| row.get(1).is_some_and(|word| word == "caught")).count();
    println!("\n{}", table::render(&["fault", "", "by", "what it does"], &rows));
    println!("{caught} of {} planted faults are caught", rows.len());
    Ok(caught == rows.len())
}

/// With nothing planted the grid is clean: otherwise a finding would prove nothing.
fn baseline(root: &Path, place: &Place) -> Result<()> {
    println!("baseline: building and running the grid without a fault");
    if let Err(message) = build(root, place)? {
        bail!("with nothing planted, the grid does not build:\n{message}");
    }
    let told = told(program(place).arg("--quick"))?;
    if !told.clean {
        bail!("with nothing planted, the grid is not clean:\n{}", told.text);
    }
    println!("baseline: {}", told.closing());
    Ok(())
}

/// How the grid finds the fault, or why it does not.
fn judge(root: &Path, place: &Place, fault: &Fault) -> Result<Result<String, String>> {
    if let Err(message) = build(root, place)? {
        println!("{message}");
        return Ok(Err("it does not build".to_owned()));
    }
    let mut command = program(place);
    command.args(["--all", "--first", "--store", &fault.store]);
    for story in &fault.stories {
        command.args(["--story", story]);
    }
    let told = told(&mut command)?;
    let finding =
        told.text.lines().find(|line| line.starts_with("double: ") || line.starts_with("loss: "));
    Ok(match finding {
        Some(line) if !told.clean => Ok(first_words(line)),
        _ => {
            println!("{}", told.text);
            Err("no effect happened twice or was lost".to_owned())
        }
    })
}

/// A finding without what a process complained of, which is long.
fn first_words(line: &str) -> String {
    line.chars().take(110).collect()
}

fn build(root: &Path, place: &Place) -> Result<Result<(), String>> {
    let mut command = process::cargo(root);
    command.current_dir(&place.root).args(["build", "--locked", "--profile", "ci"]);
    command.args(["--package", PROGRAM]);
    patches::into_target(&mut command, place);
    let output = command.output().context("cargo cannot start")?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn program(place: &Place) -> Command {
    let target = place.target.clone().unwrap_or_else(|| place.root.join("target"));
    Command::new(target.join("ci").join(PROGRAM))
}

/// What the grid said.
struct Told {
    clean: bool,
    text: String,
}

impl Told {
    fn closing(&self) -> &str {
        self.text.lines().next_back().unwrap_or_default()
    }
}

fn told(command: &mut Command) -> Result<Told> {
    let output = command.output().context("the grid cannot start")?;
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said).trim_end().to_owned();
    Ok(Told { clean: output.status.success(), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const TEXT: &str = r#"
[[fault]]
id = "unknown-taken-as-failed"
text = "It is."
stories = ["alone"]
store = "memory"
edit = [{ file = "src/a.rs", find = "ask", replace = "fail" }]
"#;

    #[test]
    fn a_list_is_read_and_nonsense_is_refused() {
        let list = parse(TEXT).expect("a list");
        assert_eq!((list.fault.len(), list.fault[0].store.as_str()), (1, "memory"));
        for (from, to) in [("[\"alone\"]", "[]"), ("store", "medium"), ("edit = [", "edits = [")] {
            assert!(parse(&TEXT.replace(from, to)).is_err(), "{to}");
        }
        assert!(parse(&TEXT.repeat(2)).is_err());
    }

    #[test]
    fn a_fault_whose_text_is_gone_is_named() {
        let tree = Scratch::new("fault");
        let list = parse(TEXT).expect("a list");
        tree.write("src/a.rs", "ask");
        assert_eq!(misplaced(tree.path(), &list.fault), Vec::<String>::new());
        tree.write("src/a.rs", "ask ask");
        let found = misplaced(tree.path(), &list.fault);
        assert_eq!(
            found,
            ["the mutation of `unknown-taken-as-failed` stands 2 times in src/a.rs, not once"]
        );
    }

    #[test]
    fn only_a_double_or_a_loss_finds_a_fault() {
        let tree = Scratch::new("told");
        let ask = |said: &str| {
            let mut command = Command::new("sh");
            command.current_dir(tree.path()).args(["-c", said]);
            told(&mut command).expect("sh")
        };
        let red = ask("echo 'loss: a'; echo closing; exit 1");
        assert!(!red.clean);
        assert_eq!(red.closing(), "closing");
        assert!(ask("true").clean);
    }
}
