//! Runs a program confined, says what was enforced, and passes its output on.
//!
//! `confine [--unconfined] [--kept] [--network] [--scratch DIR] [--read PATH] [--forbid PATH] [--processes N] [--gone] -- PROGRAM [ARGUMENT...]`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::ffi::OsString;
use std::process::ExitCode;

use portcullis_sandbox::child::{self, AgentSpec, Network};

fn main() -> ExitCode {
    child::run_if_child();
    match run(std::env::args_os().skip(1)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("confine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: impl Iterator<Item = OsString>) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut spec = AgentSpec::new("", std::env::temp_dir());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or("an option lacks its value");
        match arg.to_str() {
            Some("--unconfined") => spec.confined = false,
            Some("--kept") => spec.kept = true,
            Some("--network") => spec.network = Network::Open,
            Some("--scratch") => spec.scratch = value()?.into(),
            Some("--read") => spec.readable.push(value()?.into()),
            Some("--forbid") => spec.forbidden.push(value()?.into()),
            Some("--processes") => {
                spec.bounds.processes = value()?.to_str().unwrap_or_default().parse()?;
            }
            // As if this program had been replaced meanwhile.
            Some("--gone") => std::fs::remove_file(std::env::current_exe()?)?,
            Some("--") => break,
            _ => return Err("unknown option".into()),
        }
    }
    spec.program = args.next().ok_or("name a program after --")?;
    spec.args = args.collect();

    let mut agent = child::spawn(&spec, "/proc/self/exe".as_ref())?;
    println!("{} {:?}", agent.id(), agent.confinement);
    let (stdout, stderr) = (agent.stdout.take(), agent.stderr.take());
    let errors = std::thread::spawn(move || {
        stderr.map(|mut from| std::io::copy(&mut from, &mut std::io::stderr()))
    });
    if let Some(mut from) = stdout {
        std::io::copy(&mut from, &mut std::io::stdout())?;
    }
    let status = agent.wait()?;
    let _ = errors.join();
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
