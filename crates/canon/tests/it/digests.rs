//! Digests: pinned values, separation of kinds and parts, and their text.

use crate::vectors::{rows, text};
use portcullis_canon::{Digest, DigestError, Kind, Limits, parse};
use std::collections::HashSet;

fn kind(name: &str) -> Kind {
    *Kind::ALL.iter().find(|kind| kind.name() == name).unwrap_or_else(|| panic!("{name}"))
}

/// Recomputed by another implementation of SHA-256; a change here breaks every stored record.
#[test]
fn pinned() {
    let mut seen = HashSet::new();
    for row in rows("digests.jsonl", 108) {
        let (kind, want) = (kind(text(&row, "kind")), text(&row, "digest"));
        let digest = match row.get("parts") {
            Some(parts) => {
                let parts: Vec<&[u8]> = parts
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|p| p.as_str().unwrap().as_bytes())
                    .collect();
                Digest::of_parts(kind, &parts)
            }
            None => {
                let bytes = text(&row, "bytes").as_bytes();
                let value = parse(bytes, &Limits::BARE).unwrap();
                assert_eq!(Digest::of_value(kind, &value), Digest::of(kind, bytes));
                Digest::of(kind, bytes)
            }
        };
        assert_eq!(digest.to_string(), want);
        assert!(seen.insert(digest), "{want} stands for two things");
    }
    assert_eq!(seen.len(), Kind::ALL.len() * 4, "a kind without pinned digests");
}

#[test]
fn no_byte_moves_between_parts() {
    let digest = |parts: &[&[u8]]| Digest::of_parts(Kind::Event, parts);
    let all = [
        digest(&[]),
        digest(&[b""]),
        digest(&[b"", b""]),
        digest(&[b"ab", b"c"]),
        digest(&[b"a", b"bc"]),
        digest(&[b"abc"]),
        digest(&[b"abc", b""]),
        digest(&[b"", b"abc"]),
    ];
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
}

#[test]
fn text_and_back() {
    let digest = Digest::of(Kind::File, b"x");
    assert_eq!(digest.to_string().parse(), Ok(digest));
    assert_eq!(digest.to_string(), format!("sha256:{}", digest.hex()));
    assert_eq!(format!("{digest:?}"), digest.to_string());
    assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    assert_eq!(Digest::ZERO.to_string(), format!("sha256:{}", "0".repeat(64)));
    let hex = digest.hex();
    for wrong in [
        String::new(),
        hex.clone(),
        format!("sha256:{}", hex.to_uppercase()),
        format!("SHA256:{hex}"),
        format!("sha256:{hex}0"),
        format!("sha256:{}", &hex[1..]),
        format!("sha256: {}", &hex[1..]),
        format!("sha256:{hex}\n"),
        format!("sha256:{}g", &hex[1..]),
        format!("sha512:{hex}"),
        format!("sha256:{}é", &hex[2..]),
    ] {
        assert_eq!(wrong.parse::<Digest>(), Err(DigestError), "{wrong}");
    }
}

#[test]
fn as_a_wire_type() {
    let digest = Digest::of(Kind::Call, b"{}");
    let bytes = portcullis_canon::to_vec(&vec![digest]).unwrap();
    assert_eq!(bytes, format!("[\"{digest}\"]").into_bytes());
    assert_eq!(
        portcullis_canon::from_slice::<Vec<Digest>>(&bytes, &Limits::BARE),
        Ok(vec![digest])
    );
    for wrong in ["[\"\"]", "[1]", "[[0,0]]", "[null]"] {
        assert!(
            portcullis_canon::from_slice::<Vec<Digest>>(wrong.as_bytes(), &Limits::BARE).is_err()
        );
    }
}
