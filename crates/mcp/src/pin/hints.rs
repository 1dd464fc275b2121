//! What a server says about its own tool. It is believed only where it is worse than what the operator says.

use portcullis_canon::Value;
use portcullis_domain::tool::EffectClass;

use super::rule::ToolRule;

/// The hints of a tool that has some. One that is not `true` or `false` counts as the worse of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hints {
    /// The mildest class that fits.
    least: EffectClass,
    /// It says in so many words that it reaches outside.
    outside: bool,
}

const KEYS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

impl Hints {
    /// Reads annotations. Nothing when none of them is a hint.
    pub(super) fn read(annotations: Option<&Value>) -> Option<Self> {
        let annotations = annotations?;
        if annotations.as_object().is_none() {
            return Some(Self { least: EffectClass::Destructive, outside: true });
        }
        if !KEYS.iter().any(|key| annotations.get(key).is_some()) {
            return None;
        }
        // Anything but a plain `false` admits it.
        let said = |key| annotations.get(key).is_some_and(|value| value.as_bool() != Some(false));
        // What has hints and does not say that it only reads changes something: so the protocol has it.
        let reads = annotations.get("readOnlyHint").and_then(Value::as_bool) == Some(true);
        let least = match (said("destructiveHint"), reads) {
            (true, _) => EffectClass::Destructive,
            (false, true) => EffectClass::ReadOnly,
            (false, false) => EffectClass::LocalMutation,
        };
        Some(Self { least, outside: said("openWorldHint") })
    }

    /// Why a rule says less than the server admits; nothing when it says as much or more.
    pub(super) fn against(self, rule: &ToolRule) -> Option<&'static str> {
        if rule.effect < self.least {
            return Some(match self.least {
                EffectClass::Destructive => {
                    "the server says that it destroys, which the rule does not"
                }
                _ => "the server does not say that it only reads, which the rule does",
            });
        }
        (self.outside && !rule.source)
            .then_some("the server says that it reaches outside, and the rule that it brings nothing from there")
    }

    /// True when these hints ask for no more than the others.
    pub(super) fn within(self, other: Self) -> bool {
        self.least <= other.least && self.outside <= other.outside
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    const MUTES: &str = "the server does not say that it only reads, which the rule does";
    const DESTROYS: &str = "the server says that it destroys, which the rule does not";
    const OUTSIDE: &str =
        "the server says that it reaches outside, and the rule that it brings nothing from there";

    fn hints(text: &str) -> Option<Hints> {
        Hints::read(Some(&parse(text.as_bytes(), &Limits::BARE).unwrap()))
    }

    #[track_caller]
    fn check(text: &str, effect: EffectClass, source: bool, expected: Option<&str>) {
        let rule = ToolRule { source, ..ToolRule::new(effect) };
        let found = hints(text).and_then(|hints| hints.against(&rule));
        assert_eq!(found, expected, "{text} and {effect:?}");
    }

    #[test]
    fn a_hint_only_tightens() {
        use EffectClass::{Destructive, LocalMutation, ReadOnly, RemoteMutation};
        assert_eq!(Hints::read(None), None);
        assert_eq!(hints(r#"{"title":"Read"}"#), None);
        check(r#"{"readOnlyHint":true}"#, ReadOnly, true, None);
        check(r#"{"readOnlyHint":true}"#, Destructive, true, None);
        check(r#"{"readOnlyHint":false}"#, ReadOnly, true, Some(MUTES));
        check(r#"{"readOnlyHint":false}"#, LocalMutation, true, None);
        check(r#"{"readOnlyHint":false}"#, RemoteMutation, true, None);
        check(r#"{"idempotentHint":true}"#, ReadOnly, true, Some(MUTES));
        check(r#"{"destructiveHint":true}"#, RemoteMutation, true, Some(DESTROYS));
        check(r#"{"destructiveHint":true,"readOnlyHint":true}"#, ReadOnly, true, Some(DESTROYS));
        check(r#"{"destructiveHint":true}"#, Destructive, true, None);
        check(r#"{"destructiveHint":false}"#, LocalMutation, true, None);
        check(r#"{"readOnlyHint":true,"openWorldHint":true}"#, ReadOnly, false, Some(OUTSIDE));
        check(r#"{"readOnlyHint":true,"openWorldHint":true}"#, ReadOnly, true, None);
        check(r#"{"readOnlyHint":true,"openWorldHint":false}"#, ReadOnly, false, None);
    }

    #[test]
    fn what_is_no_hint_counts_as_the_worse() {
        use EffectClass::{LocalMutation, ReadOnly};
        check(r#"{"readOnlyHint":"true"}"#, ReadOnly, true, Some(MUTES));
        check(r#"{"destructiveHint":0}"#, LocalMutation, true, Some(DESTROYS));
        check(r#"{"readOnlyHint":true,"openWorldHint":null}"#, ReadOnly, false, Some(OUTSIDE));
        check("[]", LocalMutation, true, Some(DESTROYS));
        check("null", ReadOnly, true, Some(DESTROYS));
    }
}
