//! Any bytes at all: a reply is read or it is a named fault, and how a stream is cut changes nothing.

use portcullis_domain::ports::{ModelFailure, ModelReply, Usage};
use portcullis_models::Dialect;
use proptest::prelude::*;

use crate::shapes::{Spec, pieces, whole};

fn specs() -> Vec<Spec> {
    let uses = vec![("call_a", "files__read", r#"{"path":"a"}"#), ("call_b", "t", "{}")];
    vec![
        Spec::default(),
        Spec { uses: uses.clone(), stop: "tools", ..Spec::default() },
        Spec { uses, stop: "length", usage: None, ..Spec::default() },
    ]
}

/// What a reply means, without the bytes that it came in.
fn meaning(read: Result<ModelReply, ModelFailure>) -> String {
    match read {
        Ok(reply) => {
            let uses: Vec<String> = reply
                .uses
                .iter()
                .map(|u| format!("{} {} {:?}", u.id, u.name, u.arguments.to_canonical()))
                .collect();
            format!("{:?} {:?} {uses:?} {:?}", reply.stop, reply.text, reply.usage)
        }
        Err(failure) => failure.to_string(),
    }
}

fn assembled(dialect: Dialect, parts: &[&[u8]]) -> Result<ModelReply, ModelFailure> {
    let mut assembler = dialect.assembler();
    for part in parts {
        assembler.push(part, None)?;
    }
    assembler.finish()
}

/// Nothing that is wrong asks for anything or has counts that cannot be.
fn sound(read: &Result<ModelReply, ModelFailure>) -> bool {
    match read {
        Ok(reply) => {
            let possible = reply.usage.is_none_or(|usage: Usage| usage.total() <= 5_000_000_000);
            possible && (reply.uses.is_empty() || !reply.stop.is_cut())
        }
        Err(failure) => failure.message.len() <= 512 && !failure.message.contains(char::is_control),
    }
}

#[test]
fn a_reply_means_the_same_whole_and_in_pieces() {
    for dialect in Dialect::ALL {
        for spec in specs() {
            let streamed = assembled(dialect, &[pieces(dialect, &spec).as_bytes()]);
            assert_eq!(meaning(streamed), meaning(dialect.read(whole(dialect, &spec).as_bytes())));
        }
    }
}

proptest! {
    #[test]
    fn how_a_stream_is_cut_changes_nothing(which in 0_usize..3, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        for dialect in Dialect::ALL {
            let body = pieces(dialect, &specs()[which]);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            cuts.sort_unstable();
            let mut parts: Vec<&[u8]> = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([body.len()]) {
                parts.push(&body.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(
                meaning(assembled(dialect, &parts)),
                meaning(assembled(dialect, &[body.as_bytes()]))
            );
        }
    }

    #[test]
    fn any_bytes_are_read_or_named(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for dialect in Dialect::ALL {
            prop_assert!(sound(&dialect.read(&bytes)));
            prop_assert!(sound(&assembled(dialect, &[&bytes])));
        }
    }

    #[test]
    fn a_reply_with_bytes_changed_is_read_or_named(
        which in 0_usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[\\x00-\\x7f]{0,3}"), 1..4),
    ) {
        for dialect in Dialect::ALL {
            for body in [whole(dialect, &specs()[which]), pieces(dialect, &specs()[which])] {
                let mut changed = body.clone().into_bytes();
                for (at, with) in &changes {
                    let at = at.index(changed.len());
                    changed.splice(at..=at, with.bytes());
                    if changed.is_empty() {
                        changed.push(b' ');
                    }
                }
                prop_assert!(sound(&dialect.read(&changed)));
                prop_assert!(sound(&assembled(dialect, &[&changed])));
            }
        }
    }

    /// A stream that is cut anywhere before its end asks for nothing.
    #[test]
    fn a_stream_that_is_cut_off_is_never_a_reply(cut in any::<prop::sample::Index>()) {
        for dialect in Dialect::ALL {
            let body = pieces(dialect, &specs()[1]);
            let end = match dialect {
                Dialect::OpenAi => body.find("\"finish_reason\":\"tool_calls\"").unwrap(),
                Dialect::Anthropic => body.find("data: {\"type\":\"message_stop\"").unwrap() + 8,
                Dialect::Ollama => body.len() - 2,
            };
            let at = cut.index(end);
            let read = assembled(dialect, &[&body.as_bytes()[..at]]);
            prop_assert!(read.is_err(), "{:?} {}", dialect, at);
        }
    }
}
