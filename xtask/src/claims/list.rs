//! The list of claims, `docs/claims.toml`.
//!
//! ```toml
//! [[attacker]]
//! id = "model"
//! name = "A hostile model"
//! assumed = "It chooses every byte of every proposal."
//! operator = ["What the policy allows."]   # what is left to people, one sentence each
//!
//! [[claim]]
//! id = "one-meaning"                       # lower case words joined by `-`; never used for something else
//! attacker = "model"
//! text = "A proposal that two readers could understand differently is refused."
//! limits = "What the claim does not cover." # optional
//! tests = ["portcullis-canon::parse::tests::a_repeated_key_is_refused"]
//! # One edit or a list of edits; `find` stands exactly once in `file`.
//! mutation = { file = "crates/canon/src/parse.rs", find = "exact text", replace = "other text" }
//! compile_fail = false                     # true where the mutation must not even compile
//!
//! [[open]]                                 # what does not hold, said as plainly
//! attacker = "model"
//! text = "…"
//! ```
//!
//! A test is `package::path`, where the path is what the test's binary prints for it; integration tests are
//! `package::it::path`. Name the test that is quickest to build and fail first: `--mutate` stops at it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The whole list, in the order of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// Who is held off.
    #[serde(default)]
    pub(crate) attacker: Vec<Attacker>,
    /// What holds.
    #[serde(default)]
    pub(crate) claim: Vec<Claim>,
    /// What does not.
    #[serde(default)]
    pub(crate) open: Vec<Open>,
}

/// A position from which somebody attacks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attacker {
    /// Named by claims.
    pub(crate) id: String,
    /// The title of its section.
    pub(crate) name: String,
    /// What it is assumed to be able to do.
    pub(crate) assumed: String,
    /// What is left to the operator.
    #[serde(default)]
    pub(crate) operator: Vec<String>,
}

/// A guarantee against one attacker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// Unique and stable.
    pub(crate) id: String,
    /// An attacker's id.
    pub(crate) attacker: String,
    /// The guarantee in one or two sentences.
    pub(crate) text: String,
    /// What it does not cover.
    pub(crate) limits: Option<String>,
    /// The tests that prove it; at least one.
    pub(crate) tests: Vec<String>,
    /// The change that breaks it.
    mutation: Mutation,
    /// Whether the mutated code is meant not to compile.
    #[serde(default)]
    pub(crate) compile_fail: bool,
}

/// Something that does not hold, for the reader's sake.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// An attacker's id.
    pub(crate) attacker: String,
    /// What remains possible.
    pub(crate) text: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a mutation is { file, find, replace } or a list of them")]
enum Mutation {
    One(Edit),
    Many(Vec<Edit>),
}

/// One replacement in one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Relative to the root.
    pub(crate) file: String,
    /// Text that stands there exactly once.
    pub(crate) find: String,
    /// What stands there instead.
    pub(crate) replace: String,
}

impl Claim {
    /// The edits of the mutation.
    pub(crate) fn edits(&self) -> &[Edit] {
        match &self.mutation {
            Mutation::One(edit) => std::slice::from_ref(edit),
            Mutation::Many(edits) => edits,
        }
    }
}

impl List {
    /// What the list itself gets wrong.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let mut attackers = BTreeSet::new();
        for attacker in &self.attacker {
            if !attackers.insert(attacker.id.as_str()) {
                findings.push(format!("the attacker `{}` stands twice", attacker.id));
            }
        }
        let mut ids = BTreeSet::new();
        for claim in &self.claim {
            let id = &claim.id;
            if !is_id(id) {
                findings.push(format!("the claim id `{id}` is not lower case words joined by `-`"));
            }
            if !ids.insert(id.as_str()) {
                findings.push(format!("the claim `{id}` stands twice"));
            }
            if !attackers.contains(claim.attacker.as_str()) {
                findings.push(format!("the claim `{id}` names no attacker of the list"));
            }
            if claim.tests.is_empty() {
                findings.push(format!("the claim `{id}` names no test"));
            }
            if claim.edits().is_empty()
                || claim.edits().iter().any(|edit| edit.find == edit.replace)
            {
                findings.push(format!("the mutation of the claim `{id}` changes nothing"));
            }
        }
        for open in &self.open {
            if !attackers.contains(open.attacker.as_str()) {
                findings.push(format!(
                    "an open point names `{}`, no attacker of the list",
                    open.attacker
                ));
            }
        }
        findings
    }
}

/// Reads the list of a checkout.
pub(crate) fn read(root: &Path) -> Result<List> {
    let text = fs::read_to_string(root.join(super::LIST))
        .with_context(|| format!("{} cannot be read", super::LIST))?;
    parse(&text)
}

fn parse(text: &str) -> Result<List> {
    toml::from_str(text).with_context(|| format!("{} is not a list of claims", super::LIST))
}

fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.split('-').all(|word| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::claims) const TEXT: &str = r##"
[[attacker]]
id = "model"
name = "A hostile model"
assumed = "It chooses every byte of every proposal."
operator = ["What the policy allows."]

[[claim]]
id = "one-meaning"
attacker = "model"
text = "A repeated key is refused."
limits = "Only in JSON."
tests = ["p-a::parse::tests::twice"]
mutation = { file = "src/a.rs", find = "seen.contains(key)", replace = "false" }

[[claim]]
id = "no-forgery"
attacker = "model"
text = "A permit cannot be built."
tests = ["p-a::it::ui::forge"]
mutation = [
  { file = "src/a.rs", find = "struct Permit", replace = "pub struct Permit" },
  { file = "src/b.rs", find = "x", replace = "y" },
]
compile_fail = true

[[open]]
attacker = "model"
text = "It may lie in its reasons."
"##;

    pub(in crate::claims) fn sample() -> List {
        parse(TEXT).expect("the sample")
    }

    #[test]
    fn a_list_is_read() {
        let list = sample();
        assert_eq!(list.findings(), Vec::<String>::new());
        assert_eq!(list.claim.len(), 2);
        assert_eq!(list.claim[0].edits()[0].replace, "false");
        assert_eq!(list.claim[1].edits().len(), 2);
        assert!(!list.claim[0].compile_fail && list.claim[1].compile_fail);
    }

    #[test]
    fn unknown_fields_and_half_mutations_are_refused() {
        assert!(parse("[[claim]]\nid = \"a\"\n").is_err());
        assert!(parse(&TEXT.replace("limits", "limit")).is_err());
        assert!(parse(&TEXT.replace(", replace = \"false\"", "")).is_err());
        assert!(parse(&TEXT.replace("assumed", "assume")).is_err());
    }

    #[test]
    fn what_a_list_gets_wrong_is_found() {
        let wrong =
            |from: &str, to: &str| parse(&TEXT.replace(from, to)).expect("a list").findings();
        assert!(wrong("\"no-forgery\"", "\"one-meaning\"")[0].contains("stands twice"));
        assert!(wrong("\"no-forgery\"", "\"No forgery\"")[0].contains("lower case"));
        assert!(wrong("[\"p-a::it::ui::forge\"]", "[]")[0].contains("no test"));
        assert!(wrong("replace = \"y\"", "replace = \"x\"")[0].contains("changes nothing"));
        assert_eq!(wrong("id = \"model\"", "id = \"server\"").len(), 3);
    }
}
