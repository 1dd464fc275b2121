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
        ErrorCode::ReadOnly => StoreError::ReadOnly,
        // The index of the log could not grow.
        _ if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::Full,
        _ => StoreError::Medium { code: failure.extended_code },
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
        other => StoreError::NotOpened { why: other.kind() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_sqlite_has_a_name() {
        let means = |code| refusal(&Error::SqliteFailure(ffi::Error::new(code), None));
        assert_eq!(means(ffi::SQLITE_BUSY), StoreError::Busy);
        assert_eq!(means(ffi::SQLITE_FULL), StoreError::Full);
        assert_eq!(means(ffi::SQLITE_CONSTRAINT), StoreError::NotAdmitted);
        assert_eq!(means(ffi::SQLITE_CORRUPT), StoreError::Damaged { table: "database" });
        assert_eq!(means(ffi::SQLITE_READONLY), StoreError::ReadOnly);
        assert_eq!(means(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full);
        let code = ffi::SQLITE_IOERR_FSYNC;
        assert_eq!(means(code), StoreError::Medium { code });
        let path = std::path::PathBuf::from("/x");
        let closed = closed(&OpenError::Swapped { path });
        assert_eq!(closed, StoreError::NotOpened { why: "swapped" });
    }
}
