//! Samples and what is printed of them.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The value below which this part of the samples lies.
pub(crate) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list of samples"
    )]
    let place = (last as f64 * part).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// The middle sample.
pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Microseconds of this time for each of so many.
#[allow(clippy::cast_precision_loss, reason = "some ten thousand steps or events")]
pub(crate) fn each(time: Duration, count: u64) -> f64 {
    micros(time) / count as f64
}

/// Prints a ratio in the form that `cargo xtask bench` gathers.
pub(crate) fn ratio(name: &str, value: f64, limit: Option<f64>) {
    match limit {
        Some(limit) => println!("ratio: {name} = {value:.3} limit {limit}"),
        None => println!("ratio: {name} = {value:.3}"),
    }
}

/// Prints a figure that should be at least this, in the same form.
pub(crate) fn at_least(name: &str, value: f64, least: f64) {
    println!("ratio: {name} = {value:.3} least {least}");
}

/// The machine's load averages: figures that were taken beside other work say so.
pub(crate) fn load() -> String {
    let read = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Bytes that this process has had written to disks until now.
pub(crate) fn written() -> Result<u64> {
    field("/proc/self/io", "write_bytes:")
}

/// The kernel counts a process's time in hundredths of a second, whatever its own clock is.
const TICK: Duration = Duration::from_millis(10);

/// The time that all threads of this process have had a processor until now, ended ones too: what something costs
/// whether or not others want the processors meanwhile. In steps of 10 ms.
pub(crate) fn busy() -> Result<Duration> {
    let file = "/proc/self/stat";
    let text = std::fs::read_to_string(file)?;
    // The program's own name, in brackets, may hold blanks; the times are the twelfth and thirteenth word behind it.
    let behind = text.rsplit(')').next().unwrap_or_default();
    let words = behind.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    let ticks = words.sum::<Result<u32, _>>().with_context(|| format!("{file} has no times"))?;
    Ok(TICK * ticks)
}

/// A number that the kernel tells in a line of a file which begins with `name`.
pub(crate) fn field(file: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    Ok(word.with_context(|| format!("{file} has no {name}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn whoever_works_is_busy() {
        let (before, begun) = (busy().unwrap(), Instant::now());
        let worked = || busy().unwrap() - before;
        while worked() < 3 * TICK && begun.elapsed() < Duration::from_secs(60) {}
        assert!(worked() >= 3 * TICK, "a minute of work is not counted");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], 1.0), 5.0);
        assert!(median(&[]).is_nan());
    }
}
