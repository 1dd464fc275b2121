//! Images and sound in a result: they go to the host as blocks of their own, and what the model reads has their name, size
//! and digest in place of their bytes.

use portcullis_canon::{Object, Value};
use portcullis_mcp::HostBlob;

/// The member of a result that names its blobs, and their members.
const BLOBS: &str = "blobs";
const MEDIA_TYPE: &str = "media_type";
const BASE64: &str = "base64";
const SHA256: &str = "sha256";

/// A result without the bytes that go to the host by themselves, and those. What is no result with blobs stays as it is.
pub(super) fn apart(value: &Value) -> (Value, Vec<HostBlob>) {
    let mut rest = value.clone();
    let mut blobs = Vec::new();
    if let Value::Object(object) = &mut rest
        && let Some(Value::Array(entries)) = object.get_mut(BLOBS)
    {
        for entry in entries {
            if let Value::Object(entry) = entry
                && let Some(blob) = blob(entry)
            {
                entry.remove(BASE64);
                blobs.push(blob);
            }
        }
    }
    (rest, blobs)
}

/// What a host can show of an entry. Anything else stays where it is: a block for it would need a name that it does not have.
fn blob(entry: &Object) -> Option<HostBlob> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let (media_type, base64) = (text(MEDIA_TYPE)?, text(BASE64)?);
    let shown = media_type.starts_with("image/") || media_type.starts_with("audio/");
    text(SHA256).filter(|_| shown)?;
    Some(HostBlob { media_type: media_type.to_owned(), base64: base64.to_owned() })
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    #[track_caller]
    fn check(text: &str, rest: &str, blobs: &[(&str, &str)]) {
        let value = parse(text.as_bytes(), &Limits::BARE).unwrap();
        let (kept, found) = apart(&value);
        assert_eq!(kept.to_canonical_string(), rest);
        let found: Vec<_> =
            found.iter().map(|blob| (blob.media_type.as_str(), blob.base64.as_str())).collect();
        assert_eq!(found, blobs);
    }

    #[test]
    fn images_and_sound_leave_their_names_behind() {
        check(
            r#"{"blobs":[{"base64":"AQ==","bytes":1,"media_type":"image/png","sha256":"a"},{"bytes":9,"media_type":"image/png","sha256":"b"},{"base64":"Ag==","bytes":1,"media_type":"audio/wav","sha256":"c"}],"text":"two"}"#,
            r#"{"blobs":[{"bytes":1,"media_type":"image/png","sha256":"a"},{"bytes":9,"media_type":"image/png","sha256":"b"},{"bytes":1,"media_type":"audio/wav","sha256":"c"}],"text":"two"}"#,
            &[("image/png", "AQ=="), ("audio/wav", "Ag==")],
        );
    }

    #[test]
    fn whatever_else_stays_as_it_is() {
        for text in [
            r#"{"blobs":[{"base64":"AQ==","bytes":1,"media_type":"application/pdf","sha256":"a"}]}"#,
            r#"{"blobs":[{"base64":"AQ==","media_type":"image/png"},7],"text":"x"}"#,
            r#"{"blobs":{"base64":"AQ=="}}"#,
            r#"{"base64":"AQ==","media_type":"image/png","sha256":"a"}"#,
            r#"[{"blobs":[]}]"#,
            "7",
        ] {
            check(text, text, &[]);
        }
    }
}
