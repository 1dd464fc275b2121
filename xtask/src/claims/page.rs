//! `docs/security.md`, made from the list.

use std::fmt::Write as _;

use super::list::{Claim, List};

const OPENING: &str = "\
<!-- Made from docs/claims.toml by `cargo xtask claims --write`. Edit the list, not this page. -->

# What holds, against whom, and how you can check it

Each section is one attacker: what it is assumed to be able to do, what holds all the same, what is left to the operator,
and what does not hold. Each claim names the tests that prove it, as `package::path`, and the small change of the product
that breaks it.

- `cargo xtask claims` checks that this page is made from the list, that each change can still be made, and that each
  test exists. It is a stage of `cargo xtask test`.
- `cargo xtask claims --mutate` makes each change in a copy and requires that one of the claim's tests fails. A claim
  alone: `--only ID`.
";

/// Renders the page; the same list always gives the same bytes.
pub(super) fn render(list: &List) -> String {
    let mut page = OPENING.to_owned();
    contents(&mut page, list);
    for attacker in &list.attacker {
        // Writing to a String cannot fail.
        let _ =
            write!(page, "\n## {}\n\nAssumed: {}\n", attacker.name, one_line(&attacker.assumed));
        for claim in list.claim.iter().filter(|claim| claim.attacker == attacker.id) {
            write_claim(&mut page, claim);
        }
        points(&mut page, "Left to the operator", attacker.operator.iter());
        let open = list.open.iter().filter(|open| open.attacker == attacker.id);
        points(&mut page, "What does not hold", open.map(|open| &open.text));
    }
    page
}

fn contents(page: &mut String, list: &List) {
    page.push_str("\n| attacker | claims | open points |\n|---|---:|---:|\n");
    for attacker in &list.attacker {
        let claims = list.claim.iter().filter(|claim| claim.attacker == attacker.id).count();
        let open = list.open.iter().filter(|open| open.attacker == attacker.id).count();
        let anchor = anchor(&attacker.name);
        let _ = writeln!(page, "| [{}](#{anchor}) | {claims} | {open} |", attacker.name);
    }
}

fn write_claim(page: &mut String, claim: &Claim) {
    let _ = write!(page, "\n### `{}`\n\n{}\n", claim.id, one_line(&claim.text));
    if let Some(limits) = &claim.limits {
        let _ = write!(page, "\nLimits: {}\n", one_line(limits));
    }
    page.push_str("\nProved by:\n\n");
    for test in &claim.tests {
        let _ = writeln!(page, "- `{test}`");
    }
    for edit in claim.edits() {
        let _ = write!(page, "\nBroken on purpose in `{}`:\n\n```diff\n", edit.file);
        for (sign, text) in [('-', &edit.find), ('+', &edit.replace)] {
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                let _ = writeln!(page, "{sign} {}", line.trim_end());
            }
        }
        page.push_str("```\n");
    }
}

fn points<'a>(page: &mut String, title: &str, texts: impl Iterator<Item = &'a String>) {
    let mut texts = texts.peekable();
    if texts.peek().is_some() {
        let _ = write!(page, "\n### {title}\n\n");
    }
    for text in texts {
        let _ = writeln!(page, "- {}", one_line(text));
    }
}

/// The anchor that a heading gets where Markdown is shown.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Joins the lines of a TOML text, so that its own wrapping does not show.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::sample;
    use super::*;

    #[test]
    fn the_page_holds_each_part_in_order() {
        let page = render(&sample());
        let parts = [
            "| [A hostile model](#a-hostile-model) | 2 | 1 |",
            "## A hostile model",
            "Assumed: It chooses",
            "### `one-meaning`",
            "Limits: Only in JSON.",
            "- `p-a::parse::tests::twice`",
            "Broken on purpose in `src/a.rs`:",
            "```diff\n- seen.contains(key)\n+ false\n```",
            "### `no-forgery`",
            "Broken on purpose in `src/b.rs`:",
            "### Left to the operator",
            "- What the policy allows.",
            "### What does not hold",
            "- It may lie in its reasons.",
        ];
        let mut rest = page.as_str();
        for part in parts {
            (_, rest) = rest.split_once(part).unwrap_or_else(|| panic!("{part} in order"));
        }
    }
}
