//! What a host is told while its call is on its way: that it waits, in words of ours, and how far the server says that it is,
//! in numbers alone.

use std::sync::{Mutex, PoisonError};

use portcullis_mcp::{Hearing, HostProgress, Progress};

/// The most notices of a server that are told on, for one call.
const MAX_FROM_SERVER: u32 = 1_000;

/// One host that waits for one call.
pub(super) struct Notices<'a> {
    hearing: &'a dyn Hearing,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// The last number that the host was told: the next is larger. A server may begin with zero where nothing was told before.
    last: Option<f64>,
    /// Where the server's own numbers begin.
    base: Option<f64>,
    from_server: u32,
}

impl<'a> Notices<'a> {
    pub(super) fn new(hearing: &'a dyn Hearing) -> Self {
        Self { hearing, told: Mutex::default() }
    }

    /// Says that it waits.
    pub(super) async fn waits(&self, message: &'static str) {
        let notice = self.told.lock().unwrap_or_else(PoisonError::into_inner).waits(message);
        self.hearing.progress(notice).await;
    }

    /// Says how far it is, if that is news to the host.
    pub(super) async fn goes_on(&self, progress: Progress) {
        let notice = self.told.lock().unwrap_or_else(PoisonError::into_inner).goes_on(progress);
        if let Some(notice) = notice {
            self.hearing.progress(notice).await;
        }
    }

    /// Resolves once the host waits no more.
    pub(super) async fn cancelled(&self) {
        self.hearing.cancelled().await;
    }
}

impl Told {
    fn waits(&mut self, message: &'static str) -> HostProgress {
        let so_far = self.last.unwrap_or(0.0).floor() + 1.0;
        self.last = Some(so_far);
        HostProgress { so_far, total: None, message: Some(message) }
    }

    /// The server counts from zero; the host has been told of the waiting before.
    fn goes_on(&mut self, progress: Progress) -> Option<HostProgress> {
        let base = *self.base.get_or_insert(self.last.unwrap_or(0.0));
        let so_far = base + progress.so_far;
        let is_news = self.last.map_or(so_far >= 0.0, |last| so_far > last);
        if !is_news || !so_far.is_finite() || self.from_server >= MAX_FROM_SERVER {
            return None;
        }
        (self.last, self.from_server) = (Some(so_far), self.from_server.saturating_add(1));
        let total = progress.total.map(|total| base + total).filter(|total| total.is_finite());
        Some(HostProgress { so_far, total, message: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(so_far: f64, total: f64) -> Progress {
        Progress { so_far, total: Some(total) }
    }

    fn told(notice: Option<HostProgress>) -> Option<(f64, Option<f64>)> {
        notice.map(|notice| (notice.so_far, notice.total))
    }

    #[test]
    fn numbers_only_grow_whoever_says_them() {
        let mut host = Told::default();
        assert_eq!(host.waits("w").so_far, 1.0);
        assert_eq!(host.waits("w").so_far, 2.0);
        assert_eq!(told(host.goes_on(at(0.0, 4.0))), None, "the host was told that before");
        assert_eq!(told(host.goes_on(at(0.5, 4.0))), Some((2.5, Some(6.0))));
        assert_eq!(told(host.goes_on(at(0.25, 4.0))), None);
        assert_eq!(host.waits("w").so_far, 3.0);
        assert_eq!(told(host.goes_on(at(1.0, 4.0))), None);
        assert_eq!(told(host.goes_on(at(4.0, 4.0))), Some((6.0, Some(6.0))));
        assert_eq!(told(host.goes_on(at(f64::MAX, f64::MAX))), Some((f64::MAX, Some(f64::MAX))));
        assert_eq!(told(host.goes_on(at(f64::MAX, f64::MAX))), None);
    }

    #[test]
    fn a_server_may_begin_with_zero_once() {
        let mut host = Told::default();
        for odd in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(told(host.goes_on(at(odd, 1.0))), None, "{odd}");
        }
        assert_eq!(told(host.goes_on(at(0.0, 100.0))), Some((0.0, Some(100.0))));
        assert_eq!(told(host.goes_on(at(0.0, 100.0))), None);
        assert_eq!(told(host.goes_on(at(50.0, 100.0))), Some((50.0, Some(100.0))));
        assert_eq!(host.waits("w").so_far, 51.0);
    }

    #[test]
    fn a_server_that_does_not_end_is_not_told_on_without_end() {
        let mut host = Told::default();
        let said = (1..5_000).filter_map(|n| host.goes_on(at(f64::from(n), 1.0)));
        assert_eq!(said.count(), 1_000);
        assert!(host.waits("w").so_far > 1_000.0);
    }
}
