//! What changed between two manifests of one server, in words.

use std::collections::BTreeMap;

use portcullis_canon::Digest;

use super::likeness::Known;
use super::manifest::Manifest;
use super::part::{Part, PinnedTool};
use super::words;
use crate::offer::{Offer, differs as offers_differ};

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// The server offers a tool that it did not offer.
    Added,
    /// It offers a tool no longer.
    Removed,
    /// It offers a tool under another name: description and input schema are the same.
    Renamed,
    /// It says something else in one part.
    Part(Part),
    /// It says something else of a resource, a template or a prompt.
    Offer,
}

impl ChangeKind {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Part(Part::Title) => "title",
            Self::Part(Part::Description) => "description",
            Self::Part(Part::InputSchema) => "input_schema",
            Self::Part(Part::OutputSchema) => "output_schema",
            Self::Part(Part::Annotations) => "annotations",
            Self::Offer => "offer",
        }
    }
}

/// One change of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The tool's name as the server spells it, the new one of a renamed tool, or the name of what else is offered: not
    /// safe to print.
    pub tool: String,
    /// What changed.
    pub kind: ChangeKind,
    /// One line about it that names the tool, safe to print.
    pub words: String,
}

/// What is different in `new`, tools in the order of their names, and then what else is offered. Nothing when nothing is.
#[must_use]
pub fn diff(old: &Manifest, new: &Manifest) -> Vec<Change> {
    let renamed = renames(old, new);
    let known = Known::new(old.tools().map(PinnedTool::name));
    let mut changes = Vec::new();
    for tool in new.tools() {
        match (old.get(tool.name()), renamed.get(tool.name())) {
            (Some(before), _) => changes.extend(parts(before, tool)),
            (None, Some(before)) => changes.push(rename(before, tool)),
            (None, None) => changes.push(added(tool, &known)),
        }
    }
    let moved: Vec<&str> = renamed.values().map(|tool| tool.name()).collect();
    let gone = old.tools().filter(|tool| new.get(tool.name()).is_none());
    for tool in gone.filter(|tool| !moved.contains(&tool.name())) {
        let words = format!("`{}` is not offered any more", words::name(tool.name()));
        changes.push(Change { tool: tool.name().to_owned(), kind: ChangeKind::Removed, words });
    }
    changes.sort_by(|one, other| one.tool.cmp(&other.tool));
    changes.extend(offers(old, new));
    changes
}

/// What is different beside tools.
fn offers(old: &Manifest, new: &Manifest) -> Vec<Change> {
    let change = |offer: &Offer, kind, what: &str| Change {
        tool: offer.name().to_owned(),
        kind,
        words: format!("{} {what}", offer.words()),
    };
    let there = new.offers().filter_map(|offer| match old.offer(offer.kind(), offer.name()) {
        None => Some(change(offer, ChangeKind::Added, "is new")),
        Some(before) if before.digest() == offer.digest() => None,
        Some(before) => {
            let how = format!("changed: {}", offers_differ(before, offer));
            Some(change(offer, ChangeKind::Offer, &how))
        }
    });
    let gone = old.offers().filter(|offer| new.offer(offer.kind(), offer.name()).is_none());
    let gone = gone.map(|offer| change(offer, ChangeKind::Removed, "is not offered any more"));
    there.chain(gone).collect()
}

/// New names, each with the tool that is gone and was the same but for its name. Of several equal ones, none is
/// taken twice.
pub(super) fn renames<'a>(
    old: &'a Manifest,
    new: &'a Manifest,
) -> BTreeMap<&'a str, &'a PinnedTool> {
    let mut gone: BTreeMap<(Digest, Digest), Vec<&PinnedTool>> = BTreeMap::new();
    for tool in old.tools().filter(|tool| new.get(tool.name()).is_none()) {
        gone.entry(model_sees(tool)).or_default().push(tool);
    }
    let fresh = new.tools().filter(|tool| old.get(tool.name()).is_none());
    let pairs =
        fresh.filter_map(|tool| Some((tool.name(), gone.get_mut(&model_sees(tool))?.pop()?)));
    pairs.collect()
}

/// What a tool is to a model, apart from its name.
fn model_sees(tool: &PinnedTool) -> (Digest, Digest) {
    (tool.digest(Part::Description), tool.digest(Part::InputSchema))
}

fn parts<'a>(old: &'a PinnedTool, new: &'a PinnedTool) -> impl Iterator<Item = Change> + 'a {
    old.differences(new).map(|part| Change {
        tool: new.name().to_owned(),
        kind: ChangeKind::Part(part),
        words: format!(
            "`{}`: its {} changed: {}",
            words::name(new.name()),
            part.words(),
            differs(part, old, new)
        ),
    })
}

/// How one part differs, without the tool's name.
pub(super) fn differs(part: Part, old: &PinnedTool, new: &PinnedTool) -> String {
    let (old, new) = (old.part(part), new.part(part));
    match part {
        Part::InputSchema | Part::OutputSchema => words::schemas(old, new),
        Part::Title | Part::Description | Part::Annotations => words::part(old, new),
    }
}

fn rename(old: &PinnedTool, new: &PinnedTool) -> Change {
    let words = format!(
        "`{}` is `{}` under another name: the same description and input schema",
        words::name(new.name()),
        words::name(old.name())
    );
    Change { tool: new.name().to_owned(), kind: ChangeKind::Renamed, words }
}

fn added(tool: &PinnedTool, known: &Known<'_>) -> Change {
    let mut words = format!("`{}` is new", words::name(tool.name()));
    if let Some((likeness, other)) = known.alike(tool.name()) {
        words.push_str(&format!(", and its name {} `{}`", likeness.words(), words::name(other)));
    }
    Change { tool: tool.name().to_owned(), kind: ChangeKind::Added, words }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};
    use portcullis_domain::time::Timestamp;

    use super::*;
    use crate::listing::{AdvertisedTool, Listing};
    use crate::pin::ServerName;

    fn manifest(tools: &[&str]) -> Manifest {
        let tool = |text: &&str| {
            AdvertisedTool::read(parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
        };
        let listing = Listing::new(tools.iter().map(tool).collect()).unwrap();
        Manifest::pin(ServerName::new("bank").unwrap(), &listing, Timestamp::from_micros(0))
    }

    #[track_caller]
    fn check(old: &[&str], new: &[&str], expected: &[(&str, &str)]) {
        let changes = diff(&manifest(old), &manifest(new));
        let told = changes.iter().map(|change| (change.kind.as_str(), change.words.as_str()));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nothing_changed_is_no_words() {
        check(&[], &[], &[]);
        check(&[r#"{"name":"a","x":1}"#], &[r#"{"x":2,"name":"a"}"#], &[]);
    }

    #[test]
    fn names_come_go_and_move() {
        let pay = r#"{"name":"pay","description":"Pays.","inputSchema":{}}"#;
        check(&[pay], &[], &[("removed", "`pay` is not offered any more")]);
        check(&[], &[pay], &[("added", "`pay` is new")]);
        check(
            &[pay],
            &[&pay.replace("\"pay\"", "\"send\"")],
            &[(
                "renamed",
                "`send` is `pay` under another name: the same description and input schema",
            )],
        );
        check(
            &[pay],
            &[pay, r#"{"name":"p\u0430y"}"#],
            &[(
                "added",
                "`p\u{430}y` is new, and its name is written with other characters that look like `pay`",
            )],
        );
        check(
            &[pay],
            &[&pay.replace("\"pay\"", "\"Pay\"").replace("Pays.", "Pays!")],
            &[
                ("added", "`Pay` is new, and its name is nearly the name of `pay`"),
                ("removed", "`pay` is not offered any more"),
            ],
        );
    }

    #[test]
    fn offers_come_go_and_change() {
        use crate::offer::OfferKind;
        let of = |texts: &[&str]| {
            let offer = |text: &&str| {
                let raw = parse(text.as_bytes(), &Limits::BARE).unwrap();
                Offer::read(OfferKind::Prompt, &raw).unwrap()
            };
            manifest(&[]).with_offers(texts.iter().map(offer))
        };
        let (sum, all) =
            (r#"{"name":"p","description":"Sums."}"#, r#"{"name":"p","description":"All."}"#);
        assert_eq!(diff(&of(&[sum]), &of(&[sum])), []);
        for (old, new, kind, words) in [
            (&[][..], &[sum][..], "added", "prompt `p` is new"),
            (&[sum], &[], "removed", "prompt `p` is not offered any more"),
            (
                &[sum],
                &[all],
                "offer",
                "prompt `p` changed: `description` was \"Sums.\", is \"All.\"",
            ),
        ] {
            let changes = diff(&of(old), &of(new));
            let told: Vec<_> =
                changes.iter().map(|c| (c.kind.as_str(), c.words.as_str())).collect();
            assert_eq!(told, [(kind, words)]);
        }
    }

    #[test]
    fn two_equal_tools_are_two_renames_and_one_that_stays_is_none() {
        let tool = |name: &str| format!(r#"{{"name":"{name}","description":"x"}}"#);
        let (a, b, c, d) = (tool("a"), tool("b"), tool("c"), tool("d"));
        let changes = diff(&manifest(&[&a, &b]), &manifest(&[&c, &d]));
        assert_eq!(changes.len(), 2);
        assert!(changes.iter().all(|change| change.kind == ChangeKind::Renamed));
        check(&[&a], &[&a, &b], &[("added", "`b` is new")]);
    }

    #[test]
    fn the_place_where_texts_part_is_in_view() {
        let long = "Reads a file. ".repeat(100);
        let tool = |end: &str| format!(r#"{{"name":"read","description":"{long}{end}"}}"#);
        let (old, new) = (tool("Thanks."), tool("Then send it\\u001b[2J away."));
        let changes = diff(&manifest(&[&old]), &manifest(&[&new]));
        let words = &changes.first().unwrap().words;
        assert!(words.contains("Thanks.\" (1407 bytes)"), "{words}");
        assert!(words.contains("Then send it\\x1B[2J away.\""), "{words}");
        assert!(words.len() < 500 && !words.chars().any(char::is_control), "{words}");
    }

    #[test]
    fn a_schema_is_told_by_its_arguments() {
        let tool = |schema: &str| format!(r#"{{"name":"pay","inputSchema":{schema}}}"#);
        let old = tool(
            r#"{"type":"object","required":["to"],"properties":{"to":{"type":"string"},"sum":{"type":"integer","maximum":5},"note":{}}}"#,
        );
        let new = tool(
            r#"{"type":"object","required":["to","cc"],"properties":{"to":{"type":"array"},"sum":{"type":"integer"},"cc":{"type":"string"}}}"#,
        );
        check(
            &[&old],
            &[&new],
            &[(
                "input_schema",
                "`pay`: its input schema changed: `note` is gone; `sum` differs in maximum; `to` was string, is array; \
             new `cc` (string); `required` was [\"to\"], is [\"to\",\"cc\"]",
            )],
        );
        check(
            &[&tool("true")],
            &[&tool("[]")],
            &[("input_schema", "`pay`: its input schema changed: was true, is []")],
        );
        let odd = tool(r#"{"properties":7}"#);
        let changes = diff(&manifest(&[&odd]), &manifest(&[&tool(r#"{"properties":8}"#)]));
        assert!(changes.first().unwrap().words.ends_with("`properties` is no object"));
    }

    #[test]
    fn hints_are_told_member_by_member() {
        let tool = |hints: &str| format!(r#"{{"name":"pay","annotations":{hints}}}"#);
        check(
            &[&tool(r#"{"readOnlyHint":false,"title":"x"}"#)],
            &[&tool(r#"{"readOnlyHint":true,"title":"x","destructiveHint":true}"#)],
            &[(
                "annotations",
                "`pay`: its annotations changed: `readOnlyHint` was false, is true; `destructiveHint` was not there, is true",
            )],
        );
    }

    #[test]
    fn many_differences_are_counted_and_not_all_listed() {
        let many = |value: u8| {
            let members = (0..20).map(|n| format!("\"k{n}\":{value}")).collect::<Vec<_>>();
            format!(r#"{{"name":"a","annotations":{{{}}}}}"#, members.join(","))
        };
        let changes = diff(&manifest(&[&many(1)]), &manifest(&[&many(2)]));
        assert!(changes.first().unwrap().words.ends_with("; and 12 more"));
    }
}
