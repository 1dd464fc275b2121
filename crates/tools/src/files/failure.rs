//! Which failures prove that nothing happened, and how they are said.

use portcullis_canon::sanitize;
use portcullis_domain::ports::ToolFailure;
use portcullis_sandbox::confined::{Fault, FileError, PathError};

pub(super) use crate::arguments::refused;

/// The longest path in a message, in bytes; the agent knows the whole.
const MAX_SHOWN_PATH: usize = 300;

/// System errors that the kernel gives before it changes anything. The numbers are those of Linux, the same on all
/// its architectures.
const BEFORE_ANY_EFFECT: [i32; 8] = [
    9,  // EBADF: a handle was closed
    12, // ENOMEM
    16, // EBUSY: a mount point
    22, // EINVAL
    23, // ENFILE: too many open files on the machine
    24, // EMFILE: too many open files here
    27, // EFBIG
    31, // EMLINK: a directory with too many entries
];

/// A text that is no path beneath the folder. The text is not repeated: it can be anything.
pub(super) fn no_path(error: PathError) -> ToolFailure {
    refused(error.to_string())
}

/// A failed look: whatever went wrong, nothing was changed.
pub(super) fn of_look(error: &FileError) -> ToolFailure {
    refused(said(error))
}

/// A failed change. Nothing happened when that is certain; otherwise the outcome is unknown.
pub(super) fn of_change(error: &FileError) -> ToolFailure {
    let message = said(error);
    if proves_nothing_happened(error.fault) {
        ToolFailure::NothingHappened { message }
    } else {
        ToolFailure::Unknown { message }
    }
}

/// Exhaustive, so that a new kind of fault is judged here before it compiles.
fn proves_nothing_happened(fault: Fault) -> bool {
    match fault {
        Fault::NotFound
        | Fault::Exists
        | Fault::Link
        | Fault::NotRegular(_)
        | Fault::HardLinked
        | Fault::TooLarge { .. }
        | Fault::Changed
        | Fault::Denied
        | Fault::Full
        | Fault::CrossDevice
        | Fault::NotDirectory
        | Fault::NotEmpty
        | Fault::BadName
        | Fault::Busy
        | Fault::IntoItself
        | Fault::Unsupported => true,
        Fault::InDoubt(_) => false,
        // A medium or a network that failed may have failed after it did what it was asked.
        Fault::Io(errno) => BEFORE_ANY_EFFECT.contains(&errno),
    }
}

/// One sentence. The path's display form is escaped; the rest is our own words.
fn said(error: &FileError) -> String {
    let path = sanitize::clip(&error.path.to_string(), MAX_SHOWN_PATH);
    let path = sanitize::line(&path);
    match error.fault {
        Fault::Changed => format!("`{path}` {}; read it again", error.fault),
        Fault::Exists => format!("`{path}` already exists, and nothing is ever overwritten"),
        Fault::InDoubt(_) | Fault::Io(_) => format!("`{path}`: {}", error.fault),
        Fault::Full => format!("there is no space left for `{path}`"),
        Fault::Denied => format!("the operating system denies access to `{path}`"),
        Fault::Unsupported => {
            format!("the file system of `{path}` lacks an operation that is needed")
        }
        fault => format!("`{path}` {fault}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_sandbox::confined::{Kind, RelPath};

    fn error(fault: Fault) -> FileError {
        FileError { path: RelPath::root().join("a").unwrap(), fault }
    }

    #[track_caller]
    fn check(fault: Fault, nothing: bool, message: &str) {
        let message = message.to_owned();
        let expected = if nothing {
            ToolFailure::NothingHappened { message: message.clone() }
        } else {
            ToolFailure::Unknown { message: message.clone() }
        };
        assert_eq!(of_change(&error(fault)), expected);
        assert_eq!(of_look(&error(fault)), ToolFailure::NothingHappened { message });
    }

    #[test]
    fn what_proves_that_nothing_happened() {
        check(Fault::NotFound, true, "`a` does not exist");
        check(Fault::Exists, true, "`a` already exists, and nothing is ever overwritten");
        check(Fault::Link, true, "`a` is, or leads through, a symbolic link");
        check(Fault::NotRegular(Kind::Fifo), true, "`a` is not a regular file but a named pipe");
        check(
            Fault::Changed,
            true,
            "`a` is not, or is no longer, what was expected; read it again",
        );
        check(Fault::Full, true, "there is no space left for `a`");
        check(Fault::Denied, true, "the operating system denies access to `a`");
        check(Fault::Io(24), true, "`a`: system error 24");
    }

    #[test]
    fn a_failed_sync_and_a_failing_medium_prove_nothing() {
        check(Fault::InDoubt(5), false, "`a`: the change may have happened (system error 5)");
        check(Fault::Io(5), false, "`a`: system error 5");
        check(Fault::Io(110), false, "`a`: system error 110");
    }

    #[test]
    fn a_message_is_one_short_harmless_line() {
        let path =
            RelPath::parse(&format!("\u{1b}[2J\n\u{202e}{}", "x/".repeat(40) + "y")).unwrap();
        let ToolFailure::NothingHappened { message } =
            of_change(&FileError { path, fault: Fault::NotFound })
        else {
            panic!("not found proves that nothing happened");
        };
        assert!(message.starts_with("`\\u{1b}[2J\\n\\u{202e}x/x/"), "{message}");
        assert!(!message.chars().any(char::is_control), "{message}");
        let path = RelPath::parse(&vec!["\u{1}".repeat(200); 8].join("/")).unwrap();
        let long = said(&FileError { path, fault: Fault::NotFound });
        assert!(long.len() < MAX_SHOWN_PATH + 100, "{}", long.len());
    }
}
