//! What figures were taken on: date, processor, memory, kernel, disk, load, and the state of the code. No names, no paths.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::target;

/// A machine, at the time when something is measured on it.
#[derive(Debug)]
pub(crate) struct Machine {
    facts: String,
    load_before: String,
}

impl Machine {
    /// This one, now; the disk is that of the build folder, on which the benches keep their databases.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let date = process::keep(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
        let cores = std::thread::available_parallelism().context("cores cannot be counted")?;
        let cpuinfo = read("/proc/cpuinfo")?;
        let processor = value(&cpuinfo, "model name").unwrap_or("processor unknown");
        let memory = gibibytes(&read("/proc/meminfo")?).context("/proc/meminfo has no MemTotal")?;
        let kernel = read("/proc/sys/kernel/osrelease")?;
        // What stands behind the numbers names a build, and sometimes a place.
        let kernel = kernel.trim().split('-').next().unwrap_or_default();
        let target = target(root);
        fs::create_dir_all(&target)?;
        let disk = disk(&read("/proc/self/mounts")?, &target.canonicalize()?, &rotates);
        let code = code(root)?;
        let facts = format!(
            "{}; {cores} cores ({processor}), {memory:.0} GiB, Linux {}, {disk}; code {code}",
            date.trim(),
            kernel,
        );
        Ok(Self { facts, load_before: load() })
    }

    /// A sentence about it, with the load before and now.
    pub(crate) fn told(&self) -> String {
        format!("{}; load {} before and {} after.\n", self.facts, self.load_before, load())
    }
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))
}

/// The load averages of one and five minutes.
fn load() -> String {
    let read = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split_whitespace().take(2).collect::<Vec<_>>().join("/")
}

/// The value behind `name` and a colon.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

#[allow(clippy::cast_precision_loss, reason = "a size for reading")]
fn gibibytes(meminfo: &str) -> Option<f64> {
    let kibibytes: u64 = value(meminfo, "MemTotal")?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes as f64 / f64::from(1 << 20))
}

/// The file system under `path` and the kind of its device.
fn disk(mounts: &str, path: &Path, rotates: &dyn Fn(&str) -> Option<bool>) -> String {
    let mut best: Option<(usize, &str, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(point), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let longest = best.is_none_or(|(length, _, _)| point.len() >= length);
        if path.starts_with(point) && longest {
            best = Some((point.len(), device, kind));
        }
    }
    let Some((_, device, kind)) = best else { return "disk unknown".to_owned() };
    let Some(name) = device.strip_prefix("/dev/") else { return kind.to_owned() };
    let medium = match (name, rotates(name)) {
        (name, _) if name.starts_with("vd") || name.starts_with("xvd") => "a virtual disk",
        (name, _) if name.starts_with("nvme") => "NVMe",
        (_, Some(true)) => "a rotating disk",
        (_, Some(false)) => "a solid-state disk",
        (_, None) => "a disk of unknown kind",
    };
    format!("{kind} on {medium}")
}

/// Whether the kernel takes a device for one that rotates; a partition is asked as its disk.
fn rotates(name: &str) -> Option<bool> {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let ask = |name: &str| fs::read_to_string(format!("/sys/block/{name}/queue/rotational")).ok();
    ask(name).or_else(|| ask(disk)).map(|text| text.trim() == "1")
}

/// The commit, and whether something was changed since.
fn code(root: &Path) -> Result<String> {
    if !root.join(".git").exists() {
        return Ok("without history".to_owned());
    }
    let git =
        |arguments: &[&str]| process::keep(Command::new("git").current_dir(root).args(arguments));
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    // The page itself is what these commands change.
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs/benchmarks.md"])?;
    let word = if changed.trim().is_empty() { "" } else { ", with changes" };
    Ok(format!("{}{word}", commit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/sda2 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/vdb /work xfs rw 0 0\n\
        overlay /box overlay rw 0 0\nodd\n/dev/nvme0n1p1 /work/fast ext4 rw 0 0\n";

    #[test]
    fn the_disk_is_that_of_the_longest_mount() {
        let disk = |path: &str| disk(MOUNTS, Path::new(path), &|_| Some(true));
        assert_eq!(disk("/home/x"), "ext4 on a rotating disk");
        assert_eq!(disk("/work/target"), "xfs on a virtual disk");
        assert_eq!(disk("/work/fast/target"), "ext4 on NVMe");
        assert_eq!(disk("/workshop"), "ext4 on a rotating disk");
        assert_eq!(disk("/box"), "overlay");
        assert_eq!(super::disk("", Path::new("/a"), &|_| None), "disk unknown");
    }

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(value("a: 1\nmodel name\t: Fast 9\n", "model name"), Some("Fast 9"));
        assert_eq!(gibibytes("MemTotal:       25165824 kB\n"), Some(24.0));
        assert_eq!(gibibytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_is_told_without_its_names() {
        let root = crate::workspace::root().expect("root");
        let told = Machine::of(&root).expect("a machine").told();
        assert!(
            told.contains(" cores (") && told.contains(" GiB, Linux ") && told.contains("load")
        );
        assert!(!told.contains(root.to_str().expect("a path")), "{told}");
    }
}
