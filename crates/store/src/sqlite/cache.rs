//! What the writer remembers of rows that it wrote, in a bounded amount.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that forgets what was not used for longest.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
    most: usize,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    /// Room for this many, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), clock: 0, most: most.max(1) }
    }

    pub(super) fn get(&mut self, key: K) -> Option<V> {
        self.clock = self.clock.saturating_add(1);
        let (used, value) = self.entries.get_mut(&key)?;
        *used = self.clock;
        Some(value.clone())
    }

    /// Takes a value out. Whoever changes it puts it back.
    pub(super) fn take(&mut self, key: K) -> Option<V> {
        self.entries.remove(&key).map(|(_, value)| value)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        self.clock = self.clock.saturating_add(1);
        self.entries.insert(key, (self.clock, value));
        if self.entries.len() > self.most {
            self.forget_a_quarter();
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Many at once, so that the search for them is paid rarely.
    fn forget_a_quarter(&mut self) {
        let mut times: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        times.sort_unstable();
        let cut = times.get(times.len() / 4).copied().unwrap_or(0);
        self.entries.retain(|_, (used, _)| *used > cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes_first_and_the_bound_holds() {
        let mut cache = Cache::new(8);
        for key in 0..8_u32 {
            cache.put(key, key);
        }
        assert_eq!(cache.get(0), Some(0));
        cache.put(8, 8);
        assert_eq!((cache.get(0), cache.get(1), cache.get(8)), (Some(0), None, Some(8)));
        for key in 0..1000 {
            cache.put(key, key);
            assert!(cache.entries.len() <= 8);
        }
    }
}
