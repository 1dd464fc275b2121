//! Walking a tree of regular files, for search.

use std::ops::ControlFlow;

use super::{FileError, Kind, PathError, RelPath, Root, Stat};

/// The bounds of one walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    /// Files handed to the visitor, at most.
    pub max_files: usize,
    /// Entries looked at, at most, of all kinds together.
    pub max_entries: usize,
    /// The sum of the sizes of the files handed over, in bytes.
    pub max_total_bytes: u64,
    /// A larger file is skipped, in bytes.
    pub max_file_bytes: u64,
    /// Directory levels beneath the start; 0 is the start alone.
    pub max_depth: usize,
}

/// What a walk left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkSummary {
    /// Files handed to the visitor.
    pub files: usize,
    /// True when a bound, not the visitor, ended the walk early or kept it out of a directory.
    pub cut: bool,
    /// Files larger than the bound for one file.
    pub too_large: usize,
    /// Links, pipes, sockets, devices, and files with more than one hard link.
    pub not_plain: usize,
    /// Names that cannot be addressed (no UTF-8, too long, too deep), and what could not be opened.
    pub unreachable: usize,
}

impl Root {
    /// Hands every regular file with one name beneath `dir` to `visit`, sorted within each directory, until the
    /// visitor breaks off or a bound is met. Links are not followed.
    ///
    /// # Errors
    /// Only when `dir` itself cannot be listed; what lies beneath and cannot be is counted.
    pub fn walk(
        &self,
        dir: &RelPath,
        limits: WalkLimits,
        mut visit: impl FnMut(&RelPath, &Stat) -> ControlFlow<()>,
    ) -> Result<WalkSummary, FileError> {
        let mut walk = Walk {
            limits,
            entries_left: limits.max_entries,
            bytes: 0,
            summary: WalkSummary::default(),
        };
        let mut pending = vec![(dir.clone(), 0_usize)];
        let mut first = true;
        while let Some((dir, depth)) = pending.pop() {
            let listing = match self.list(&dir, walk.entries_left) {
                Ok(listing) => listing,
                Err(error) if first => return Err(error),
                Err(_) => {
                    walk.summary.unreachable += 1;
                    continue;
                }
            };
            first = false;
            walk.summary.cut |= listing.cut;
            walk.entries_left = walk.entries_left.saturating_sub(listing.entries.len());
            let mut deeper = Vec::new();
            for entry in listing.entries {
                let path =
                    entry.name.to_str().ok_or(PathError::Empty).and_then(|name| dir.join(name));
                let Ok(path) = path else {
                    walk.summary.unreachable += 1;
                    continue;
                };
                if entry.stat.kind == Kind::Directory {
                    deeper.push((path, depth + 1));
                } else if walk.file(&path, &entry.stat, &mut visit).is_break() {
                    return Ok(walk.summary);
                }
            }
            if depth < limits.max_depth {
                // Last in, first out: reversed, so that the walk goes by name.
                pending.extend(deeper.into_iter().rev());
            } else {
                walk.summary.cut |= !deeper.is_empty();
            }
        }
        Ok(walk.summary)
    }
}

struct Walk {
    limits: WalkLimits,
    entries_left: usize,
    bytes: u64,
    summary: WalkSummary,
}

impl Walk {
    fn file(
        &mut self,
        path: &RelPath,
        stat: &Stat,
        visit: &mut impl FnMut(&RelPath, &Stat) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if stat.kind != Kind::File || stat.links != 1 {
            self.summary.not_plain += 1;
            return ControlFlow::Continue(());
        }
        if stat.size > self.limits.max_file_bytes {
            self.summary.too_large += 1;
            return ControlFlow::Continue(());
        }
        let bytes = self.bytes.saturating_add(stat.size);
        if self.summary.files >= self.limits.max_files || bytes > self.limits.max_total_bytes {
            self.summary.cut = true;
            return ControlFlow::Break(());
        }
        self.bytes = bytes;
        self.summary.files += 1;
        visit(path, stat)
    }
}
