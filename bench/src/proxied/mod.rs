//! What the gate adds to a call of an MCP server: the same calls of the same server, with and without it, in turn.
//!
//! Both are driven by the same host over pipes. A proxied call is a run of its own: four commits, two of them synced.

mod host;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use self::host::Host;
pub(crate) use self::server::{SERVER, serve};
use crate::bare::Bare;
use crate::figures::{self, load, median, micros, quantile, ratio};
use crate::start;
use crate::steps::{self, Disk};

/// Calls between two turns of the other side.
const BLOCK: u64 = 10;

/// Blocks of calls.
const BLOCKS: u64 = 100;

/// Calls at once.
const AT_ONCE: u64 = 100;

/// Rounds of what takes longer.
const ROUNDS: usize = 15;

/// Tools of the large server, and what listing and verifying them may take in milliseconds.
const MANY_TOOLS: usize = 1_000;
const MAX_LISTING_MS: f64 = 300.0;

/// What the gate may add to a call beside its commits, in milliseconds.
const MAX_ADDED_MS: f64 = 0.3;

/// Servers of one proxy, and what it may take in MiB.
const SERVERS: usize = 10;
const MAX_MIB: f64 = 40.0;

/// The calls on the disk at `place`, and in `memory`, where a sync costs nothing.
pub(crate) fn report(place: &Path, memory: Option<&Path>) -> Result<()> {
    let program = start::program()?;
    calls(&program, place, Disk::Syncing)?;
    match memory {
        Some(memory) => calls(&program, memory, Disk::Memory)?,
        None => println!("skipped: proxied calls in memory"),
    }
    listing(&program, memory.unwrap_or(place))?;
    crowded(&program, memory.unwrap_or(place))
}

/// A home with pinned servers.
struct Place {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Place {
    /// Pins this many servers of so many tools each.
    fn pinned(program: &Path, place: &Path, servers: usize, tools: usize) -> Result<Self> {
        let folder = tempfile::tempdir_in(place)?;
        let own = std::env::current_exe()?;
        let mut rules = String::new();
        for server in 0..servers {
            rules.push_str(&format!(
                "[mcp.servers.s{server}]\ncommand = '{}'\nargs = ['{SERVER}', '{tools}']\n",
                own.display()
            ));
            for tool in (0..tools).map(server::tool) {
                rules.push_str(&format!(
                    "[mcp.servers.s{server}.tools.{tool}]\neffect = 'read_only'\n"
                ));
            }
        }
        fs::write(folder.path().join("rules.toml"), rules)?;
        let pinned = Self { program: program.to_path_buf(), folder };
        for server in 0..servers {
            let output = pinned.command(&["pin", &format!("s{server}")]).output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(pinned)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("HOME", self.folder.path())
            .arg("-c")
            .arg(self.folder.path().join("rules.toml"));
        command.args(arguments);
        command
    }

    fn proxy(&self) -> Command {
        self.command(&["proxy", "--thread", "bench"])
    }
}

/// The server without a gate.
fn bare_server(tools: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([SERVER, &tools.to_string()]);
    Ok(command)
}

/// The name under which the proxy shows a tool of the first server.
fn shown() -> String {
    format!("s0_{}", server::tool(0))
}

fn calls(program: &Path, place: &Path, disk: Disk) -> Result<()> {
    println!(
        "\n## a call through the proxy, {} (microseconds, medians of {}; load {})\n",
        disk.told(),
        BLOCKS * BLOCK,
        load()
    );
    let pinned = Place::pinned(program, place, 1, 1)?;
    let (mut direct, mut gated) = (Host::start(bare_server(1)?)?, Host::start(pinned.proxy())?);
    let mut bare = Bare::create(pinned.folder.path(), &steps::template(place, 100)?)?;
    let (mut without, mut with, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let (name, shown) = (server::tool(0), shown());
    let mut record = 0..;
    for block in 0..=BLOCKS {
        let numbers = record.by_ref().take(usize::try_from(BLOCK)?);
        // The first block only warms up.
        let kept = |samples: &mut Vec<f64>, sample| {
            if block > 0 {
                samples.push(sample)
            }
        };
        for record in numbers {
            kept(&mut without, micros(direct.call(&name, record)?));
            kept(&mut with, micros(gated.call(&shown, record)?));
            kept(&mut commits, bare.step()?.whole());
        }
    }
    let line = |what: &str, samples: &[f64]| {
        println!(
            "{what:<28} {:>8.1}  ({:.1} to {:.1})",
            median(samples),
            quantile(samples, 0.1),
            quantile(samples, 0.9)
        );
    };
    line("without the gate", &without);
    line("through the proxy", &with);
    line("the commits of a step alone", &commits);
    let beside: Vec<f64> = with
        .iter()
        .zip(&without)
        .zip(&commits)
        .map(|((with, without), commits)| with - without - commits)
        .collect();
    let name = disk.told();
    ratio(
        &format!("ms that the proxy adds beside the commits of a step, {name}"),
        median(&beside) / 1e3,
        Some(MAX_ADDED_MS),
    );
    ratio(
        &format!("ms that the proxy adds with its commits, {name}"),
        (median(&with) - median(&without)) / 1e3,
        None,
    );
    let tool = server::tool(0);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..u64::try_from(ROUNDS)? {
        let from = (1 << 20) + round * AT_ONCE;
        without.push(micros(direct.call_many(&tool, from, AT_ONCE)?) / 1e3);
        with.push(micros(gated.call_many(&shown, from, AT_ONCE)?) / 1e3);
    }
    println!(
        "{AT_ONCE} at once: {:.1} ms without the gate, {:.1} ms through the proxy",
        median(&without),
        median(&with)
    );
    ratio(
        &format!("ms a call, {AT_ONCE} at once through the proxy, {name}"),
        median(&with) / 100.0,
        None,
    );
    direct.end()?;
    gated.end()
}

/// From the start of the proxy to its list of tools.
fn listing(program: &Path, place: &Path) -> Result<()> {
    println!(
        "\n## {MANY_TOOLS} tools of one server (milliseconds from the start, medians of {ROUNDS}; load {})\n",
        load()
    );
    let few = Place::pinned(program, place, 1, 1)?;
    let many = Place::pinned(program, place, 1, MANY_TOOLS)?;
    let own = 1; // `gate_status`
    let time = |command: Command, tools: usize| -> Result<f64> {
        let begun = Instant::now();
        let mut host = Host::start(command)?;
        let listed = host.list()?;
        let took = micros(begun.elapsed()) / 1e3;
        ensure!(listed == tools, "{listed} tools in place of {tools}");
        host.end()?;
        Ok(took)
    };
    let (mut direct, mut one, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(time(bare_server(MANY_TOOLS)?, MANY_TOOLS)?);
        one.push(time(few.proxy(), 1 + own)?);
        all.push(time(many.proxy(), MANY_TOOLS + own)?);
    }
    println!("without the gate {:>8.1}", median(&direct));
    println!("one tool         {:>8.1}", median(&one));
    println!("{MANY_TOOLS} tools       {:>8.1}", median(&all));
    ratio(
        &format!("ms to list and verify {MANY_TOOLS} tools, with the start"),
        median(&all),
        Some(MAX_LISTING_MS),
    );
    Ok(())
}

/// The memory of a proxy with many servers, and of what it keeps beside each of them.
fn crowded(program: &Path, place: &Path) -> Result<()> {
    println!("\n## memory with {SERVERS} servers of 20 tools each (load {})\n", load());
    let pinned = Place::pinned(program, place, SERVERS, 20)?;
    let mut host = Host::start(pinned.proxy())?;
    ensure!(host.list()? == SERVERS * 20 + 1, "tools are missing");
    for server in 0..SERVERS {
        for record in 0..20 {
            host.call(&format!("s{server}_{}", server::tool(0)), record)?;
        }
    }
    let peak = mib(figures::field(&format!("/proc/{}/status", host.pid()), "VmHWM:")?);
    let shares: Vec<f64> = family(host.pid(), program)?.into_iter().map(mib).collect();
    println!("{} processes of ours share {:.1} MiB", shares.len(), shares.iter().sum::<f64>());
    ensure!(shares.len() > SERVERS, "the keepers of {SERVERS} servers were not found");
    ratio(&format!("MiB at the peak of a proxy with {SERVERS} servers"), peak, Some(MAX_MIB));
    ratio("MiB of it and its keepers, shared pages once", shares.iter().sum(), None);
    host.end()
}

#[allow(clippy::cast_precision_loss, reason = "some ten thousand KiB")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// What this process and those below it that run the same program take, each page divided among who shares it, in KiB.
fn family(first: u32, program: &Path) -> Result<Vec<u64>> {
    let mut shares = Vec::new();
    let mut left = vec![first];
    while let Some(pid) = left.pop() {
        let place = PathBuf::from(format!("/proc/{pid}"));
        for task in fs::read_dir(place.join("task"))? {
            let children = fs::read_to_string(task?.path().join("children"))?;
            left.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        if fs::read_link(place.join("exe"))? == program.canonicalize()? {
            let file = place.join("smaps_rollup");
            shares.push(figures::field(file.to_str().context("a path of digits")?, "Pss:")?);
        }
    }
    Ok(shares)
}
