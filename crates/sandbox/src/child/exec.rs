//! Becoming a program. The C library's own ways hand what is no program to a shell; this is the system call alone.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::seccomp::last_errno;

/// Replaces this process by the program. Comes back only with the reason why it could not.
pub(super) fn replace_by(program: &Path, args: &[OsString], env: &[(OsString, OsString)]) -> Errno {
    match images(program, args, env) {
        Ok((program, args, env)) => {
            reset_signals();
            execve(&program, &args, &env)
        }
        Err(errno) => errno,
    }
}

/// Gives the program the signals that it would have from a shell: this process, as every Rust program, ignores a broken
/// pipe, and what is ignored or blocked stays so over an exec.
fn reset_signals() {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `signal` is given no handler, only the default; `sigemptyset` fills the set that `sigprocmask` then reads,
    // and nothing is written to a null pointer. No other thread runs in this process.
    #[expect(unsafe_code, reason = "rustix sets no signal dispositions")]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if libc::sigemptyset(none.as_mut_ptr()) == 0 {
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        }
    }
}

type Images = (CString, Vec<CString>, Vec<CString>);

fn images(
    program: &Path,
    args: &[OsString],
    env: &[(OsString, OsString)],
) -> Result<Images, Errno> {
    let name = text(program.as_os_str())?;
    let args = std::iter::once(Ok(name.clone())).chain(args.iter().map(|arg| text(arg)));
    let entry = |(name, value): &(OsString, OsString)| {
        let mut entry = name.clone();
        entry.push("=");
        entry.push(value);
        text(&entry)
    };
    Ok((name, args.collect::<Result<_, _>>()?, env.iter().map(entry).collect::<Result<_, _>>()?))
}

fn text(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::INVAL)
}

fn execve(program: &CString, args: &[CString], env: &[CString]) -> Errno {
    let pointers = |texts: &[CString]| {
        let texts = texts.iter().map(|text| text.as_ptr());
        texts.chain(std::iter::once(std::ptr::null())).collect::<Vec<_>>()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: `program` is a C string, `args` and `env` are arrays of C strings that end with a null pointer, and all of
    // them outlive the call, which either never returns or has changed nothing.
    #[expect(unsafe_code, reason = "rustix has no stable execve, and std's goes on with a shell")]
    unsafe {
        libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr())
    };
    last_errno()
}
