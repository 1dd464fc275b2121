//! Small libraries that are compiled when they are needed and loaded before the C library of a child.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The library of this C text, in `folder`; nothing when there is no compiler.
pub(crate) fn compiled(folder: &Path, source: &str) -> Result<Option<PathBuf>> {
    let library = folder.join("preloaded.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-x", "c", "-", "-o"]).arg(&library).stdin(Stdio::piped());
    let Ok(mut child) = cc.spawn() else { return Ok(None) };
    child.stdin.take().context("cc takes no input")?.write_all(source.as_bytes())?;
    ensure!(child.wait()?.success(), "cc does not compile what is to be preloaded");
    Ok(Some(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_loaded_before_the_c_library() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = "#include <unistd.h>\nuid_t geteuid(void) { return 4711; }\n";
        let library = compiled(folder.path(), source).expect("compiled").expect("a C compiler");
        let output = Command::new("id").arg("-u").env("LD_PRELOAD", library).output().expect("id");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "4711\n");
        compiled(folder.path(), "int main(").expect_err("no C");
    }
}
