//! Playing a recording. What was not recorded fails; there is no live model behind it to fall through to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use portcullis_canon::{Digest, Limits, from_slice};
use portcullis_domain::ports::{
    BoxFuture, Model, ModelCall, ModelFailure, ModelFault, ModelName, ModelOutcome, Price, Shown,
    Usage,
};

use super::folder::{Folder, For, TapeError};
use super::{ExchangeFile, MANIFEST, MAX_FILE, Manifest, file_name, key, shape};
use crate::reply::failure;

/// A recording as a model. Equal requests are answered in the order in which they were recorded.
pub struct Replayer {
    manifest: Manifest,
    folder: Folder,
    nothing: BTreeSet<String>,
    played: Mutex<BTreeMap<Digest, u64>>,
}

impl Replayer {
    /// Opens a recording.
    ///
    /// # Errors
    /// [`TapeError`].
    pub fn open(path: &Path) -> Result<Self, TapeError> {
        let folder = Folder::open(path, For::Playing)?;
        let missing = || shape(MANIFEST, "it is missing, so this is no recording");
        let manifest = Manifest::read(&folder.read(MANIFEST, MAX_FILE)?.ok_or_else(missing)?)?;
        Ok(Self { manifest, folder, nothing: BTreeSet::new(), played: Mutex::default() })
    }

    /// Whose recording it is; render with its dialect, its profile and its seed.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn play(&self, body: &[u8]) -> Result<ModelOutcome, ModelFailure> {
        let not_recorded = |message: &str| failure(ModelFault::NotRecorded, message, None);
        let (key, _) = key(&self.manifest.model, body)
            .ok_or_else(|| not_recorded("the request is no JSON, so it is in no recording"))?;
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = played.get(&key).copied().unwrap_or_default().saturating_add(1);
        let name = file_name(key, nth);
        let broken = |error: TapeError| {
            failure(ModelFault::RecordingFailed, &error.to_string(), Some(Usage::default()))
        };
        let bytes = self.folder.read(&name, MAX_FILE).map_err(broken)?;
        let bytes = bytes.ok_or_else(|| {
            not_recorded(&format!(
                "the recording has no `{name}` for this request, and no model is asked; \
                 replay with the goal, tools, files and limits that were recorded"
            ))
        })?;
        let file: ExchangeFile = from_slice(&bytes, &Limits::ENVELOPE.with_max_bytes(bytes.len()))
            .map_err(|error| broken(shape(&name, error)))?;
        let outcome = file.outcome(&name, self.manifest.dialect).map_err(broken)?;
        played.insert(key, nth);
        Ok(outcome)
    }
}

impl Model for Replayer {
    fn name(&self) -> &ModelName {
        &self.manifest.model
    }

    /// Nobody is paid.
    fn price(&self) -> Price {
        Price::Free
    }

    fn stays_here(&self) -> bool {
        true
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        &self.nothing
    }

    fn attempt(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            match self.play(&call.body) {
                Ok(outcome) => {
                    if let (Some(watch), ModelOutcome::Reply(reply)) = (&call.watch, &outcome) {
                        watch.show(Shown::Text(&reply.text));
                    }
                    outcome
                }
                Err(failure) => ModelOutcome::Failed(failure),
            }
        })
    }
}
