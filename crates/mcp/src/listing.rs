//! The tools of a server, in the bytes in which it advertised them.

use std::collections::BTreeSet;

use portcullis_canon::{Value, sanitize};

/// The most tools that one server may advertise.
pub const MAX_TOOLS: usize = 1_000;

/// How much of a name goes into a sentence.
const QUOTED_BYTES: usize = 80;

/// One tool, as it stood in the listing: nothing is decoded and encoded again, so what is hashed is what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedTool {
    name: String,
    raw: Value,
}

/// Why a listing is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// A tool is no object with a name.
    #[error(
        "the server lists a tool that is no object with a string `name`: nothing of it is used"
    )]
    Shape,
    /// One name stands twice, on one page or on two.
    #[error("the server lists the tool `{0}` twice: nothing of it is used")]
    Repeated(String),
    /// More than [`MAX_TOOLS`].
    #[error("the server lists more than {MAX_TOOLS} tools: nothing of it is used")]
    TooMany,
}

impl AdvertisedTool {
    /// Reads one entry of `tools/list`.
    ///
    /// # Errors
    /// [`ListingError::Shape`] when it is no object with a name.
    pub fn read(raw: Value) -> Result<Self, ListingError> {
        let name = raw.get("name").and_then(Value::as_str).ok_or(ListingError::Shape)?.to_owned();
        Ok(Self { name, raw })
    }

    /// The name that a call has to give, as the server spells it: not safe to print.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole entry, every member of it, keys as they were spelled and numbers with all their digits.
    #[must_use]
    pub const fn raw(&self) -> &Value {
        &self.raw
    }
}

/// Everything that a server advertised: each name once, at most [`MAX_TOOLS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    tools: Vec<AdvertisedTool>,
}

impl Listing {
    /// Takes all pages together.
    ///
    /// # Errors
    /// [`ListingError`] for a name that stands twice or too many tools.
    pub fn new(tools: Vec<AdvertisedTool>) -> Result<Self, ListingError> {
        if tools.len() > MAX_TOOLS {
            return Err(ListingError::TooMany);
        }
        let mut seen = BTreeSet::new();
        if let Some(again) = tools.iter().find(|tool| !seen.insert(tool.name())) {
            return Err(ListingError::Repeated(sanitize::clip(again.name(), QUOTED_BYTES)));
        }
        Ok(Self { tools })
    }

    /// The tools, in the server's order.
    #[must_use]
    pub fn tools(&self) -> &[AdvertisedTool] {
        &self.tools
    }

    /// The tool of exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&AdvertisedTool> {
        self.tools.iter().find(|tool| tool.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn tool(name: &str) -> AdvertisedTool {
        let text = format!(r#"{{"name":"{name}","n":9007199254740993}}"#);
        AdvertisedTool::read(parse(text.as_bytes(), &Limits::default()).unwrap()).unwrap()
    }

    #[test]
    fn digits_are_kept() {
        let text = tool("pay").raw().to_canonical_string();
        assert_eq!(text, r#"{"n":9007199254740993,"name":"pay"}"#);
    }

    #[test]
    fn a_name_that_stands_twice_refuses_the_listing() {
        let listing = Listing::new(vec![tool("pay"), tool("Pay")]).unwrap();
        assert_eq!(listing.get("Pay").unwrap().name(), "Pay");
        let twice = Listing::new(vec![tool("pay"), tool("read"), tool("pay")]);
        assert_eq!(twice.unwrap_err(), ListingError::Repeated("pay".to_owned()));
    }

    #[test]
    fn the_last_tool_fits_and_one_more_does_not() {
        let many = |n: usize| (0..n).map(|i| tool(&format!("t{i}"))).collect::<Vec<_>>();
        assert_eq!(Listing::new(many(MAX_TOOLS)).unwrap().tools().len(), MAX_TOOLS);
        assert_eq!(Listing::new(many(MAX_TOOLS + 1)).unwrap_err(), ListingError::TooMany);
    }
}
