//! `cargo xtask bench`: every bench target, then the bench program, in release; the ratios that they print, together.
//!
//! A bench tells a ratio in one line: `ratio: <name> = <value>`, with ` limit <value>` where the design sets one.
//! Ratios are shown and never fail the command: a busy machine is no broken product.

use std::path::Path;

use anyhow::Result;

use crate::process::{self, Kept};
use crate::table;
use crate::workspace::Member;

/// The package of whole-program benches.
const PROGRAM: &str = "portcullis-bench";

/// One ratio that a bench told.
#[derive(Debug, PartialEq)]
struct Ratio {
    name: String,
    value: f64,
    limit: Option<f64>,
}

/// Runs all benches, passing `arguments` on to the bench program; true when each ended well.
pub(crate) fn run(root: &Path, members: &[Member], arguments: &[String]) -> Result<bool> {
    let mut outputs = Vec::new();
    let with_targets: Vec<&Member> = members
        .iter()
        .filter(|member| !member.benches.is_empty() && member.name != PROGRAM)
        .collect();
    for member in &with_targets {
        println!("{}: {}", member.name, member.benches.join(", "));
        let mut command = process::cargo(root);
        command.args(["bench", "--locked", "--package", &member.name, "--bench", "*"]);
        outputs.push(process::show_and_keep(&mut command)?);
    }
    let program = members.iter().any(|member| member.name == PROGRAM);
    if program {
        let mut command = process::cargo(root);
        command.args(["run", "--release", "--locked", "--package", PROGRAM, "--"]).args(arguments);
        outputs.push(process::show_and_keep(&mut command)?);
    }
    if with_targets.is_empty() && !program {
        println!("no package has benches yet");
    }
    let ratios: Vec<Ratio> = outputs.iter().flat_map(|kept| ratios(&kept.text)).collect();
    if !ratios.is_empty() {
        let rows: Vec<Vec<String>> = ratios.iter().map(row).collect();
        println!("\n{}", table::render(&["ratio", "value", "limit", ""], &rows));
    }
    Ok(outputs.iter().all(|kept: &Kept| kept.ok))
}

fn ratios(text: &str) -> Vec<Ratio> {
    text.lines().filter_map(|line| ratio(line.trim())).collect()
}

fn ratio(line: &str) -> Option<Ratio> {
    let (name, rest) = line.strip_prefix("ratio: ")?.split_once(" = ")?;
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let limit = match words.next() {
        Some("limit") => Some(words.next()?.parse().ok()?),
        _ => None,
    };
    Some(Ratio { name: name.to_owned(), value, limit })
}

fn row(ratio: &Ratio) -> Vec<String> {
    let limit = ratio.limit.map(|limit| limit.to_string()).unwrap_or_default();
    let over = ratio.limit.is_some_and(|limit| ratio.value > limit);
    let word = if over { "OVER" } else { "" };
    vec![ratio.name.clone(), format!("{:.3}", ratio.value), limit, word.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_read_from_the_output() {
        let text = "bench\nratio: commits per step = 2.1 limit 2.3\n  ratio: flat = 1.25\nratio: none = x\nratio: 3\n";
        let found = ratios(text);
        assert_eq!(
            found,
            [
                Ratio { name: "commits per step".to_owned(), value: 2.1, limit: Some(2.3) },
                Ratio { name: "flat".to_owned(), value: 1.25, limit: None },
            ]
        );
    }

    #[test]
    fn a_ratio_over_its_limit_is_marked() {
        let over = Ratio { name: "a".to_owned(), value: 2.4, limit: Some(2.3) };
        assert_eq!(row(&over), ["a", "2.400", "2.3", "OVER"]);
        let within = Ratio { value: 2.3, ..over };
        assert_eq!(row(&within), ["a", "2.300", "2.3", ""]);
    }
}
