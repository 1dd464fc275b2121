//! `docs/benchmarks.md`: the parts of it that the command writes, each between two marks. The rest is written by hand.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The page, below the root.
const PAGE: &str = "docs/benchmarks.md";

/// The part of our own benches.
pub(crate) const OWN: &str = "own";

/// The part of the loops through the peers.
pub(crate) const LOOPS: &str = "loops";

/// The part of the kills.
pub(crate) const KILLS: &str = "kills";

/// Makes sure that the page has every part.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = read(root)?;
    for part in [OWN, LOOPS, KILLS] {
        replaced(&text, part, "")?;
    }
    Ok(())
}

/// Puts `body` into a part of the page.
pub(crate) fn write(root: &Path, part: &str, body: &str) -> Result<()> {
    let text = replaced(&read(root)?, part, body)?;
    fs::write(root.join(PAGE), text).with_context(|| format!("{PAGE} cannot be written"))?;
    println!("written: {PAGE}, the part `{part}`");
    Ok(())
}

fn read(root: &Path) -> Result<String> {
    fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))
}

/// The page with another body in one part.
fn replaced(text: &str, part: &str, body: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {part} -->"), format!("<!-- end {part} -->"));
    let (before, rest) = once(text, &begin)?;
    let (_, after) = once(rest, &end)?;
    if before.contains(&end) {
        bail!("{PAGE} has `{end}` before `{begin}`: put it behind");
    }
    let note = "<!-- Written by `cargo xtask bench`: what is changed here by hand is lost. -->";
    Ok(format!("{before}{begin}\n{note}\n\n{}\n\n{end}{after}", body.trim()))
}

/// What stands before and behind a mark that is there once.
fn once<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str)> {
    let Some((before, after)) = text.split_once(mark) else {
        bail!("{PAGE} has no line `{mark}`: put it back where the figures belong");
    };
    if after.contains(mark) {
        bail!("{PAGE} has `{mark}` twice: leave one");
    }
    Ok((before, after))
}

/// A table in Markdown; columns whose cells all begin with a digit are set to the right.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let number = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        !rows.is_empty()
            && cells.all(|cell| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit()))
    };
    let rule = (0..head.len()).map(|column| if number(column) { "--:" } else { "---" });
    let mut lines = vec![head.iter().map(|title| cell(title)).collect::<Vec<_>>()];
    lines.push(rule.map(str::to_owned).collect());
    lines.extend(rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()));
    lines.iter().map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const TEXT: &str = "# Title\n\n<!-- begin own -->\nold\n<!-- end own -->\n\nBy hand.\n";

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let text = replaced(TEXT, "own", "\nnew\n\n").expect("replaced");
        assert!(text.starts_with("# Title\n\n<!-- begin own -->\n<!-- Written by"));
        assert!(text.ends_with("-->\n\nnew\n\n<!-- end own -->\n\nBy hand.\n"));
        assert!(!text.contains("old"));
        assert_eq!(replaced(&text, "own", "new").expect("replaced"), text, "writing twice is once");
    }

    #[test]
    fn a_missing_or_doubled_mark_is_an_error_that_names_it() {
        let told = |text: &str| replaced(text, "own", "new").expect_err("an error").to_string();
        assert!(told("# Title\n").contains("no line `<!-- begin own -->`"));
        assert!(told("<!-- begin own -->\n").contains("no line `<!-- end own -->`"));
        assert!(told(&format!("{TEXT}{TEXT}")).contains("`<!-- begin own -->` twice"));
        let turned = "<!-- end own -->\n<!-- begin own -->\n<!-- end own -->\n";
        assert!(told(turned).contains("before"));
    }

    #[test]
    fn a_page_that_is_gone_or_lacks_a_part_is_found_before_measuring() {
        let tree = Scratch::new("page");
        assert!(format!("{:#}", check(tree.path()).expect_err("no page")).contains(PAGE));
        tree.write(PAGE, TEXT);
        let told = check(tree.path()).expect_err("parts are missing").to_string();
        assert!(told.contains("<!-- begin loops -->"));
        let mut whole = TEXT.to_owned();
        for part in [LOOPS, KILLS] {
            whole.push_str(&format!("<!-- begin {part} -->\n<!-- end {part} -->\n"));
        }
        tree.write(PAGE, &whole);
        check(tree.path()).expect("whole");
        write(tree.path(), LOOPS, "figures").expect("written");
        assert!(fs::read_to_string(tree.path().join(PAGE)).expect("a page").contains("figures"));
    }

    #[test]
    fn tables_have_numbers_to_the_right() {
        let rows = vec![vec!["a|b".to_owned(), "1.5".to_owned()]];
        assert_eq!(table(&["x", "y"], &rows), "| x | y |\n| --- | --: |\n| a\\|b | 1.5 |\n");
    }

    #[test]
    fn the_page_of_this_repository_has_all_parts() {
        check(&crate::workspace::root().expect("root")).expect("the page");
    }
}
