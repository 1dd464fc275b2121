//! Blocks as the protocol carries them to a host.

use portcullis_canon::{Object, Value};

use super::{HostBlock, HostBody, HostMessage, HostResource, HostSays};
use crate::session::Link;

/// A block of the content of a result.
pub(super) fn block(block: &HostBlock) -> Value {
    let (kind, mut object) = match block {
        HostBlock::Blob { media_type, base64 } => {
            let mut object = Object::new();
            object.insert("mimeType", media_type.as_str());
            object.insert("data", base64.as_str());
            (if media_type.starts_with("audio/") { "audio" } else { "image" }, object)
        }
        HostBlock::Resource(held) => {
            let mut object = Object::new();
            object.insert("resource", resource(held));
            ("resource", object)
        }
        HostBlock::Link(to) => ("resource_link", link(to)),
    };
    object.insert("type", kind);
    Value::Object(object)
}

/// A resource with what it holds.
pub(super) fn resource(resource: &HostResource) -> Value {
    let mut object = Object::new();
    object.insert("uri", resource.uri.as_str());
    if let Some(media_type) = &resource.media_type {
        object.insert("mimeType", media_type.as_str());
    }
    match &resource.body {
        HostBody::Text(text) => object.insert("text", text.as_str()),
        HostBody::Base64(base64) => object.insert("blob", base64.as_str()),
    };
    Value::Object(object)
}

/// A message of a prompt.
pub(super) fn message(message: &HostMessage) -> Value {
    let content = match &message.says {
        HostSays::Block(says) => block(says),
        HostSays::Text(text) => {
            let mut object = Object::new();
            object.insert("type", "text");
            object.insert("text", text.as_str());
            Value::Object(object)
        }
    };
    let mut object = Object::new();
    object.insert("role", if message.assistant { "assistant" } else { "user" });
    object.insert("content", content);
    Value::Object(object)
}

fn link(link: &Link) -> Object {
    let mut object = Object::new();
    object.insert("uri", link.uri.as_str());
    object.insert("name", link.name.as_str());
    let said = [
        ("title", &link.title),
        ("description", &link.description),
        ("mimeType", &link.media_type),
    ];
    for (member, said) in said {
        if let Some(said) = said {
            object.insert(member, said.as_str());
        }
    }
    if let Some(size) = link.size {
        object.insert("size", size);
    }
    object
}

#[cfg(test)]
mod tests {
    use rmcp::model::ContentBlock;

    use super::*;

    #[track_caller]
    fn check(given: &HostBlock, expected: &str) {
        let value = block(given);
        assert_eq!(value.to_canonical_string(), expected);
        let held: ContentBlock = portcullis_canon::from_value(&value).unwrap();
        assert_eq!(portcullis_canon::to_value(&held).unwrap(), value, "the library holds the same");
    }

    #[test]
    fn each_block_is_as_the_protocol_has_it() {
        let blob = |kind: &str| HostBlock::Blob { media_type: kind.into(), base64: "AQ==".into() };
        check(&blob("image/png"), r#"{"data":"AQ==","mimeType":"image/png","type":"image"}"#);
        check(&blob("audio/wav"), r#"{"data":"AQ==","mimeType":"audio/wav","type":"audio"}"#);
        let held = |media_type: Option<&str>, body| {
            let media_type = media_type.map(str::to_owned);
            HostBlock::Resource(HostResource { uri: "u:1".into(), media_type, body })
        };
        check(
            &held(None, HostBody::Text("hi".into())),
            r#"{"resource":{"text":"hi","uri":"u:1"},"type":"resource"}"#,
        );
        check(
            &held(Some("a/b"), HostBody::Base64("AQ==".into())),
            r#"{"resource":{"blob":"AQ==","mimeType":"a/b","uri":"u:1"},"type":"resource"}"#,
        );
        let link = Link {
            uri: "u:1".into(),
            name: "n".into(),
            title: Some("t".into()),
            description: None,
            media_type: Some("a/b".into()),
            size: Some(7),
        };
        check(
            &HostBlock::Link(link),
            r#"{"mimeType":"a/b","name":"n","size":7,"title":"t","type":"resource_link","uri":"u:1"}"#,
        );
    }
}
