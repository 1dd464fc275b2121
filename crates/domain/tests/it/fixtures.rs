//! A payload of every type and version ever written is kept as a file, and is still read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use portcullis_domain::event::Body;
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::NewEvent;
use portcullis_testkit::scenario::Scenario;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/events")
}

/// Type and version to the kept payloads.
fn kept() -> BTreeMap<(String, u32), Vec<Vec<u8>>> {
    let mut kept: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).expect("the fixtures are part of the repository") {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (kind, version) = stem.rsplit_once(".v").expect("a fixture is named TYPE.vN.jsonl");
        let lines = std::fs::read(&path).unwrap();
        let payloads = lines
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        kept.insert((kind.to_owned(), version.parse().unwrap()), payloads);
    }
    kept
}

#[test]
fn every_version_ever_written_is_read_and_written_the_same() {
    for ((kind, version), payloads) in kept() {
        assert!(!payloads.is_empty(), "{kind} v{version} has no payload");
        for payload in payloads {
            let body = Body::read(&kind, version, &payload)
                .unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!((body.name(), body.version()), (kind.as_str(), version));
            assert_eq!(
                String::from_utf8(body.payload().unwrap()).unwrap(),
                String::from_utf8(payload).unwrap(),
                "{kind} v{version}"
            );
        }
    }
}

#[test]
fn every_type_has_a_fixture_of_its_current_version() {
    let kept = kept();
    for (kind, version) in Body::TYPES {
        assert!(
            kept.contains_key(&((*kind).to_owned(), *version)),
            "{kind} v{version} has no fixture"
        );
    }
}

/// Writes fixtures that are missing; run with `PORTCULLIS_WRITE_FIXTURES=1` when a type or version is new.
#[test]
fn what_the_scenario_writes_is_what_is_kept() {
    let kept = kept();
    let mut written: BTreeMap<(String, u32), Vec<Vec<u8>>> = BTreeMap::new();
    let mut scenario = Scenario::new(1, InstanceId::from_bytes([1; 16]));
    let events = scenario.every_event().into_iter().flat_map(|append| append.events);
    // Of the second run only what the first has none of.
    let own =
        |event: &NewEvent| [scenario.run.into(), scenario.thread.into()].contains(&event.stream);
    let (first, second): (Vec<NewEvent>, Vec<NewEvent>) = events.partition(own);
    let form = |event: &NewEvent| (event.body.name(), event.body.version());
    let forms: BTreeSet<_> = first.iter().map(form).collect();
    let more = second.iter().filter(|event| !forms.contains(&form(event)));
    for event in first.iter().chain(more) {
        let key = (event.body.name().to_owned(), event.body.version());
        written.entry(key).or_default().push(event.body.payload().unwrap());
    }
    assert!(!written.is_empty());
    for ((kind, version), payloads) in written {
        let path = folder().join(format!("{kind}.v{version}.jsonl"));
        if !path.exists() && std::env::var_os("PORTCULLIS_WRITE_FIXTURES").is_some() {
            let mut lines = payloads.join(&b'\n');
            lines.push(b'\n');
            std::fs::write(&path, lines).unwrap();
        } else {
            let of_type = kept
                .get(&(kind.clone(), version))
                .unwrap_or_else(|| panic!("{kind} v{version} is not kept"));
            for payload in payloads {
                assert!(
                    of_type.contains(&payload),
                    "a payload of {kind} v{version} changed its form"
                );
            }
        }
    }
}

#[test]
fn unknown_types_versions_and_fields_are_refused() {
    assert!(Body::read("run.forgotten", 1, b"{}").is_err());
    assert!(Body::read("lease.released", 2, br#"{"epoch":3}"#).is_err());
    assert!(Body::read("lease.released", 1, br#"{"epoch":3,"more":1}"#).is_err());
    assert!(Body::read("lease.released", 1, br#"{"epoch":-3}"#).is_err());
    assert!(Body::read("lease.released", 1, br#"{"epoch":3}"#).is_ok());
}
