//! The parts of an advertised tool that a pin holds, each with a digest of its own.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Kind, Value};

use super::words;
use crate::listing::AdvertisedTool;

/// A member of a tool in a listing. Its key is matched exactly: `Description` is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// `title`: what a host may show to a person.
    Title,
    /// `description`: what the model reads.
    Description,
    /// `inputSchema`: the arguments.
    InputSchema,
    /// `outputSchema`: the structured result.
    OutputSchema,
    /// `annotations`: what the server says that the tool does.
    Annotations,
}

impl Part {
    /// Every part, in the order in which changes are told.
    pub const ALL: [Self; 5] =
        [Self::Title, Self::Description, Self::InputSchema, Self::OutputSchema, Self::Annotations];

    /// The key in a listing, and in a manifest.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Description => "description",
            Self::InputSchema => "inputSchema",
            Self::OutputSchema => "outputSchema",
            Self::Annotations => "annotations",
        }
    }

    /// The part in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Description => "description",
            Self::InputSchema => "input schema",
            Self::OutputSchema => "output schema",
            Self::Annotations => "annotations",
        }
    }

    /// The digest of the part. One that is absent has another digest than any value, `null` included.
    pub(super) fn digest(self, value: Option<&Value>) -> Digest {
        let key = self.key().as_bytes();
        match value {
            None => Digest::of_parts(Kind::Pin, &[key]),
            Some(value) => Digest::of_parts(Kind::Pin, &[key, &value.to_canonical()]),
        }
    }
}

/// One tool as it was advertised: what stood there, of whatever type, keys and digits as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedTool {
    name: String,
    parts: BTreeMap<Part, Value>,
}

impl PinnedTool {
    /// The parts of a tool in a listing.
    #[must_use]
    pub fn of(tool: &AdvertisedTool) -> Self {
        let part = |part: Part| Some((part, tool.raw().get(part.key())?.clone()));
        let parts = Part::ALL.into_iter().filter_map(part).collect();
        Self { name: tool.name().to_owned(), parts }
    }

    pub(super) const fn new(name: String, parts: BTreeMap<Part, Value>) -> Self {
        Self { name, parts }
    }

    /// The name, as the server spells it: not safe to print.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What stands in a part, if it is there.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<&Value> {
        self.parts.get(&part)
    }

    /// The digest of a part, absent ones included.
    #[must_use]
    pub fn digest(&self, part: Part) -> Digest {
        part.digest(self.part(part))
    }

    /// One line about the tool, safe to print: its name, the beginning of its description, its parameters.
    #[must_use]
    pub fn words(&self) -> String {
        let text = self.part(Part::Description).and_then(Value::as_str);
        let text = text.map_or("no description".to_owned(), words::text);
        let schema = self.part(Part::InputSchema).and_then(|schema| schema.get("properties"));
        let names = schema.and_then(Value::as_object).into_iter().flat_map(|all| all.keys());
        let names = words::listed(names.map(|name| format!("`{}`", words::name(name))), ", ");
        let takes = if names.is_empty() { String::new() } else { format!("; takes {names}") };
        format!("`{}`: {text}{takes}", words::name(&self.name))
    }

    /// The parts in which another tool differs, whatever the names are.
    pub fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Part> + 'a {
        Part::ALL.into_iter().filter(|part| self.digest(*part) != other.digest(*part))
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn tool(text: &str) -> PinnedTool {
        let raw = parse(text.as_bytes(), &Limits::default()).unwrap();
        PinnedTool::of(&AdvertisedTool::read(raw).unwrap())
    }

    #[track_caller]
    fn check(one: &str, other: &str, expected: &[Part]) {
        let differences = tool(one).differences(&tool(other)).collect::<Vec<_>>();
        assert_eq!(differences, expected, "{one} and {other}");
    }

    #[test]
    fn a_difference_is_one_of_bytes_and_keys() {
        use Part::{Annotations, Description, InputSchema, OutputSchema, Title};
        check(r#"{"name":"a","description":"x"}"#, r#"{"description": "x", "name":"b"}"#, &[]);
        check(r#"{"name":"a"}"#, r#"{"name":"a","description":null}"#, &[Description]);
        check(r#"{"name":"a","title":""}"#, r#"{"name":"a"}"#, &[Title]);
        check(
            r#"{"name":"a","Description":"x"}"#,
            r#"{"name":"a","description":"x"}"#,
            &[Description],
        );
        check(
            r#"{"name":"a","inputSchema":{"maximum":9007199254740993}}"#,
            r#"{"name":"a","inputSchema":{"maximum":9007199254740992}}"#,
            &[InputSchema],
        );
        check(
            r#"{"name":"a","outputSchema":{},"annotations":{"readOnlyHint":true}}"#,
            r#"{"name":"a","outputSchema":true,"annotations":{"readOnlyHint":false}}"#,
            &[OutputSchema, Annotations],
        );
    }

    #[test]
    fn a_tool_in_one_line() {
        let bare = tool(r#"{"name":"a"}"#);
        assert_eq!(bare.words(), "`a`: no description");
        let pay = r#"{"name":"pay","description":"Pays\n\u001b[2J.","inputSchema":{"properties":{"to":{},"sum":{}}}}"#;
        assert_eq!(tool(pay).words(), "`pay`: \"Pays \\x1B[2J.\"; takes `sum`, `to`");
    }

    #[test]
    fn one_text_in_two_parts_has_two_digests() {
        let same = tool(r#"{"name":"a","title":"x","description":"x"}"#);
        assert_ne!(same.digest(Part::Title), same.digest(Part::Description));
    }
}
