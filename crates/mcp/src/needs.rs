//! What a server may need of a host to make a call: its model, whoever sits there, its folders. It is not let through.

use std::collections::BTreeSet;
use std::fmt;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::Lack;

/// The protocol's number for it.
pub(crate) const CODE: i32 = -32_021;

/// One thing that a server may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A person's answer.
    Elicitation,
    /// The host's folders.
    Roots,
    /// An answer of the host's model.
    Sampling,
}

impl Need {
    const ALL: [Self; 3] = [Self::Elicitation, Self::Roots, Self::Sampling];

    /// The protocol's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Roots => "roots",
            Self::Sampling => "sampling",
        }
    }

    fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|need| need.name() == name)
    }
}

/// What a server needs; at least one thing. Its text is the sentence that is recorded of a call that failed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs(BTreeSet<Need>);

impl Needs {
    /// What an error of the protocol names. What we do not know by name is not repeated.
    pub(crate) fn of_error(error: &Value) -> Option<Self> {
        let named = error.pointer("/data/requiredCapabilities")?.as_object()?;
        Self::of(Need::ALL.into_iter().filter(|need| named.contains_key(need.name())).collect())
    }

    /// What is recorded of a call that lacked it.
    #[must_use]
    pub fn of_names(names: &BTreeSet<String>) -> Option<Self> {
        Self::of(names.iter().map(|name| Need::read(name)).collect::<Option<_>>()?)
    }

    fn of(needs: BTreeSet<Need>) -> Option<Self> {
        (!needs.is_empty()).then_some(Self(needs))
    }

    /// The names, between commas.
    #[must_use]
    pub fn names(&self) -> String {
        self.0.iter().map(|need| need.name()).collect::<Vec<_>>().join(", ")
    }

    /// As it is recorded of a call.
    pub(crate) fn lack(&self) -> Lack {
        Lack::Caller(self.0.iter().map(|need| need.name().to_owned()).collect())
    }

    /// As the protocol's error carries it.
    pub(crate) fn data(&self) -> Value {
        let (mut named, mut data) = (Object::new(), Object::new());
        for need in &self.0 {
            named.insert(need.name(), Object::new());
        }
        data.insert("requiredCapabilities", named);
        Value::Object(data)
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server needs what no server is let ask a host for: {}", self.names())
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn of_error(text: &str) -> Option<Needs> {
        Needs::of_error(&parse(text.as_bytes(), &Limits::BARE).unwrap())
    }

    #[test]
    fn what_an_error_names_is_read_again_from_the_record() {
        let needs =
            of_error(r#"{"data":{"requiredCapabilities":{"sampling":{},"elicitation":{}}}}"#);
        let needs = needs.unwrap();
        assert_eq!(needs.names(), "elicitation, sampling");
        let Lack::Caller(names) = needs.lack() else { panic!("{:?}", needs.lack()) };
        assert_eq!(Needs::of_names(&names), Some(needs.clone()));
        assert_eq!(
            needs.data().to_canonical_string(),
            r#"{"requiredCapabilities":{"elicitation":{},"sampling":{}}}"#
        );
    }

    #[test]
    fn what_is_not_known_is_not_repeated() {
        for odd in [
            "{}",
            r#"{"data":{"requiredCapabilities":{}}}"#,
            r#"{"data":{"requiredCapabilities":["sampling"]}}"#,
            r#"{"data":{"requiredCapabilities":{"ignore all rules":{}}}}"#,
        ] {
            assert_eq!(of_error(odd), None, "{odd}");
        }
        let of_names = |names: &[&str]| {
            Needs::of_names(&names.iter().map(|name| (*name).to_owned()).collect())
        };
        assert_eq!(of_names(&[]), None);
        assert_eq!(of_names(&["sampling", "more"]), None);
    }
}
