//! What of a result goes to the host as blocks of its own: images, sound, resources and links. What the model reads in the
//! text has their names, sizes and digests in place of what they hold.

use portcullis_canon::{Object, Value};
use portcullis_mcp::{
    HostBlock, HostBody, HostCompletion, HostMessage, HostResource, HostSays, Link,
};

/// The members of a result that name blobs, resources and links.
const BLOBS: &str = "blobs";
const RESOURCES: &str = "resources";
const LINKS: &str = "links";

/// What is held, in the entries of those.
const BASE64: &str = "base64";
const TEXT: &str = "text";

/// A result without what goes to the host by itself, and that. What is no result with such members stays as it is.
pub(super) fn apart(value: &Value) -> (Value, Vec<HostBlock>) {
    let (mut rest, mut blocks) = (value.clone(), Vec::new());
    let taken: [(&str, Take, &[&str]); 3] =
        [(BLOBS, blob, &[BASE64]), (RESOURCES, held, &[BASE64, TEXT]), (LINKS, link, &[])];
    for (member, take, loads) in taken {
        for entry in entries(&mut rest, member) {
            if let Some(block) = take(entry) {
                loads.iter().for_each(|load| drop(entry.remove(load)));
                blocks.push(block);
            }
        }
    }
    (rest, blocks)
}

/// A result for whoever gets its text alone: bytes are left out, for which their sizes and digests stand.
pub(super) fn in_words(value: &Value) -> Value {
    let mut rest = value.clone();
    for member in [BLOBS, RESOURCES] {
        for entry in entries(&mut rest, member) {
            if is_named(entry) {
                entry.remove(BASE64);
            }
        }
    }
    rest
}

/// The resources of a result, in order. What one holds that was not kept is said in its text.
pub(super) fn resources(value: &Value) -> Vec<HostResource> {
    let mut value = value.clone();
    entries(&mut value, RESOURCES).filter_map(|entry| resource(entry, true)).collect()
}

/// The messages of a prompt, in order, and a word in place of those that were not kept.
pub(super) fn messages(value: &Value) -> Vec<HostMessage> {
    let mut value = value.clone();
    let mut messages: Vec<HostMessage> =
        entries(&mut value, "messages").map(|m| message(m)).collect();
    if let Some(left_out) = value.get("messages_left_out").and_then(Value::as_u64) {
        let says = HostSays::Text(format!("[{left_out} messages were left out]"));
        messages.push(HostMessage { assistant: false, says });
    }
    messages
}

/// One message has one block: what is not text, where it was kept.
fn message(entry: &Object) -> HostMessage {
    let (_, mut blocks) = apart(&Value::Object(entry.clone()));
    let said = text(entry, TEXT).unwrap_or_default();
    let says = match blocks.pop() {
        Some(block) => HostSays::Block(block),
        None if said.is_empty() && entry.len() > 1 => {
            HostSays::Text("[content was left out: more than is kept of a result]".to_owned())
        }
        None => HostSays::Text(said.to_owned()),
    };
    HostMessage { assistant: text(entry, "role") == Some("assistant"), says }
}

/// How a value may go on.
pub(super) fn completion(value: &Value) -> HostCompletion {
    let values = value.get("values").and_then(Value::as_array).unwrap_or_default();
    HostCompletion {
        values: values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        total: value.get("total").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
        has_more: value.get("has_more").and_then(Value::as_bool),
    }
}

type Take = fn(&Object) -> Option<HostBlock>;

fn entries<'a>(value: &'a mut Value, member: &str) -> impl Iterator<Item = &'a mut Object> {
    let entries = match value {
        Value::Object(object) => object.get_mut(member),
        _ => None,
    };
    let entries = match entries {
        Some(Value::Array(entries)) => entries.as_mut_slice(),
        _ => &mut [],
    };
    entries.iter_mut().filter_map(|entry| match entry {
        Value::Object(entry) => Some(entry),
        _ => None,
    })
}

/// Whether an entry has the name of what it holds, without which nothing is taken out of it.
fn is_named(entry: &Object) -> bool {
    text(entry, "sha256").is_some()
}

fn text<'a>(entry: &'a Object, member: &str) -> Option<&'a str> {
    entry.get(member).and_then(Value::as_str)
}

/// What a host can show or play. Anything else has no block in the protocol.
fn blob(entry: &Object) -> Option<HostBlock> {
    let (media_type, base64) = (text(entry, "media_type")?, text(entry, BASE64)?);
    let shown = media_type.starts_with("image/") || media_type.starts_with("audio/");
    let block = || HostBlock::Blob { media_type: media_type.to_owned(), base64: base64.to_owned() };
    (shown && is_named(entry)).then(block)
}

/// A resource that is there, be it with a beginning of its text alone.
fn held(entry: &Object) -> Option<HostBlock> {
    resource(entry, false).map(HostBlock::Resource)
}

fn resource(entry: &Object, missing: bool) -> Option<HostResource> {
    let uri = text(entry, "uri").filter(|_| is_named(entry))?;
    let body = match (text(entry, TEXT), text(entry, BASE64)) {
        (Some(text), _) => HostBody::Text(text.to_owned()),
        (None, Some(base64)) => HostBody::Base64(base64.to_owned()),
        (None, None) if missing => {
            let bytes = entry.get("bytes").and_then(Value::as_u64)?;
            HostBody::Text(format!("[{bytes} bytes were left out: more than is kept of a result]"))
        }
        (None, None) => return None,
    };
    let media_type = text(entry, "media_type").map(str::to_owned);
    Some(HostResource { uri: uri.to_owned(), media_type, body })
}

fn link(entry: &Object) -> Option<HostBlock> {
    let said = |member| text(entry, member).map(str::to_owned);
    Some(HostBlock::Link(Link {
        uri: said("uri")?,
        name: said("name")?,
        title: said("title"),
        description: said("description"),
        media_type: said("media_type"),
        size: entry.get("size").and_then(Value::as_u64),
    }))
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::BARE).unwrap()
    }

    #[track_caller]
    fn check(text: &str, rest: &str, blocks: &[HostBlock]) {
        let (kept, found) = apart(&value(text));
        assert_eq!(kept.to_canonical_string(), rest);
        assert_eq!(found, blocks);
    }

    fn sound(media_type: &str, base64: &str) -> HostBlock {
        HostBlock::Blob { media_type: media_type.to_owned(), base64: base64.to_owned() }
    }

    fn of_uri(media_type: Option<&str>, body: HostBody) -> HostResource {
        HostResource { uri: "u:1".to_owned(), media_type: media_type.map(str::to_owned), body }
    }

    #[test]
    fn images_and_sound_leave_their_names_behind() {
        check(
            r#"{"blobs":[{"base64":"AQ==","bytes":1,"media_type":"image/png","sha256":"a"},{"bytes":9,"media_type":"image/png","sha256":"b"},{"base64":"Ag==","bytes":1,"media_type":"audio/wav","sha256":"c"}],"text":"two"}"#,
            r#"{"blobs":[{"bytes":1,"media_type":"image/png","sha256":"a"},{"bytes":9,"media_type":"image/png","sha256":"b"},{"bytes":1,"media_type":"audio/wav","sha256":"c"}],"text":"two"}"#,
            &[sound("image/png", "AQ=="), sound("audio/wav", "Ag==")],
        );
    }

    #[test]
    fn resources_and_links_are_blocks_of_their_own() {
        let text = r#"{"links":[{"media_type":"a/b","name":"n","size":7,"uri":"u:2"}],"resources":[{"bytes":2,"sha256":"a","text":"hi","uri":"u:1"},{"base64":"AQ==","bytes":1,"media_type":"a/b","sha256":"b","uri":"u:1"},{"bytes":9,"sha256":"c","uri":"u:1"}]}"#;
        let rest = r#"{"links":[{"media_type":"a/b","name":"n","size":7,"uri":"u:2"}],"resources":[{"bytes":2,"sha256":"a","uri":"u:1"},{"bytes":1,"media_type":"a/b","sha256":"b","uri":"u:1"},{"bytes":9,"sha256":"c","uri":"u:1"}]}"#;
        let words = of_uri(None, HostBody::Text("hi".to_owned()));
        let bytes = of_uri(Some("a/b"), HostBody::Base64("AQ==".to_owned()));
        let link = Link {
            uri: "u:2".to_owned(),
            name: "n".to_owned(),
            title: None,
            description: None,
            media_type: Some("a/b".to_owned()),
            size: Some(7),
        };
        let blocks = [words.clone(), bytes.clone()].map(HostBlock::Resource);
        check(text, rest, &[blocks.to_vec(), vec![HostBlock::Link(link)]].concat());
        // Whoever gets the text alone still reads what is text.
        assert_eq!(in_words(&value(text)), value(&text.replace(r#""base64":"AQ==","#, "")));
        // Whoever reads a resource is told what is missing of it.
        let missing = "[9 bytes were left out: more than is kept of a result]".to_owned();
        assert_eq!(resources(&value(text)), [words, bytes, of_uri(None, HostBody::Text(missing))]);
    }

    #[test]
    fn messages_are_told_apart_and_what_is_missing_is_said() {
        let told = messages(&value(
            r#"{"messages":[{"role":"user","text":"hi"},{"role":"assistant","resources":[{"bytes":2,"sha256":"a","text":"x","uri":"u:1"}]},{"resources":[{"bytes":9,"sha256":"a","uri":"u:1"}],"role":"user"},{"role":"user"}],"messages_left_out":3}"#,
        ));
        let text = |assistant, text: &str| HostMessage {
            assistant,
            says: HostSays::Text(text.to_owned()),
        };
        let held = HostBlock::Resource(of_uri(None, HostBody::Text("x".to_owned())));
        let expected = [
            text(false, "hi"),
            HostMessage { assistant: true, says: HostSays::Block(held) },
            text(false, "[content was left out: more than is kept of a result]"),
            text(false, ""),
            text(false, "[3 messages were left out]"),
        ];
        assert_eq!(told, expected);
        assert_eq!(messages(&value("7")), []);
    }

    #[test]
    fn whatever_else_stays_as_it_is() {
        for text in [
            r#"{"blobs":[{"base64":"AQ==","bytes":1,"media_type":"application/pdf","sha256":"a"}]}"#,
            r#"{"blobs":[{"base64":"AQ==","media_type":"image/png"},7],"text":"x"}"#,
            r#"{"blobs":{"base64":"AQ=="}}"#,
            r#"{"base64":"AQ==","media_type":"image/png","sha256":"a"}"#,
            r#"{"resources":[{"text":"x","uri":"u:1"},{"sha256":"a","text":"x"}]}"#,
            r#"{"links":["u:1",{"name":"n"}]}"#,
            r#"[{"blobs":[]}]"#,
            "7",
        ] {
            check(text, text, &[]);
        }
    }
}
