//! Opening a session: both kinds of revisions, what the server is given, and servers that do not get so far.

use std::time::Duration;

use portcullis_mcp::{Session as _, SessionError, Stdio};

use crate::scene::{PATIENT, SHORT, Scene, call, failure_of, peak_mib, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_each_revision_lists_and_answers() {
    for mode in ["well", "modern", "old", "noise"] {
        let session = Scene::new(mode).connect().await;
        let listing = session.list().await.unwrap();
        let names: Vec<_> = listing.tools().iter().map(|tool| tool.name().to_owned()).collect();
        assert_eq!(names, ["echo", "count"], "{mode}");
        assert_eq!(text(call(&session, "echo", PATIENT).await), "{}", "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_what_was_named_and_a_room_of_its_own() {
    let scene = Scene::new("well");
    let mut server = scene.server();
    server.env = vec![("TOKEN".into(), "a b".into()), ("PATH".into(), "/bin".into())];
    let room = server.room.canonicalize().unwrap();
    let session = Stdio::connect(server, PATIENT).await.unwrap();
    let (home, temporary) = (room.join("home"), room.join("tmp"));
    let expected = format!(
        "HOME={0}\nPATH=/bin\nTMPDIR={1}\nTOKEN=a b\n{0}",
        home.display(),
        temporary.display()
    );
    assert_eq!(text(call(&session, "environment", PATIENT).await), expected);
    assert_eq!(std::fs::read_dir(home).unwrap().count(), 0);
    assert!(std::env::vars().count() > 4, "control: this process has more of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_of_our_own_files_is_not_started() {
    let scene = Scene::new("well");
    std::fs::write(scene.file(), "").unwrap();
    let mut server = scene.server();
    server.ours = vec![scene.file()];
    let failure = Stdio::connect(server, PATIENT).await.err().unwrap().to_string();
    assert!(failure.starts_with("cannot start: ") && failure.contains("names"), "{failure}");
    let mut server = scene.server();
    server.ours = vec![scene.server().room];
    Stdio::connect(server, PATIENT).await.expect("control: other files are not ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_or_dies_says_so_with_its_last_words() {
    let scene = Scene::new("well");
    let mut server = scene.server();
    server.program = "no-such-server".into();
    let failure = Stdio::connect(server, PATIENT).await.err().unwrap();
    assert_eq!(failure.to_string(), "cannot start: there is no program \"no-such-server\"");

    let (failure, _) = failure_of("die-start", PATIENT).await;
    assert_eq!(
        failure,
        "cannot start: it ended while opening the session (exit status: 3); it last wrote to standard error: \
         \\x1B[31mcannot find the module"
    );
}

/// What each server gets that does not speak as it should, whenever it is noticed.
const HOSTILE: [(&str, &str); 20] = [
    ("die-initialize", "it ended while opening the session"),
    ("close-start", "it closed its output while opening the session"),
    ("refuse-initialize", "refuses the handshake (error -32000: \\x1B[2J not today)"),
    ("odd-initialize", "its answer to the handshake is another one"),
    ("other-initialize", "gave no answer within 2s while opening the session"),
    ("hang-start", "gave no answer within 2s while opening the session"),
    ("deaf", "gave no answer within 2s while opening the session"),
    ("hang-initialize", "gave no answer within 2s while opening the session"),
    ("unknown-revision", "it answers in the revision `1999-01-01`"),
    ("no-tools", "it offers no tools"),
    ("modern-refuses", "it says that it tells of changes of its tools, and does not"),
    ("modern-ends", "it ended the subscription to changes of its tools"),
    ("noise-without-end", "more than 100 lines that answer nothing that was asked"),
    ("notices-without-end", "it floods the connection"),
    ("empty-lines", "it floods the connection"),
    ("questions-without-end", "it floods the connection"),
    ("long-line", "a line of more than 16777216 bytes"),
    ("bad-utf8", "a line that is no strict JSON: "),
    ("deep", "a line that is no strict JSON: "),
    ("bomb", "a line of more than 500000 values"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_opening_ends_with_a_reason_in_bounded_time_and_memory() {
    for (mode, expected) in HOSTILE {
        let wait = if expected.starts_with("gave no answer") { SHORT } else { PATIENT };
        let (failure, took) = failure_of(mode, wait).await;
        assert!(failure.contains(expected), "{mode}: {failure}");
        assert!(took < Duration::from_secs(30), "{mode} took {took:?}");
    }
    assert!(peak_mib() < 300, "{} MiB", peak_mib());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_complains_without_end_is_served_all_the_same() {
    let session = Scene::new("complain").connect().await;
    // It complains on a thread of its own, which may come later than its first answers.
    let until = std::time::Instant::now() + PATIENT;
    while session.stderr_tail().is_empty() {
        assert!(std::time::Instant::now() < until, "it does not complain");
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        assert_eq!(text(call(&session, "echo", PATIENT).await), "{}");
    }
    let tail = session.stderr_tail();
    assert_eq!(tail.len(), 1);
    assert!(tail[0].len() <= 8 * 1024 && tail[0].starts_with("!!!"), "{tail:?}");
    assert!(peak_mib() < 300, "{} MiB", peak_mib());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deadline_holds_from_the_start_to_the_listing() {
    // Within it a server starts on a loaded machine.
    const WAIT: Duration = Duration::from_secs(10);
    // Its folder stays: the server notes there that the listing was given up, if it came that far.
    let scene = Scene::new("well");
    let session = scene.connect_within(WAIT).await.unwrap();
    tokio::time::sleep(WAIT).await;
    let failure = session.list().await.unwrap_err();
    let passed = matches!(failure, SessionError::Deadline(WAIT, "listing its tools"));
    assert!(passed, "a listing has what the start left of the deadline: {failure}");
    assert_eq!(session.list().await.unwrap().tools().len(), 2, "each later one has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deadline_holds_for_all_pages() {
    // Within it a server starts on a loaded machine.
    const WAIT: Duration = Duration::from_secs(10);
    let held = async |mode| {
        let scene = Scene::new(mode);
        let session = scene.connect_within(WAIT).await.unwrap();
        let failure = session.list().await.unwrap_err();
        let passed = matches!(failure, SessionError::Deadline(WAIT, "listing its tools"));
        assert!(passed, "{mode}: {failure}");
    };
    // Of the first, each page comes in time, and all of them do not.
    tokio::join!(held("drip-list"), held("hang-list"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_newer_question_is_asked_the_older_one() {
    // After ten seconds; the answer to the first question that comes then is dropped.
    let session = Scene::new("silent-discover").connect().await;
    assert_eq!(session.list().await.unwrap().tools().len(), 2);
}
