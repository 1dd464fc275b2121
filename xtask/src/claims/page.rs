//! `docs/security.md`, made from the list.

use std::fmt::Write as _;

use super::list::List;

const OPENING: &str = "\
<!-- Made from docs/claims.toml by `cargo xtask claims --write`. Edit the list, not this page. -->

# What holds, against whom, and how you can check it

Each section is one attacker: what we assume it can do, what holds all the same, and what does not. Each claim names the
tests that prove it. `cargo xtask claims` checks that these tests exist. `cargo xtask claims --mutate` goes further: for
each claim it breaks the product with the small change that stands in `docs/claims.toml`, and requires that one of the
claim's tests fails.
";

/// Renders the page; the same list always gives the same bytes.
pub(super) fn render(list: &List) -> String {
    let mut page = OPENING.to_owned();
    for attacker in &list.attacker {
        // Writing to a String cannot fail.
        let _ =
            write!(page, "\n## {}\n\nAssumed: {}\n", attacker.name, one_line(&attacker.assumed));
        for claim in list.claim.iter().filter(|claim| claim.attacker == attacker.id) {
            let _ = write!(page, "\n### `{}`\n\n{}\n", claim.id, one_line(&claim.text));
            if let Some(limits) = &claim.limits {
                let _ = write!(page, "\nLimits: {}\n", one_line(limits));
            }
            page.push_str("\nProved by:\n\n");
            for test in &claim.tests {
                let _ = writeln!(page, "- `{test}`");
            }
            let files: Vec<String> =
                claim.edits().iter().map(|edit| format!("`{}`", edit.file)).collect();
            let _ = write!(page, "\nBroken on purpose in {}.\n", files.join(", "));
        }
        let mut open = list.open.iter().filter(|open| open.attacker == attacker.id).peekable();
        if open.peek().is_some() {
            page.push_str("\n### What does not hold\n\n");
        }
        for point in open {
            let _ = writeln!(page, "- {}", one_line(&point.text));
        }
    }
    page
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
            "## A hostile model",
            "Assumed: It chooses",
            "### `one-meaning`",
            "Limits: Only in JSON.",
            "- `p-a::parse::tests::twice`",
            "Broken on purpose in `src/a.rs`.",
            "### `no-forgery`",
            "Broken on purpose in `src/a.rs`, `src/b.rs`.",
            "### What does not hold",
            "- It may lie in its reasons.",
        ];
        let mut rest = page.as_str();
        for part in parts {
            (_, rest) = rest.split_once(part).unwrap_or_else(|| panic!("{part} in order"));
        }
    }
}
