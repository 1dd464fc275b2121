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

/// A number that the kernel tells in a line of a file which begins with `name`.
pub(crate) fn field(file: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    Ok(word.with_context(|| format!("{file} has no {name}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], 1.0), 5.0);
        assert!(median(&[]).is_nan());
    }
}
