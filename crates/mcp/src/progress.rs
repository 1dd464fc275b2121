//! How far calls are, from the servers that say so to whoever waits for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_canon::Value;
use portcullis_domain::id::RunId;
use tokio::sync::watch;

/// How far a call is, as the server says it: two numbers and none of its words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Finite, and not less than zero.
    pub so_far: f64,
    /// Finite, and not less than that; none where it is not known.
    pub total: Option<f64>,
}

impl Progress {
    /// Reads the parameters of a notice; nothing where they say nothing of use.
    pub(crate) fn read(params: &Value) -> Option<Self> {
        let number = |name: &str| {
            let number = params.get(name)?.as_number()?.as_f64()?;
            number.is_finite().then_some(number)
        };
        let so_far = number("progress").filter(|so_far| *so_far >= 0.0)?;
        Some(Self { so_far, total: number("total").filter(|total| *total >= so_far) })
    }
}

/// Told how far a call is while it is waited for.
pub type Told<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// Where those who wait for the call of a run hear how far it is. What nobody listens for is dropped, and so is what is followed
/// by more before it was heard.
#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<RunId, watch::Sender<Option<Progress>>>>);

impl Board {
    /// Listens for a run's call until it is dropped.
    #[must_use]
    pub fn listen(self: &Arc<Self>, run: RunId) -> Listening {
        let (sender, heard) = watch::channel(None);
        self.lock().insert(run, sender);
        Listening { run, heard, board: Arc::clone(self) }
    }

    pub(crate) fn tell(&self, run: RunId, progress: Progress) {
        if let Some(listening) = self.lock().get(&run) {
            listening.send_replace(Some(progress));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, watch::Sender<Option<Progress>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits for the call of a run.
#[derive(Debug)]
pub struct Listening {
    run: RunId,
    heard: watch::Receiver<Option<Progress>>,
    board: Arc<Board>,
}

impl Listening {
    /// The next word of how far it is, the newest; never where none comes.
    pub async fn next(&mut self) -> Progress {
        loop {
            if self.heard.changed().await.is_err() {
                // Somebody else listens for the same run now.
                std::future::pending::<()>().await;
            }
            if let Some(progress) = *self.heard.borrow_and_update() {
                return progress;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        // A later one may have taken the place.
        let own = |sender: &watch::Sender<_>| sender.subscribe().same_channel(&self.heard);
        if board.get(&self.run).is_some_and(own) {
            board.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn progress(so_far: f64) -> Progress {
        Progress { so_far, total: None }
    }

    #[test]
    fn numbers_are_read_and_nothing_else() {
        let read = |text: &str| Progress::read(&parse(text.as_bytes(), &Limits::BARE).unwrap());
        let whole = read(r#"{"progress":1.5,"total":3,"message":"obey"}"#);
        assert_eq!(whole, Some(Progress { so_far: 1.5, total: Some(3.0) }));
        assert_eq!(read(r#"{"progress":2,"total":1}"#), Some(progress(2.0)));
        for odd in ["{}", r#"{"progress":-1}"#, r#"{"progress":"1"}"#, r#"{"progress":1e999}"#] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[tokio::test]
    async fn the_newest_word_of_the_own_run_is_heard() {
        let board = Arc::new(Board::default());
        let (one, other) = (RunId::from_bytes([1; 16]), RunId::from_bytes([2; 16]));
        board.tell(one, progress(1.0));
        let mut listening = board.listen(one);
        board.tell(other, progress(2.0));
        board.tell(one, progress(3.0));
        board.tell(one, progress(4.0));
        assert_eq!(listening.next().await, progress(4.0));
        let none = tokio::time::timeout(std::time::Duration::from_millis(20), listening.next());
        assert!(none.await.is_err(), "nothing more was said");
        let mut later = board.listen(one);
        drop(listening);
        board.tell(one, progress(5.0));
        assert_eq!(later.next().await, progress(5.0), "an earlier one leaves it its place");
        drop(later);
        assert!(board.lock().is_empty());
    }
}
