//! Tools whose success ends the run: behind a proxy each call is one.

use std::sync::Arc;

use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::ToolSpec;

/// The tools of another source, each of which completes its run.
pub struct Completing(Arc<dyn ToolSource>);

impl Completing {
    /// The same tools, as a proxy needs them.
    #[must_use]
    pub fn new(source: Arc<dyn ToolSource>) -> Self {
        Self(source)
    }
}

impl ToolSource for Completing {
    fn specs(&self) -> Vec<ToolSpec> {
        let completing = |spec| ToolSpec { terminal: true, ..spec };
        self.0.specs().into_iter().map(completing).collect()
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        self.0.call(permit)
    }
}
