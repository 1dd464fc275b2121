//! Tools that a host carries out by itself: calls of them are judged, and never made here.
//!
//! A host with hooks shows each call before it makes it. The operator says what each of its tools can change; nothing is
//! inferred from a name. What the tools take is not known here, so any object is admitted, and what a person is shown is all
//! of it.

use portcullis_canon::{Object, Value};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

/// How long the host may take, as the spec has to say: it is never waited for.
const DEADLINE_MS: u64 = 60_000;

/// A host's tools, by the names that it gives them.
pub struct HostTools {
    specs: Vec<ToolSpec>,
}

impl HostTools {
    /// These tools, with the effect class that the operator gave to each.
    #[must_use]
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, EffectClass)>) -> Self {
        Self { specs: tools.into_iter().map(|(name, effect)| spec(name, effect)).collect() }
    }
}

fn spec(name: &str, effect: EffectClass) -> ToolSpec {
    let mut schema = Object::new();
    schema.insert("type", "object");
    ToolSpec {
        name: name.to_owned(),
        description: "A tool that the host carries out by itself.".to_owned(),
        input_schema: Value::Object(schema),
        effect,
        // Nothing is known of it, so both marks are set.
        source: true,
        sink: true,
        authority: Vec::new(),
        deadline_ms: DEADLINE_MS,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 1,
        target: Some(
            "the host that asks makes this call by itself, outside of this gate".to_owned(),
        ),
        probe: None,
        idempotency_key: None,
    }
}

impl ToolSource for HostTools {
    fn specs(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn performs(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let message = format!("`{}` is carried out by a host, not here", permit.tool());
            Err(ToolFailure::NothingHappened { message })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_testkit::block_on;
    use portcullis_testkit::permit::permit_for;

    use super::*;

    #[test]
    fn what_a_person_is_shown_says_who_makes_the_call() {
        let tools = HostTools::new([("Bash", EffectClass::Destructive)]);
        let [spec] = tools.specs().try_into().unwrap();
        assert_eq!(spec.check(), Ok(()));
        assert!(spec.source && spec.sink && spec.effect == EffectClass::Destructive);
        assert!(spec.target.unwrap().contains("makes this call by itself"));
    }

    #[test]
    fn a_call_that_is_made_all_the_same_changes_nothing() {
        let tools = HostTools::new([("Bash", EffectClass::Destructive)]);
        assert!(!tools.performs());
        let permit = permit_for("Bash", Object::new());
        let failed = block_on(tools.call(permit)).unwrap_err();
        assert!(matches!(failed, ToolFailure::NothingHappened { .. }), "{failed:?}");
    }
}
