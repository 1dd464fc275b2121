//! Why a database file was not opened: one sentence each, with what to do about it.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::io::Errno;

/// Why a database was refused. Nothing was changed in a file that was refused, except that a writer may
/// already have taken away its permission bits for others.
///
/// Paths and names of schema objects are escaped as in a Rust string, so a message is always one line of
/// printable text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "`path` is the file or folder meant; each other field is in the message"
)]
pub enum OpenError {
    /// The path has no file name, or holds a zero byte.
    #[error("{path:?} does not name a file; give the path of a database file")]
    BadPath { path: PathBuf },
    /// There is no such file, and this way of opening never makes one.
    #[error("there is no database at {path:?}; check the path, or create one with `init`")]
    NotFound { path: PathBuf },
    /// The folder that should hold the file is missing.
    #[error("the folder {path:?} does not exist; create it first, with mode 0700")]
    FolderNotFound { path: PathBuf },
    /// The file, or one that belongs to it, is a symbolic link.
    #[error("{path:?} is a symbolic link; give the path of the database file itself")]
    Symlink { path: PathBuf },
    /// A folder, FIFO, socket or device stands where a file should.
    #[error("{path:?} is not a regular file; move it away or give another path")]
    NotRegular { path: PathBuf },
    /// The file has a second name, through which it could be opened under other side files.
    #[error(
        "{path:?} has {links} hard links; remove the other names, or copy the file while nothing writes to it"
    )]
    HardLinked { path: PathBuf, links: u64 },
    /// The file belongs to another user.
    #[error("{path:?} belongs to user id {owner}; run as that user, or change its owner")]
    ForeignOwner { path: PathBuf, owner: u32 },
    /// Group or others may write to the file.
    #[error(
        "{path:?} may be written by others (mode {mode:04o}); check what it holds, then set its mode to 0600"
    )]
    WritableByOthers { path: PathBuf, mode: u32 },
    /// The folder belongs to another user than this one or root.
    #[error(
        "the folder {path:?} belongs to user id {owner}; keep the database in a folder of your own"
    )]
    FolderForeignOwner { path: PathBuf, owner: u32 },
    /// Group or others may rename files in the folder.
    #[error("the folder {path:?} may be written by others (mode {mode:04o}); set its mode to 0700")]
    FolderWritableByOthers { path: PathBuf, mode: u32 },
    /// A side file is there without its database; a new database would destroy what it holds.
    #[error("{path:?} is left without its database; put the database back, or move this file away")]
    Orphan { path: PathBuf },
    /// A file was swapped between the check and its use.
    #[error(
        "{path:?} was replaced while it was being opened; find out who did that, then try again"
    )]
    Swapped { path: PathBuf },
    /// The file is something else, or is empty.
    #[error("{path:?} is not a database; give the path of a Portcullis database")]
    NotADatabase { path: PathBuf },
    /// Another program's SQLite database.
    #[error(
        "{path:?} is a database of another program (application id {application_id:#010x}); give the path of a Portcullis database"
    )]
    ForeignDatabase { path: PathBuf, application_id: i32 },
    /// The file is cut short or its pages contradict one another.
    #[error("{path:?} is damaged or cut short; restore it from a backup")]
    Damaged { path: PathBuf },
    /// Written by a newer program.
    #[error(
        "{path:?} has schema {found} and this program knows up to {supported}; use a newer program"
    )]
    SchemaNewer { path: PathBuf, found: i64, supported: i64 },
    /// A reader cannot bring an old schema up to date.
    #[error(
        "{path:?} has schema {found} and this program reads {supported}; run a writing command once to upgrade it"
    )]
    SchemaOlder { path: PathBuf, found: i64, supported: i64 },
    /// A trigger, view or virtual table, which would run its author's SQL inside ours.
    #[error(
        "{path:?} holds the {kind} {name:?}, which could run foreign SQL; restore the database from a backup"
    )]
    UnsafeSchema { path: PathBuf, kind: UnsafeObject, name: String },
    /// A table or index that is missing, unknown or not as the migrations make it.
    #[error(
        "{path:?} has a schema that differs from ours at {name:?}; restore the database from a backup"
    )]
    SchemaDiffers { path: PathBuf, name: String },
    /// The recorded checksum of a migration is not that of the one in this program.
    #[error(
        "{path:?} was made with another migration {version} than this program has; use the program that made it"
    )]
    MigrationDiffers { path: PathBuf, version: i64 },
    /// The program's own list of migrations is wrong, or one of them failed.
    #[error(
        "migration {version} of this program cannot be applied to {path:?}; report this as a bug"
    )]
    BadMigration { path: PathBuf, version: i64 },
    /// Others held the file for longer than we wait.
    #[error("{path:?} stayed locked by another process; try again when that one is done")]
    Busy { path: PathBuf },
    /// The file system cannot keep a write-ahead log.
    #[error("{path:?} cannot use a write-ahead log there; move the database to a local disk")]
    NoWal { path: PathBuf },
    /// The file's last writer did not finish, and only somebody who may write to the folder can repair that.
    #[error(
        "{path:?} was not closed cleanly and its folder is read-only; open it once where it can be written"
    )]
    NeedsRecovery { path: PathBuf },
    /// This user may not read the file, or not look into its folder.
    #[error(
        "{path:?} may not be opened by this user; check the permissions of the file and its folder"
    )]
    PermissionDenied { path: PathBuf },
    /// A writer may not write to the file or its folder.
    #[error("{path:?} cannot be written by this user; make the file and its folder writable")]
    NotWritable { path: PathBuf },
    /// No room left.
    #[error("the disk that holds {path:?} is full; free some space and try again")]
    DiskFull { path: PathBuf },
    /// The SQLite library linked in has a known fault that corrupts databases.
    #[error(
        "SQLite {found} can corrupt databases when several processes write; build with 3.51.3 or newer"
    )]
    OldSqlite { found: i32 },
    /// The system refused a call on the file.
    #[error("{path:?} cannot be opened; the system says: {source}")]
    System { path: PathBuf, source: Errno },
    /// SQLite refused in a way that has no case of its own; `code` is its extended result code.
    #[error("SQLite refuses {path:?} with code {code}; check the disk, then restore from a backup")]
    Sqlite { path: PathBuf, code: i32 },
}

/// What an unsafe schema object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsafeObject {
    /// `CREATE TRIGGER`.
    Trigger,
    /// `CREATE VIEW`.
    View,
    /// `CREATE VIRTUAL TABLE`.
    VirtualTable,
}

impl std::fmt::Display for UnsafeObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Trigger => "trigger",
            Self::View => "view",
            Self::VirtualTable => "virtual table",
        })
    }
}

impl OpenError {
    /// The stable name of this case, for JSON output and error pages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadPath { .. } => "bad_path",
            Self::NotFound { .. } => "not_found",
            Self::FolderNotFound { .. } => "folder_not_found",
            Self::Symlink { .. } => "symlink",
            Self::NotRegular { .. } => "not_regular",
            Self::HardLinked { .. } => "hard_linked",
            Self::ForeignOwner { .. } => "foreign_owner",
            Self::WritableByOthers { .. } => "writable_by_others",
            Self::FolderForeignOwner { .. } => "folder_foreign_owner",
            Self::FolderWritableByOthers { .. } => "folder_writable_by_others",
            Self::Orphan { .. } => "orphan",
            Self::Swapped { .. } => "swapped",
            Self::NotADatabase { .. } => "not_a_database",
            Self::ForeignDatabase { .. } => "foreign_database",
            Self::Damaged { .. } => "damaged",
            Self::SchemaNewer { .. } => "schema_newer",
            Self::SchemaOlder { .. } => "schema_older",
            Self::UnsafeSchema { .. } => "unsafe_schema",
            Self::SchemaDiffers { .. } => "schema_differs",
            Self::MigrationDiffers { .. } => "migration_differs",
            Self::BadMigration { .. } => "bad_migration",
            Self::Busy { .. } => "busy",
            Self::NoWal { .. } => "no_wal",
            Self::NeedsRecovery { .. } => "needs_recovery",
            Self::PermissionDenied { .. } => "permission_denied",
            Self::NotWritable { .. } => "not_writable",
            Self::DiskFull { .. } => "disk_full",
            Self::OldSqlite { .. } => "old_sqlite",
            Self::System { .. } => "system",
            Self::Sqlite { .. } => "sqlite",
        }
    }

    /// What a failed system call on `path` means.
    pub(super) fn from_errno(path: &Path, errno: Errno) -> Self {
        let path = path.to_path_buf();
        match errno {
            Errno::NOENT => Self::NotFound { path },
            Errno::LOOP => Self::Symlink { path },
            Errno::NOTDIR => Self::FolderNotFound { path },
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied { path },
            Errno::ROFS => Self::NotWritable { path },
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { path },
            source => Self::System { path, source },
        }
    }

    /// What SQLite's refusal means. SQLite's own text is dropped: it can quote what the file holds.
    pub(super) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        let rusqlite::Error::SqliteFailure(failure, _) = error else {
            return Self::Damaged { path }; // a value of another type than every file of ours has there
        };
        match failure.code {
            ErrorCode::NotADatabase => Self::NotADatabase { path },
            ErrorCode::DatabaseCorrupt => Self::Damaged { path },
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy { path },
            ErrorCode::DiskFull => Self::DiskFull { path },
            ErrorCode::ReadOnly => Self::NotWritable { path },
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => Self::PermissionDenied { path },
            _ if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
                Self::Damaged { path }
            }
            // The index of the log could not grow.
            _ if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => {
                Self::DiskFull { path }
            }
            _ => Self::Sqlite { path, code: failure.extended_code },
        }
    }
}
