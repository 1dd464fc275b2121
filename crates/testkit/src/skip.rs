//! Saying that a test could not exercise its subject on this machine, so that somebody counts it.
//!
//! Runners hide the output of tests that pass. So a skip is not only printed: when `PORTCULLIS_SKIPS` names a file, one
//! line is appended there, and `cargo xtask test` prints and counts these lines.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::thread;

/// Names the file that collects skips.
const VARIABLE: &str = "PORTCULLIS_SKIPS";

/// Records that the running test leaves something out, and why; the test then returns, or goes on without it.
///
/// The reason is one line that names what is missing. Recording never fails a test: without the variable, or when the
/// file cannot be written, only the printed line remains.
///
/// ```
/// if !std::path::Path::new("/proc/self").exists() {
///     portcullis_testkit::skip::skip("no /proc on this machine");
/// }
/// ```
#[expect(clippy::print_stdout, reason = "the line is for the person who runs the test")]
#[expect(
    clippy::disallowed_methods,
    reason = "the runner of the tests speaks through the environment"
)]
pub fn skip(reason: &str) {
    let reason = one_line(reason);
    println!("portcullis-skip: {reason}");
    if let Some(file) = env::var_os(VARIABLE) {
        let _printed_anyway = append(Path::new(&file), &binary(), &test(), &reason);
    }
}

/// One write of one whole line in append mode: lines of tests that run at once never mix.
fn append(file: &Path, binary: &str, test: &str, reason: &str) -> std::io::Result<()> {
    let line = format!("{binary}\t{test}\t{reason}\n");
    OpenOptions::new().append(true).open(file)?.write_all(line.as_bytes())
}

/// The file name of the running binary, without the hash that cargo appends.
fn binary() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    one_line(name.rsplit_once('-').map_or(name.as_ref(), |(name, _)| name))
}

/// The running test: the test harness names its threads so.
#[expect(
    clippy::disallowed_methods,
    reason = "nextest tells the test's name through the environment"
)]
fn test() -> String {
    let named = env::var("NEXTEST_TEST_NAME").ok();
    named.unwrap_or_else(|| one_line(thread::current().name().unwrap_or("unnamed")))
}

/// Tabs and line ends would break the format of the file.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_is_appended_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        std::fs::write(&file, "before\n").unwrap();
        append(&file, "it", "a::b", &one_line("no\tsuch\nthing")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\nit\ta::b\tno such thing\n");
    }

    #[test]
    fn a_missing_file_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        assert!(append(&folder.path().join("absent"), "it", "a", "b").is_err());
        assert!(!folder.path().join("absent").exists());
    }

    #[test]
    fn the_test_and_its_binary_are_named() {
        assert!(test().ends_with("the_test_and_its_binary_are_named"));
        assert_eq!(binary(), "portcullis_testkit");
    }
}
