//! Samples: their middle, and how far they lie apart.

/// The middle sample: of an even number of them, the mean of the two in the middle.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let sorted = sorted(samples);
    let half = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => at(half),
        _ => f64::midpoint(at(half - 1), at(half)),
    }
}

/// The least and the greatest sample.
pub(crate) fn spread(samples: &[f64]) -> (f64, f64) {
    let sorted = sorted(samples);
    let ends = sorted.first().zip(sorted.last());
    ends.map_or((f64::NAN, f64::NAN), |(least, most)| (*least, *most))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 3.0));
    }
}
