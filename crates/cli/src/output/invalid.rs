//! The place and the rule that a refused proposal broke, as its observation holds them.

use portcullis_canon::{Limits, Value, parse};

use super::text;

/// The most bytes of a place, or of a rule.
const MAX_PART: usize = 100;

/// `at /path: type`, from the observation's content; nothing where it holds no place.
pub(crate) fn place(content: &[u8]) -> Option<String> {
    let value = parse(content, &Limits::ENVELOPE).ok()?;
    let part = |key: &str| {
        let words = value.get(key).and_then(Value::as_str)?;
        Some(text::one_line(words, MAX_PART))
    };
    let (path, rule) = (part("path")?, part("rule")?);
    let path = if path.is_empty() { "the top" } else { path.as_str() };
    Some(format!("at {path}: {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_and_rule_are_named_safely() {
        let told = |content: &str| place(content.as_bytes());
        let content = r#"{"path":"/a","refusal":"arguments_invalid","rule":"type"}"#;
        assert_eq!(told(content).as_deref(), Some("at /a: type"));
        assert_eq!(told(r#"{"path":"","rule":"r"}"#).as_deref(), Some("at the top: r"));
        assert_eq!(told(r#"{"path":"\u001b[2J","rule":"r"}"#).as_deref(), Some(r"at \x1B[2J: r"));
        assert_eq!(told(r#"{"refusal":"tool_unknown"}"#), None);
        assert_eq!(told("no JSON"), None);
    }
}
