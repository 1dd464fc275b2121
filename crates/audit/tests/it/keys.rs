//! Key files and the ring of reviewers.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use portcullis_audit::FileError;
use portcullis_audit::keys::{
    KeyEntry, KeyFileError, Keyring, KeyringError, PublicFileError, PublicKey, SigningKey,
};
use portcullis_canon::{Digest, Kind};
use portcullis_domain::approval::{Answer, Signature, Statement};
use portcullis_domain::ports::{Entropy, KeyRefusal, ReviewerKeys};
use portcullis_domain::time::Timestamp;

/// A different key each time, and the same ones in every run.
struct Counter(AtomicU8);

impl Counter {
    fn new() -> Self {
        Self(AtomicU8::new(1))
    }
}

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn statement(key: &SigningKey, at: i64) -> Statement {
    Statement {
        covers: vec![Digest::of(Kind::Question, b"q")],
        answer: Answer::Approve,
        key: key.id(),
        at: Timestamp::from_micros(at),
        note: None,
        result: None,
    }
}

#[test]
fn a_created_key_is_private_and_opens_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a/keys");
    let key = SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("ann.key")), 0o600);
    let again = SigningKey::open(&folder.join("ann.key")).unwrap();
    assert_eq!(again.public(), key.public());
    let public = fs::read_to_string(folder.join("ann.pub")).unwrap();
    assert_eq!(public, format!("{}\n", key.public()));
    assert_eq!(format!("{key:?}"), format!("SigningKey({})", key.id()));
    let entries: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(entries.len(), 2, "no temporary file stays behind");
}

#[test]
fn a_key_is_never_overwritten_and_a_lost_public_half_comes_back() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    let entropy = Counter::new();
    let key = SigningKey::create(&folder, "ann", &entropy).unwrap();
    assert!(matches!(
        SigningKey::create(&folder, "ann", &entropy),
        Err(KeyFileError::File(FileError::Exists { .. }))
    ));
    fs::remove_file(folder.join("ann.pub")).unwrap();
    let again = SigningKey::open_or_create(&folder, "ann", &entropy).unwrap();
    assert_eq!(again.id(), key.id());
    assert_eq!(fs::read_to_string(folder.join("ann.pub")).unwrap(), format!("{}\n", key.public()));
    let other = SigningKey::generate(&entropy);
    fs::write(folder.join("ann.pub"), format!("{}\n", other.public())).unwrap();
    assert!(matches!(
        SigningKey::open_or_create(&folder, "ann", &entropy),
        Err(KeyFileError::OtherPublic { .. })
    ));
}

#[test]
fn a_key_that_others_can_get_at_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    let file = folder.join("ann.key");
    for open in [0o640, 0o604, 0o620, 0o601] {
        chmod(&file, open);
        assert!(
            matches!(SigningKey::open(&file), Err(KeyFileError::File(FileError::Mode { .. }))),
            "{open:o}"
        );
    }
    chmod(&file, 0o400);
    assert!(SigningKey::open(&file).is_ok(), "control");
    for open in [0o770, 0o707, 0o722] {
        chmod(&folder, open);
        assert!(
            matches!(SigningKey::open(&file), Err(KeyFileError::File(FileError::Mode { .. }))),
            "{open:o}"
        );
    }
    // Others may look at the names in the folder of a key that is opened, not where keys are made.
    chmod(&folder, 0o755);
    assert!(SigningKey::open(&file).is_ok());
    assert!(matches!(
        SigningKey::create(&folder, "bob", &Counter::new()),
        Err(KeyFileError::File(FileError::Mode { .. }))
    ));
}

#[test]
fn links_and_odd_files_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    let link = folder.join("link.key");
    symlink("ann.key", &link).unwrap();
    let linked_folder = root.path().join("linked");
    symlink(&folder, &linked_folder).unwrap();
    let pipe = folder.join("pipe.key");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir(folder.join("dir.key")).unwrap();
    for path in [link, linked_folder.join("ann.key"), pipe, folder.join("dir.key")] {
        let answer = SigningKey::open(&path);
        assert!(
            matches!(answer, Err(KeyFileError::File(FileError::Odd { .. }))),
            "{path:?}: {answer:?}"
        );
    }
    assert!(matches!(
        SigningKey::open(&folder.join("none.key")),
        Err(KeyFileError::File(FileError::Missing { .. }))
    ));
}

#[test]
fn another_users_files_are_refused() {
    if !rustix::process::geteuid().is_root() {
        portcullis_testkit::skip::skip("only root can give files away");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    let nobody = Some(65534);
    std::os::unix::fs::chown(folder.join("ann.pub"), nobody, None).unwrap();
    assert!(matches!(
        Keyring::load_dir(&folder),
        Err(KeyringError::File(PublicFileError::File(FileError::Owner { .. })))
    ));
    std::os::unix::fs::chown(folder.join("ann.key"), nobody, None).unwrap();
    assert!(matches!(
        SigningKey::open(&folder.join("ann.key")),
        Err(KeyFileError::File(FileError::Owner { .. }))
    ));
    std::os::unix::fs::chown(&folder, nobody, None).unwrap();
    assert!(matches!(
        Keyring::load_dir(&folder),
        Err(KeyringError::Folder(FileError::Owner { .. }))
    ));
}

#[test]
fn what_is_no_key_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    let file = folder.join("ann.key");
    let whole = fs::read_to_string(&file).unwrap();
    for text in [
        String::new(),
        whole.trim_end().to_owned(),
        whole.replace("-v1", "-v2"),
        whole.to_uppercase(),
        format!("{whole}\n"),
        whole[..whole.len() - 2].to_owned() + "\n",
    ] {
        fs::write(&file, &text).unwrap();
        assert!(matches!(SigningKey::open(&file), Err(KeyFileError::Form { .. })), "{text:?}");
    }
    fs::write(&file, vec![b'a'; 5000]).unwrap();
    assert!(matches!(SigningKey::open(&file), Err(KeyFileError::File(FileError::TooLarge { .. }))));
    for name in ["", ".", "..", "a/b", ".hidden", "a b", "a\n", &"a".repeat(65)] {
        let answer = SigningKey::create(&folder, name, &Counter::new());
        assert!(matches!(answer, Err(KeyFileError::File(FileError::Name))), "{name:?}: {answer:?}");
    }
}

#[test]
fn only_the_named_keys_signature_over_this_statement_counts() {
    let entropy = Counter::new();
    let (ann, bob) = (SigningKey::generate(&entropy), SigningKey::generate(&entropy));
    let ring = Keyring::new([
        KeyEntry::new(ann.public(), "ann", ["operator", "lead"]),
        KeyEntry::new(bob.public(), "bob", ["operator"]),
    ])
    .unwrap();
    let said = statement(&ann, 5);
    let signature = ann.sign(&said);
    let reviewer = ring.verify(&said, &signature).unwrap();
    assert_eq!((reviewer.person.as_str(), reviewer.roles.len()), ("ann", 2));

    // Bob signs under Ann's name, Ann's signature under Bob's, over something else, and damaged.
    assert_eq!(ring.verify(&said, &bob.sign(&said)), Err(KeyRefusal::BadSignature));
    let moved = Statement { key: bob.id(), ..said.clone() };
    assert_eq!(ring.verify(&moved, &signature), Err(KeyRefusal::BadSignature));
    let other = Statement { answer: Answer::Reject, ..said.clone() };
    assert_eq!(ring.verify(&other, &signature), Err(KeyRefusal::BadSignature));
    for index in 0..64 {
        let mut bytes = signature.0;
        bytes[index] ^= 1;
        assert_eq!(ring.verify(&said, &Signature(bytes)), Err(KeyRefusal::BadSignature));
    }
    let stranger = SigningKey::generate(&entropy);
    let foreign = statement(&stranger, 5);
    assert_eq!(ring.verify(&foreign, &stranger.sign(&foreign)), Err(KeyRefusal::UnknownKey));
}

#[test]
fn a_second_spelling_of_a_signature_is_refused() {
    // s + L in the place of s passes a lax check.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let ann = SigningKey::generate(&Counter::new());
    let ring = Keyring::new([KeyEntry::new(ann.public(), "ann", ["operator"])]).unwrap();
    let said = statement(&ann, 5);
    let mut bytes = ann.sign(&said).0;
    let mut carry = 0_u16;
    for (byte, add) in bytes[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(ring.verify(&said, &Signature(bytes)), Err(KeyRefusal::BadSignature));
}

#[test]
fn terms_overlap_and_revocation_ends_all() {
    let entropy = Counter::new();
    let (old, new) = (SigningKey::generate(&entropy), SigningKey::generate(&entropy));
    let at = Timestamp::from_micros;
    let entries = [
        KeyEntry { not_after: Some(at(20)), ..KeyEntry::new(old.public(), "ann", ["operator"]) },
        KeyEntry { not_before: Some(at(10)), ..KeyEntry::new(new.public(), "ann", ["operator"]) },
    ];
    let ring = Keyring::new(entries.clone()).unwrap();
    let answer = |ring: &Keyring, key: &SigningKey, at| {
        let said = statement(key, at);
        ring.verify(&said, &key.sign(&said)).map(|reviewer| reviewer.person)
    };
    let ann = || Ok("ann".to_owned());
    assert_eq!((answer(&ring, &old, 15), answer(&ring, &new, 15)), (ann(), ann()));
    assert_eq!((answer(&ring, &old, 20), answer(&ring, &new, 10)), (ann(), ann()));
    assert_eq!(answer(&ring, &old, 21), Err(KeyRefusal::NotValid));
    assert_eq!(answer(&ring, &new, 9), Err(KeyRefusal::NotValid));
    assert_eq!(ring.people("operator").len(), 1, "two keys are one person");
    assert_eq!(ring.people("lead").len(), 0);

    let [one, two] = entries;
    let revoked = [KeyEntry { revoked: true, ..one }, KeyEntry { revoked: true, ..two }];
    let ring = Keyring::new(revoked).unwrap();
    assert_eq!(answer(&ring, &old, 15), Err(KeyRefusal::NotValid));
    assert_eq!(ring.people("operator").len(), 0);
    let said = statement(&old, 15);
    assert_eq!(ring.verify(&said, &new.sign(&said)), Err(KeyRefusal::BadSignature));
}

#[test]
fn one_key_is_not_two_people() {
    let key = SigningKey::generate(&Counter::new()).public();
    let twice = ["ann", "bob"].map(|person| KeyEntry::new(key, person, ["operator"]));
    assert!(matches!(Keyring::new(twice), Err(KeyringError::Twice { key: id }) if id == key.id()));
    // The same in a folder, where the file's name is the person's.
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    SigningKey::create(&folder, "ann", &Counter::new()).unwrap();
    assert_eq!(Keyring::load_dir(&folder).unwrap().people("operator").len(), 1, "control");
    fs::copy(folder.join("ann.pub"), folder.join("bob.pub")).unwrap();
    assert!(matches!(Keyring::load_dir(&folder), Err(KeyringError::Twice { .. })));
}

#[test]
fn a_ring_that_makes_no_sense_is_refused() {
    let key = SigningKey::generate(&Counter::new()).public();
    let entry = KeyEntry::new(key, "ann", ["operator"]);
    let at = Timestamp::from_micros;
    let twice = [entry.clone(), KeyEntry { person: "bob".to_owned(), ..entry.clone() }];
    assert!(matches!(Keyring::new(twice), Err(KeyringError::Twice { .. })));
    let term = KeyEntry { not_before: Some(at(2)), not_after: Some(at(1)), ..entry.clone() };
    assert!(matches!(Keyring::new([term]), Err(KeyringError::Term { .. })));
    for name in ["", "a\nb", "a(b)"] {
        let person = KeyEntry { person: name.to_owned(), ..entry.clone() };
        assert!(matches!(Keyring::new([person]), Err(KeyringError::Named { .. })), "{name:?}");
        let role = KeyEntry { roles: vec![name.to_owned()], ..entry.clone() };
        assert!(matches!(Keyring::new([role]), Err(KeyringError::Named { .. })), "{name:?}");
    }
}

#[test]
fn a_folder_of_public_keys_loads_unless_others_could_have_written_it() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    let entropy = Counter::new();
    let ann = SigningKey::create(&folder, "ann", &entropy).unwrap();
    let bob = SigningKey::create(&folder, "bob", &entropy).unwrap();
    let ring = Keyring::load_dir(&folder).unwrap();
    assert_eq!(ring.people("operator").len(), 2);
    for (key, person) in [(&ann, "ann"), (&bob, "bob")] {
        let said = statement(key, 1);
        assert_eq!(ring.verify(&said, &key.sign(&said)).unwrap().person, person);
    }
    for bad in [0o620, 0o602] {
        chmod(&folder.join("ann.pub"), bad);
        assert!(
            matches!(
                Keyring::load_dir(&folder),
                Err(KeyringError::File(PublicFileError::File(FileError::Mode { .. })))
            ),
            "{bad:o}"
        );
    }
    chmod(&folder.join("ann.pub"), 0o644);
    chmod(&folder, 0o755);
    assert_eq!(Keyring::load_dir(&folder).unwrap().people("operator").len(), 2, "control");
    chmod(&folder, 0o777);
    assert!(matches!(
        Keyring::load_dir(&folder),
        Err(KeyringError::Folder(FileError::Mode { .. }))
    ));
    chmod(&folder, 0o700);
    fs::write(folder.join("eve.pub"), "ed25519:00").unwrap();
    assert!(matches!(
        Keyring::load_dir(&folder),
        Err(KeyringError::File(PublicFileError::Form { .. }))
    ));
    fs::remove_file(folder.join("eve.pub")).unwrap();
    symlink("ann.pub", folder.join("eve.pub")).unwrap();
    assert!(matches!(
        Keyring::load_dir(&folder),
        Err(KeyringError::File(PublicFileError::File(FileError::Odd { .. })))
    ));
}

#[test]
fn the_hosts_key_is_kept_and_never_a_reviewers() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    let entropy = Counter::new();
    let host = SigningKey::for_heads(&folder, &entropy).unwrap();
    assert_eq!(SigningKey::for_heads(&folder, &entropy).unwrap().id(), host.id());
    assert_eq!(PublicKey::open(&folder.join("host.head-pub")).unwrap(), host.public());
    assert_eq!(mode(&folder.join("host.head-key")), 0o600);
    SigningKey::create(&folder, "ann", &entropy).unwrap();
    let ring = Keyring::load_dir(&folder).unwrap();
    assert_eq!((ring.people("operator").len(), ring.entries().count()), (1, 1));
    let said = statement(&host, 1);
    assert_eq!(ring.verify(&said, &host.sign(&said)), Err(KeyRefusal::UnknownKey));
}

#[test]
fn threads_that_draw_one_key_at_once_get_the_same_one() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("keys");
    let entropy = Counter::new();
    let ids: Vec<_> = std::thread::scope(|scope| {
        let draw = || SigningKey::for_heads(&folder, &entropy).unwrap().id();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

/// Names the folder in which the child of the next test draws its key.
const CHILD: &str = "PORTCULLIS_TEST_KEY_FOLDER";

#[test]
fn modes_hold_under_any_umask() {
    if let Some(folder) = std::env::var_os(CHILD) {
        SigningKey::create(Path::new(&folder), "ann", &Counter::new()).unwrap();
        return;
    }
    for umask in ["000", "022", "077", "277"] {
        if umask == "277" && !rustix::process::geteuid().is_root() {
            portcullis_testkit::skip::skip(
                "a folder that its owner cannot write stops all but root",
            );
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("keys");
        let done = std::process::Command::new("sh")
            .args(["-c", "umask \"$1\"; shift; exec \"$@\"", "sh", umask])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "keys::modes_hold_under_any_umask"])
            .env(CHILD, &folder)
            .output()
            .unwrap();
        assert!(done.status.success(), "{umask}: {done:?}");
        assert_eq!(mode(&folder) & 0o077, 0, "{umask}");
        for file in ["ann.key", "ann.pub"] {
            assert_eq!(mode(&folder.join(file)), 0o600, "{umask} {file}");
        }
    }
}
