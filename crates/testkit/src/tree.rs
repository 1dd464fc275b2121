//! What a folder holds, as one digest, so that a test can say that nothing changed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use portcullis_canon::{Digest, Kind};

/// The digest of every name, kind, owner, permission, number of links, time of change, link target and content
/// beneath `folder`, hidden ones included. Pipes, sockets and devices are named and not opened.
///
/// # Errors
/// Whatever cannot be read.
pub fn digest(folder: &Path) -> io::Result<Digest> {
    let mut parts = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path)?;
        let name = path.strip_prefix(folder).unwrap_or(&path);
        parts.push(name.as_os_str().as_bytes().to_vec());
        let (owner, group, links) = (meta.uid(), meta.gid(), meta.nlink());
        let (seconds, nanos) = (meta.mtime(), meta.mtime_nsec());
        let facts = format!("{:o} {owner} {group} {links} {seconds} {nanos}", meta.mode());
        parts.push(facts.into_bytes());
        if meta.is_symlink() {
            parts.push(fs::read_link(&path)?.as_os_str().as_bytes().to_vec());
        } else if meta.is_file() {
            parts.push(content(&path)?);
        } else if meta.is_dir() {
            let entries: io::Result<Vec<_>> =
                fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path())).collect();
            let mut entries = entries?;
            entries.sort();
            pending.extend(entries);
        }
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(Digest::of_parts(Kind::Content, &parts))
}

#[expect(clippy::disallowed_methods, reason = "a folder that the test made")]
fn content(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn every_change_is_seen_and_none_is_invented() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let look = || digest(folder.path()).unwrap();
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/f"), "one").unwrap();
        symlink("nowhere", at("l")).unwrap();
        let mut seen = vec![look()];
        assert_eq!(seen[0], look());
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(at("d/f"), "two").unwrap(),
            &|| fs::set_permissions(at("d/f"), fs::Permissions::from_mode(0o600)).unwrap(),
            &|| fs::hard_link(at("d/f"), at("d/g")).unwrap(),
            &|| fs::rename(at("d/g"), at("d/.h")).unwrap(),
            &|| {
                fs::remove_file(at("l")).unwrap();
                symlink("elsewhere", at("l")).unwrap();
            },
            &|| fs::create_dir(at("e")).unwrap(),
        ];
        for change in changes {
            change();
            let now = look();
            assert!(!seen.contains(&now));
            seen.push(now);
        }
    }
}
