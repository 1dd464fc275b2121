//! Recording beside a live model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_canon::{Digest, Value, to_vec};
use portcullis_domain::ports::{
    BoxFuture, Model, ModelCall, ModelFault, ModelName, ModelOutcome, Price,
};

use super::folder::{Folder, For, TapeError};
use super::{ExchangeFile, MANIFEST, MAX_FILE, Manifest, file_name, key, shape};
use crate::reply::failure;

/// A model that writes down each whole reply, and each body that is refused, before it hands on what came of it.
///
/// The first exchange of a request in its life takes the place of what an earlier recording had for it.
pub struct Recorder {
    inner: Arc<dyn Model>,
    manifest: Manifest,
    folder: Folder,
    /// How many exchanges each key has.
    written: Mutex<BTreeMap<Digest, u64>>,
}

impl Recorder {
    /// Records `inner` into a folder, which is made where it is missing. A recording that is there is gone on with: it has
    /// to be of the same model, dialect and members of requests; its profile, its seed and its cap on replies are used again.
    ///
    /// # Errors
    /// [`TapeError`].
    pub fn open(inner: Arc<dyn Model>, path: &Path, manifest: Manifest) -> Result<Self, TapeError> {
        let folder = Folder::open(path, For::Recording)?;
        let manifest = match folder.read(MANIFEST, MAX_FILE)? {
            None => {
                folder.write(MANIFEST, &manifest.write()?)?;
                manifest
            }
            Some(bytes) => {
                let there = Manifest::read(&bytes)?;
                let other = |what| Err(TapeError::Other { what });
                if there.model != manifest.model {
                    return other("model");
                }
                if there.dialect != manifest.dialect {
                    return other("dialect");
                }
                if there.extra != manifest.extra {
                    return other("set of request members");
                }
                there
            }
        };
        Ok(Self { inner, manifest, folder, written: Mutex::default() })
    }

    /// Whose recording it is; render with its profile and its seed.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Held over the write, so that equal requests at once get places in the order of their files.
    fn write(&self, body: &[u8], outcome: &ModelOutcome, pieces: bool) -> Result<(), TapeError> {
        let wrong = || shape("the request", "it is no JSON");
        let (key, request): (Digest, Value) = key(self.inner.name(), body).ok_or_else(wrong)?;
        let file = match outcome {
            ModelOutcome::Reply(reply) => Some(ExchangeFile::of(self.inner.name(), request, reply)),
            ModelOutcome::Failed(failure) => {
                ExchangeFile::of_refused(self.inner.name(), request, failure, pieces)
            }
            ModelOutcome::Stopped { .. } => None,
        };
        let Some(file) = file else { return Ok(()) };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = written.get(&key).copied().unwrap_or_default().saturating_add(1);
        let name = file_name(key, nth);
        let bytes = to_vec(&file).map_err(|error| shape(&name, error))?;
        if nth == 1 {
            for old in 2..u64::MAX {
                if !self.folder.remove(&file_name(key, old))? {
                    break;
                }
            }
        }
        self.folder.write(&name, &bytes)?;
        written.insert(key, nth);
        Ok(())
    }
}

impl Model for Recorder {
    fn name(&self) -> &ModelName {
        self.inner.name()
    }

    fn price(&self) -> Price {
        self.inner.price()
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        self.inner.marked_for()
    }

    fn attempt(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            let (body, pieces) = (Arc::clone(&call.body), call.watch.is_some());
            let outcome = self.inner.attempt(call).await;
            let Err(error) = self.write(&body, &outcome, pieces) else { return outcome };
            let usage = match &outcome {
                ModelOutcome::Reply(reply) => reply.usage,
                ModelOutcome::Failed(failure) => failure.usage,
                ModelOutcome::Stopped { .. } => None,
            };
            let message = format!("the reply came and could not be recorded: {error}");
            ModelOutcome::Failed(failure(ModelFault::RecordingFailed, &message, usage))
        })
    }
}
