//! Whether a call that is permitted may still begin: the last look before what cannot be taken back.

use std::fmt;
use std::sync::Arc;

/// Says whether the run of a call is still held here. A call may wait long before it begins (for a listing, a token, a
/// connection, a pipe), and its process may be stopped meanwhile, so that somebody else goes on with the run.
///
/// ```
/// use portcullis_domain::standing::Standing;
///
/// assert!(Standing::always().holds());
/// assert!(!Standing::of(|| false).holds());
/// ```
#[derive(Clone)]
pub struct Standing(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Standing {
    /// For what needs no lease.
    #[must_use]
    pub const fn always() -> Self {
        Self(None)
    }

    /// As this says each time.
    #[must_use]
    pub fn of(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(holds)))
    }

    /// Whether what has not begun may begin now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds())
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").finish_non_exhaustive()
    }
}
