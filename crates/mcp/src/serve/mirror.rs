//! Arguments that a header of the request repeats (`x-mcp-header` in a schema), so that what is on the way can route by them.

use portcullis_canon::{Object, Value};

/// The mark of an argument that a header repeats.
const MARK: &str = "x-mcp-header";

/// The arguments that headers repeat, and nothing else of them; `None` where the schema marks none.
pub(super) fn mirrored(schema: &Value, arguments: &Value) -> Option<Object> {
    let properties = schema.get("properties")?.as_object()?;
    let (mut kept, mut any) = (Object::new(), false);
    for (name, schema) in properties.iter() {
        let argument = arguments.get(name);
        if schema.get(MARK).is_some() {
            any = true;
            if let Some(argument) = argument {
                kept.insert(name, argument.clone());
            }
        } else if let Some(within) = mirrored(schema, argument.unwrap_or(&Value::Null)) {
            any = true;
            kept.insert(name, within);
        }
    }
    any.then_some(kept)
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    #[test]
    fn only_what_a_header_repeats_is_kept() {
        let read = |text: &str| parse(text.as_bytes(), &Limits::BARE).unwrap();
        let schema = read(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string"},
            "c":{"properties":{"d":{"type":"string","x-mcp-header":"D"},"e":{}}}}}"#,
        );
        let check = |arguments: &str, expected: &str| {
            let kept = mirrored(&schema, &read(arguments)).unwrap();
            assert_eq!(Value::Object(kept).to_canonical_string(), expected, "{arguments}");
        };
        check(r#"{"a":"x","b":"y","c":{"d":"z","e":1}}"#, r#"{"a":"x","c":{"d":"z"}}"#);
        check(r#"{"a":null,"c":7}"#, r#"{"a":null,"c":{}}"#);
        check("{}", r#"{"c":{}}"#);
        for plain in [r#"{"properties":{"a":{"type":"string"}}}"#, r#"{"properties":7}"#, "7"] {
            assert_eq!(mirrored(&read(plain), &read(r#"{"a":"x"}"#)), None, "{plain}");
        }
    }
}
