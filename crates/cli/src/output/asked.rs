//! What a proposal asks for, in a few words, for the terminal.

use portcullis_canon::{Limits, Object, Value, parse};

use super::text;

/// The most bytes that are shown of arguments.
const MAX_ARGUMENTS: usize = 160;

/// The most bytes that are shown of a tool's name.
const MAX_NAME: usize = 80;

/// `asks for TOOL {…}`, or for several of them; nothing where a proposal asks for no call, or cannot be read.
pub(crate) fn asked(proposal: &[u8]) -> Option<String> {
    let value = parse(proposal, &Limits::ENVELOPE.with_max_bytes(proposal.len())).ok()?;
    let object = value.as_object()?;
    if let Some(calls) = object.get("calls").and_then(Value::as_array) {
        let names: Vec<String> =
            calls.iter().filter_map(Value::as_object).filter_map(tool).collect();
        let what = text::one_line(&names.join(", "), MAX_ARGUMENTS);
        return Some(format!("asks for {} calls: {what}", names.len()));
    }
    let arguments = object.get("arguments").map(Value::to_canonical_string).unwrap_or_default();
    Some(format!("asks for {} {}", tool(object)?, text::one_line(&arguments, MAX_ARGUMENTS)))
}

fn tool(call: &Object) -> Option<String> {
    Some(text::one_line(call.get("tool")?.as_str()?, MAX_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(proposal: &str, expected: Option<&str>) {
        assert_eq!(asked(proposal.as_bytes()).as_deref(), expected, "{proposal}");
    }

    #[test]
    fn calls_are_told_and_nothing_else() {
        check(
            r#"{"kind":"tool_call","tool":"files.read","arguments":{"path":"a"}}"#,
            Some(r#"asks for files.read {"path":"a"}"#),
        );
        let two = r#"{"kind":"tool_calls","calls":[{"tool":"a","arguments":{}},{"tool":"b"}]}"#;
        check(two, Some("asks for 2 calls: a, b"));
        check(r#"{"kind":"complete","result":1}"#, None);
        check("no json", None);
        check(
            "{\"tool\":\"\u{202e}x\",\"arguments\":\"\\u001b[2J\"}",
            Some(r#"asks for \u{202E}x "\u001b[2J""#),
        );
    }
}
