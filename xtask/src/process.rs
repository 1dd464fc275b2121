//! Starting other programs: shown, shown and kept, or kept only. None gets a standard input.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// What a program that was shown and kept has written, both streams in order of arrival.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Whether it ended with exit code 0.
    pub(crate) ok: bool,
    /// Its lines, terminal colours taken out.
    pub(crate) text: String,
}

/// The cargo that started this program, or the one on the path.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root);
    // `cargo run` describes this package to its child; the next cargo must not inherit that.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a program with its output on ours; true when it ended with exit code 0.
pub(crate) fn show(command: &mut Command) -> Result<bool> {
    announce(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{command:?} cannot start"))?;
    Ok(status.success())
}

/// Runs a program with its output on ours and keeps the lines.
pub(crate) fn show_and_keep(command: &mut Command) -> Result<Kept> {
    announce(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{command:?} cannot start"))?;
    let kept = Arc::new(Mutex::new(String::new()));
    let mut readers = Vec::new();
    if let Some(stream) = child.stdout.take() {
        readers.push(copy_lines(stream, Arc::clone(&kept)));
    }
    if let Some(stream) = child.stderr.take() {
        readers.push(copy_lines(stream, Arc::clone(&kept)));
    }
    let status = child.wait().context("a child process was lost")?;
    for reader in readers {
        let _panicked = reader.join();
    }
    let text = plain(&kept.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Kept { ok: status.success(), text })
}

/// Runs a program silently and gives its standard output; its standard error is the error.
pub(crate) fn keep(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?} cannot start"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program starts and ends with exit code 0; its output is dropped.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Takes terminal colour sequences out, so that texts can be compared.
pub(crate) fn plain(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            clean.push(character);
            continue;
        }
        if characters.next() == Some('[') {
            // A control sequence ends with its first byte from `@` to `~`.
            for part in characters.by_ref() {
                if ('@'..='~').contains(&part) {
                    break;
                }
            }
        }
    }
    clean
}

fn announce(command: &Command) {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    println!("$ {} {}", program.to_string_lossy(), words.join(" "));
}

fn copy_lines(
    stream: impl Read + Send + 'static,
    kept: Arc<Mutex<String>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            // A closed terminal must not stop the reader: the child would block on a full pipe.
            let _closed = std::io::stdout().lock().write_all(text.as_bytes());
            kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_exit_code_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let kept = show_and_keep(&mut command).expect("sh");
        assert!(!kept.ok);
        let mut lines: Vec<&str> = kept.text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["err", "out"]);
    }

    #[test]
    fn a_child_reads_nothing() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo end"]);
        assert_eq!(keep(&mut command).expect("sh"), "end\n");
    }

    #[test]
    fn a_failure_carries_the_standard_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 1"]);
        assert!(keep(&mut command).expect_err("fails").to_string().ends_with("why"));
        assert!(!works(&mut Command::new("portcullis-no-such-program")));
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(plain("\u{1b}[32;1m12\u{1b}[0m passed"), "12 passed");
        assert_eq!(plain("cut \u{1b}["), "cut ");
    }
}
