//! Plays histories by their seeds.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program for the terminal")]

fn main() -> anyhow::Result<()> {
    let from: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(1);
    let mut seen = portcullis_simulate::Seen::default();
    let t = std::time::Instant::now();
    for seed in from..from + n {
        let o = portcullis_simulate::simulate(seed, None)?;
        seen.add(&o.seen);
        if let Some(b) = &o.broken {
            println!("seed {seed}: {b:?}");
            if n == 1 { println!("{}", o.trace()); }
        } else if n == 1 { println!("{}", o.trace()); }
    }
    for k in portcullis_simulate::KINDS { println!("{:>8} {k}", seen.of(k)); }
    println!("{:?}", t.elapsed());
    Ok(())
}
