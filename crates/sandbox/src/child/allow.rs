//! The allow list: what a confined child may open, with the forbidden paths cut out.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{AgentSpec, Place, SpawnError, program::Program};

/// More rules than any sensible layout needs; each costs the child a few microseconds at its start.
const MAX_RULES: usize = 20_000;

/// Folders of the system that programs are made of.
const SYSTEM_FOLDERS: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// What programs and the C library read at their start, and nothing that holds a secret.
const SYSTEM_FILES: [&str; 20] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/locale.alias",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki/tls/certs",
];

/// Devices without a memory.
const DEVICES_WRITE: [&str; 2] = ["/dev/null", "/dev/zero"];
const DEVICES_READ: [&str; 2] = ["/dev/urandom", "/dev/random"];

/// What a rule grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Access {
    /// Read and execute beneath a folder.
    Tree = 1,
    /// Read and execute one file.
    File = 2,
    /// Read one device.
    DeviceRead = 3,
    /// Read and write one device.
    DeviceWrite = 4,
    /// Read, write and make things beneath a folder.
    Scratch = 5,
}

impl Access {
    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Tree, Self::File, Self::DeviceRead, Self::DeviceWrite, Self::Scratch]
            .into_iter()
            .find(|access| *access as u8 == code)
    }
}

/// One entry of the allow list. The path is canonical.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) path: PathBuf,
    pub(super) access: Access,
}

/// All forbidden paths, made canonical.
pub(super) fn forbidden(paths: &[PathBuf]) -> Result<Vec<Place>, SpawnError> {
    paths.iter().map(|path| Place::of(path).map_err(|source| at(path, source))).collect()
}

/// The whole allow list for this agent.
pub(super) fn rules(
    spec: &AgentSpec,
    program: &Program,
    scratch: &Path,
    forbidden: &[Place],
) -> Result<Vec<Rule>, SpawnError> {
    for one in forbidden {
        if one.covers(scratch) || one.path().starts_with(scratch) {
            return Err(SpawnError::Scratch {
                scratch: scratch.into(),
                forbidden: Some(one.path().to_owned()),
            });
        }
    }
    let mut rules = vec![Rule { path: scratch.into(), access: Access::Scratch }];
    for base in bases(spec, program)? {
        if let Some(one) = forbidden.iter().find(|one| one.covers(&base)) {
            return Err(SpawnError::Forbidden { allowed: base, forbidden: one.path().to_owned() });
        }
        grant(&base, forbidden, &mut rules)?;
    }
    for (devices, access) in
        [(DEVICES_READ, Access::DeviceRead), (DEVICES_WRITE, Access::DeviceWrite)]
    {
        rules.extend(devices.iter().map(|path| Rule { path: path.into(), access }));
    }
    Ok(rules)
}

/// Everything that is to be readable, canonical, without what lies in another one.
fn bases(spec: &AgentSpec, program: &Program) -> Result<Vec<PathBuf>, SpawnError> {
    let mut bases = Vec::new();
    for path in &spec.readable {
        bases.push(std::fs::canonicalize(path).map_err(|e| at(path, e))?);
    }
    let system = SYSTEM_FOLDERS.iter().chain(&SYSTEM_FILES).map(PathBuf::from);
    for path in system.chain(python_settings()).chain(program.needs.iter().cloned()) {
        match std::fs::canonicalize(&path) {
            Ok(found) => bases.push(found),
            // Not every system has every folder.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(at(&path, error)),
        }
    }
    bases.sort();
    bases.dedup();
    let all = bases.clone();
    bases.retain(|base| !all.iter().any(|other| other != base && base.starts_with(other)));
    Ok(bases)
}

/// Debian links parts of Python's library to `/etc/python3.x`.
fn python_settings() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
        .map(|entry| entry.path())
        .collect()
}

/// Allows `base`, or, when a forbidden path lies beneath it, each of its entries but that one.
fn grant(base: &Path, forbidden: &[Place], rules: &mut Vec<Rule>) -> Result<(), SpawnError> {
    let mut pending = vec![base.to_owned()];
    while let Some(path) = pending.pop() {
        // A link is no way in: what it leads to has its own rule or none.
        let meta = path.symlink_metadata().map_err(|e| at(&path, e))?;
        if meta.is_symlink() || forbidden.iter().any(|f| f.path() == path || f.is(&meta)) {
            continue;
        }
        if meta.is_dir() && forbidden.iter().any(|f| f.path().starts_with(&path)) {
            for entry in std::fs::read_dir(&path).map_err(|e| at(&path, e))? {
                pending.push(entry.map_err(|e| at(&path, e))?.path());
            }
        } else if meta.is_dir() || meta.is_file() {
            let access = if meta.is_dir() { Access::Tree } else { Access::File };
            rules.push(Rule { path, access });
        }
        if pending.len() + rules.len() > MAX_RULES {
            return Err(SpawnError::TooManyRules { path: base.into() });
        }
    }
    Ok(())
}

fn at(path: &Path, source: std::io::Error) -> SpawnError {
    SpawnError::Path { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Layout {
        _folder: tempfile::TempDir,
        base: PathBuf,
    }

    fn layout() -> Layout {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for dir in ["sys/bin", "sys/lib/deep", "scratch", "state"] {
            fs::create_dir_all(base.join(dir)).unwrap();
        }
        for file in ["sys/bin/ours", "sys/bin/other", "sys/top", "sys/lib/deep/x"] {
            fs::write(base.join(file), "").unwrap();
        }
        symlink("ours", base.join("sys/bin/alias")).unwrap();
        fs::hard_link(base.join("sys/bin/ours"), base.join("sys/bin/second-name")).unwrap();
        Layout { _folder: folder, base }
    }

    fn run(
        l: &Layout,
        readable: &[&str],
        cut: &[&str],
        scratch: &str,
    ) -> Result<Vec<String>, SpawnError> {
        let mut spec = AgentSpec::new("x", l.base.join(scratch));
        spec.readable = readable.iter().map(|p| l.base.join(p)).collect();
        let cut: Vec<_> = cut.iter().map(|p| l.base.join(p)).collect();
        let program = Program { path: "/x".into(), needs: vec![] };
        let mut names: Vec<_> = rules(&spec, &program, &l.base.join(scratch), &forbidden(&cut)?)?
            .into_iter()
            .filter_map(|rule| {
                Some((rule.path.strip_prefix(&l.base).ok()?.to_owned(), rule.access))
            })
            .filter(|(_, access)| *access != Access::Scratch)
            .map(|(path, access)| format!("{access:?} {}", path.display()))
            .collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_folder_without_anything_forbidden_is_one_rule() {
        let l = layout();
        assert_eq!(run(&l, &["sys", "sys/bin"], &["state"], "scratch").unwrap(), ["Tree sys"]);
    }

    #[test]
    fn a_forbidden_path_is_cut_out_with_its_other_names_beside_it() {
        let l = layout();
        assert_eq!(
            run(&l, &["sys"], &["sys/bin/ours"], "scratch").unwrap(),
            ["File sys/bin/other", "File sys/top", "Tree sys/lib"]
        );
        assert_eq!(
            run(&l, &["sys"], &["sys/bin"], "scratch").unwrap(),
            ["File sys/top", "Tree sys/lib"]
        );
    }

    #[test]
    fn a_forbidden_path_that_does_not_exist_yet_is_cut_out_too() {
        let l = layout();
        assert_eq!(
            run(&l, &["sys"], &["sys/lib/deep/new/state"], "scratch").unwrap(),
            ["File sys/lib/deep/x", "File sys/top", "Tree sys/bin"]
        );
    }

    #[test]
    fn what_lies_in_a_forbidden_path_refuses_the_start() {
        let l = layout();
        for (readable, cut) in [("sys/bin", "sys"), ("sys", "sys")] {
            match run(&l, &[readable], &[cut], "scratch") {
                Err(SpawnError::Forbidden { forbidden, .. }) => {
                    assert_eq!(forbidden, l.base.join(cut))
                }
                other => panic!("{other:?}"),
            }
        }
        symlink(l.base.join("state"), l.base.join("alias")).unwrap();
        assert!(matches!(
            run(&l, &["alias"], &["state"], "scratch"),
            Err(SpawnError::Forbidden { .. })
        ));
    }

    #[test]
    fn a_scratch_folder_never_overlaps_a_forbidden_path() {
        let l = layout();
        fs::create_dir(l.base.join("state/scratch")).unwrap();
        for (scratch, cut) in
            [("state", "state"), ("state/scratch", "state"), ("scratch", "scratch/later")]
        {
            assert!(
                matches!(run(&l, &[], &[cut], scratch), Err(SpawnError::Scratch { .. })),
                "{scratch} {cut}"
            );
        }
    }
}
