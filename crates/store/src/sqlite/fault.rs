//! What SQLite's refusals mean to a caller of the store. Its own texts are dropped: they can quote rows.

use portcullis_domain::ports::StoreError;
use rusqlite::{Error, ErrorCode, ffi};

use super::error::OpenError;

/// What an error before the commit means: nothing was stored.
pub(super) fn refusal(error: &Error) -> StoreError {
    let Error::SqliteFailure(failure, _) = error else {
        // A value of another type than every row of ours has there.
        return StoreError::Damaged { table: "database" };
    };
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy,
        ErrorCode::DiskFull => StoreError::Full,
        ErrorCode::ConstraintViolation | ErrorCode::TooBig => StoreError::NotAdmitted,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            StoreError::Damaged { table: "database" }
        }
        ErrorCode::ReadOnly => StoreError::Io("opened for reading only".to_owned()),
        // The index of the log could not grow.
        _ if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::Full,
        _ => StoreError::Io(format!("SQLite code {}", failure.extended_code)),
    }
}

/// Whether the disk had no room. SQLite writes the frame that commits last, so what ran out of room has
/// written no commit, and no recovery can find one.
pub(super) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// What a refusal to open one more connection means to a call.
pub(super) fn closed(error: &OpenError) -> StoreError {
    match error {
        OpenError::Busy { .. } => StoreError::Busy,
        OpenError::DiskFull { .. } => StoreError::Full,
        OpenError::Damaged { .. } | OpenError::NotADatabase { .. } => {
            StoreError::Damaged { table: "database" }
        }
        OpenError::SchemaNewer { .. } => StoreError::WriterTooOld,
        other => StoreError::Io(other.kind().to_owned()),
    }
}
