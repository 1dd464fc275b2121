//! Choices drawn from a seed. The same seed draws the same choices, on every machine.

/// A source of choices.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// Choices from this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from zero to below `bound`; zero when there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True that often of a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of these; nothing of none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = self.below(u64::try_from(items.len()).unwrap_or(u64::MAX));
        items.get(usize::try_from(at).unwrap_or(usize::MAX))
    }

    /// One of these, each as often as its weight says; nothing when all weigh nothing.
    pub(crate) fn weighted<T: Copy>(&mut self, items: &[(u64, T)]) -> Option<T> {
        let total = items.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        items.iter().find_map(|(weight, item)| {
            if at < *weight {
                return Some(*item);
            }
            at -= weight;
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_choices_and_each_item_can_come() {
        let draw = |seed| {
            let mut draw = Draw::new(seed);
            (0..40).map(|_| draw.weighted(&[(3, 'a'), (0, 'b'), (1, 'c')])).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let drawn = draw(3);
        assert!(drawn.contains(&Some('a')) && drawn.contains(&Some('c')));
        assert!(!drawn.contains(&Some('b')) && !drawn.contains(&None));
    }

    #[test]
    fn nothing_is_picked_of_nothing() {
        let mut draw = Draw::new(1);
        assert_eq!(draw.pick::<u8>(&[]), None);
        assert_eq!(draw.weighted::<u8>(&[]), None);
        assert_eq!((draw.below(0), draw.between(4, 4)), (0, 4));
    }
}
