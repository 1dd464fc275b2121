//! What an operator is told when the command cannot do it: a code, one sentence, and what to do.

use std::fmt;
use std::io;
use std::path::Path;

use portcullis_audit::FileError;
use portcullis_audit::VerifyError;
use portcullis_audit::head::SinkError;
use portcullis_audit::keys::{KeyFileError, KeyringError};
use portcullis_canon::sanitize;
use portcullis_domain::id::RunId;
use portcullis_domain::limits::LimitsError;
use portcullis_domain::ports::StoreError;
use portcullis_egress::{CredentialFault, RulesFault};
use portcullis_engine::{GateError, RegisterError};
use portcullis_sandbox::child::SpawnError;
use portcullis_store::sqlite::error::OpenError;
use portcullis_tools::FilesError;
use rustix::io::Errno;

use crate::exit::Exit;

/// The longest sentence that is printed, in bytes.
const MAX_SENTENCE: usize = 1_000;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// Which page under `docs/errors/` explains it. A number is never used for something else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// `E` and four digits.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

codes! {
    /// There is no database where one was named.
    NoDatabase = "E3001";
    /// Others could have written the database, or it is not a plain file.
    OddDatabase = "E3002";
    /// The file is not a database of this program, or is damaged.
    NotOurs = "E3003";
    /// The schema is another one than this program's.
    Schema = "E3004";
    /// No room.
    DiskFull = "E3005";
    /// This user may not read or write there.
    NoAccess = "E3006";
    /// Another process holds the database too long.
    Busy = "E3007";
    /// The store failed in another way.
    Store = "E3008";
    /// The database was taken from its place while it was open.
    Moved = "E3011";
    /// The database was begun and holds nothing.
    HalfMade = "E3010";
    /// A stored row cannot be read.
    Damaged = "E3009";
    /// A key's file, or the folder of keys.
    Keys = "E4001";
    /// There is no key of that name.
    NoKey = "E4005";
    /// The database does not contain what a kept head says.
    HeadMismatch = "E4002";
    /// The file of heads cannot be used.
    HeadFile = "E4003";
    /// A verification came to no result.
    Verify = "E4004";
    /// There is no such run or question.
    Unknown = "E5001";
    /// Another process drives the run.
    Driven = "E5002";
    /// The run or question is not in a state for this.
    State = "E5003";
    /// What was signed does not count.
    NotApproved = "E5004";
    /// The waiting call's tool is not there.
    ToolMissing = "E5005";
    /// A state that cannot be.
    Bug = "E5006";
    /// What is stored of a question is not what its digests say.
    Forged = "E5007";
    /// Calls that outlived their deadline take every place.
    NoCapacity = "E5008";
    /// This machine cannot confine the agent.
    Unconfined = "E6001";
    /// The agent's program cannot be started.
    AgentStart = "E6002";
    /// A credential is not there, or cannot be used.
    Credential = "E6501";
    /// No rule for outgoing connections can admit an address.
    Outgoing = "E6502";
    /// The folder for the file tools is refused.
    FilesRoot = "E7001";
    /// The HTTP tools cannot be used.
    Http = "E7002";
    /// An MCP server cannot be used.
    Server = "E7501";
    /// What was pinned of an MCP server cannot be used.
    Manifest = "E7502";
    /// No tool of an MCP server can be called.
    NoTools = "E7503";
    /// There is no good login to an MCP server.
    Login = "E7504";
    /// The agent's script cannot be used.
    Script = "E8001";
    /// A model or its provider cannot be used.
    Model = "E8501";
    /// A recording of a model cannot be used.
    Recording = "E8502";
    /// A list of prices cannot be used.
    Prices = "E8503";
    /// Hosts cannot be let in over HTTP.
    Listen = "E9501";
    /// The token of hosts over HTTP cannot be used.
    Token = "E9502";
    /// The configuration file cannot be used.
    Config = "E9001";
    /// An argument cannot be used.
    Argument = "E9002";
    /// There is no place for state and keys.
    NoPlace = "E9003";
    /// A folder of this program's own is not as it has to be.
    OddFolder = "E9004";
    /// A file or folder cannot be read or written.
    Io = "E9005";
    /// It is not known how the run was started.
    NoLaunch = "E9006";
    /// The output cannot be written.
    Output = "E9007";
    /// This process cannot say who it is.
    Identity = "E9008";
    /// Nobody said yes where a yes was needed.
    Undecided = "E9009";
    /// The command line cannot be read.
    Usage = "E9010";
    /// The rules ask more people than can answer.
    TooFewPeople = "E9011";
    /// A host's file cannot be edited without losing something.
    HostFile = "E9021";
}

/// Why the command did not do what it was asked. Nothing was left half-done.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    sentence: String,
    hint: Option<String>,
    exit: Exit,
    quiet: bool,
}

impl Failure {
    /// A refusal. Foreign text in the sentence is made safe when it is printed.
    pub(crate) fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), hint: None, exit: Exit::Refused, quiet: false }
    }

    /// An argument that cannot be used: exit 2.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(Code::Argument, sentence) }
    }

    /// A command line that cannot be read: exit 2.
    pub(crate) fn unread(sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(Code::Usage, sentence) }
    }

    /// A person was needed and did not say yes: exit 2.
    pub(crate) fn undecided(sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(Code::Undecided, sentence) }
    }

    /// Says first what it came of.
    #[must_use]
    pub(crate) fn of(mut self, what: &str) -> Self {
        self.sentence = format!("{what}: {}", self.sentence);
        self
    }

    /// Says what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says how to go on with a run that was already begun, unless there is better advice.
    #[must_use]
    pub(crate) fn about(self, globals: &crate::args::Globals, run: RunId) -> Self {
        if self.hint.is_some() {
            return self;
        }
        let resume = crate::drive::command(globals, &format!("resume {run}"));
        self.hint(format!("go on with `{resume}`"))
    }

    /// A file or folder that cannot be read or written.
    pub(crate) fn io(act: &str, path: &Path, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::StorageFull => Code::DiskFull,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::NoAccess,
            _ => Code::Io,
        };
        Self::new(code, format!("cannot {act} `{}`: {}", path.display(), kind(error)))
    }

    /// Standard output cannot be written. A reader that has seen enough is no failure to speak of.
    pub(crate) fn output(error: &io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let sentence = format!("the output cannot be written: {}", kind(error));
        Self { quiet, ..Self::new(Code::Output, sentence) }
    }

    /// The exit code.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// The page that explains it.
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// True when nobody is there to be told.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The sentence alone, safe to print.
    pub(crate) fn sentence(&self) -> String {
        safe(&self.sentence)
    }

    /// What to do, safe to print.
    pub(crate) fn advice(&self) -> Option<String> {
        self.hint.as_deref().map(safe)
    }
}

fn safe(text: &str) -> String {
    sanitize::clip(&sanitize::line(text), MAX_SENTENCE)
}

fn kind(error: &io::Error) -> String {
    // The kind's words are fixed; a message of the system's own may not be.
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        kind => kind.to_string(),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.sentence())?;
        match self.advice() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let sentence = error.to_string();
        match error {
            StoreError::NotFound(_) => Self::new(Code::Unknown, sentence)
                .hint("list what there is with `portcullis runs` and `portcullis inbox`"),
            StoreError::Leased { .. } | StoreError::LeaseLost => Self::new(Code::Driven, sentence)
                .hint("wait for that process to end, or stop it; a dead one is noticed"),
            StoreError::RunState { .. }
            | StoreError::QuestionState { .. }
            | StoreError::DigestChanged
            | StoreError::OutcomeOpen { .. }
            | StoreError::BudgetSpent { .. }
            | StoreError::ThreadBounded { .. }
            | StoreError::ParentEnded
            | StoreError::Stale
            | StoreError::LabelsMoved
            | StoreError::NotDue => Self::new(Code::State, sentence)
                .hint("nothing was recorded; look again with `portcullis inbox`"),
            StoreError::Damaged { .. } => Self::new(Code::Damaged, sentence),
            StoreError::Full => Self::new(Code::DiskFull, sentence),
            StoreError::Busy => Self::new(Code::Busy, sentence),
            StoreError::WriterTooOld => Self::new(Code::Schema, sentence),
            StoreError::NotAdmitted | StoreError::SyncLevel => Self::new(Code::Bug, sentence),
            StoreError::FileMoved => Self::new(Code::Moved, sentence),
            StoreError::ReadOnly
            | StoreError::NotOpened { .. }
            | StoreError::Medium { .. }
            | StoreError::InDoubt
            | StoreError::Closed => Self::new(Code::Store, sentence),
        }
    }
}

impl From<GateError> for Failure {
    fn from(error: GateError) -> Self {
        let sentence = error.to_string();
        match error {
            GateError::Store(error) => error.into(),
            GateError::Limits(error) => error.into(),
            GateError::ToolMissing(_) => Self::new(Code::ToolMissing, sentence),
            GateError::Approval(_) => Self::new(Code::NotApproved, sentence),
            GateError::Content(_) => Self::new(Code::Damaged, sentence),
            GateError::NoCapacity => Self::new(Code::NoCapacity, sentence),
            GateError::Uncovered => Self::new(Code::Store, sentence),
            GateError::Unpriced(_) | GateError::TooDeep => Self::usage(sentence),
            GateError::Misuse(_) | GateError::Executor | GateError::Bug(_) => {
                Self::new(Code::Bug, sentence)
            }
        }
    }
}

impl From<LimitsError> for Failure {
    fn from(error: LimitsError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        Self::new(Code::Bug, error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::new(open_code(&error), error.to_string())
    }
}

const fn open_code(error: &OpenError) -> Code {
    match error {
        OpenError::BadPath { .. }
        | OpenError::NotFound { .. }
        | OpenError::FolderNotFound { .. } => Code::NoDatabase,
        OpenError::NotADatabase { .. }
        | OpenError::ForeignDatabase { .. }
        | OpenError::Damaged { .. }
        | OpenError::Orphan { .. }
        | OpenError::UnsafeSchema { .. }
        | OpenError::SchemaDiffers { .. } => Code::NotOurs,
        OpenError::SchemaNewer { .. }
        | OpenError::SchemaOlder { .. }
        | OpenError::MigrationDiffers { .. }
        | OpenError::BadMigration { .. } => Code::Schema,
        OpenError::DiskFull { .. } => Code::DiskFull,
        OpenError::PermissionDenied { .. }
        | OpenError::NotWritable { .. }
        | OpenError::NeedsRecovery { .. } => Code::NoAccess,
        OpenError::Busy { .. } => Code::Busy,
        OpenError::NoWal { .. }
        | OpenError::OldSqlite { .. }
        | OpenError::System { .. }
        | OpenError::Sqlite { .. } => Code::Store,
        _ => Code::OddDatabase,
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::new(Code::Keys, error.to_string())
    }
}

impl From<KeyFileError> for Failure {
    fn from(error: KeyFileError) -> Self {
        Self::new(Code::Keys, error.to_string())
    }
}

impl From<KeyringError> for Failure {
    fn from(error: KeyringError) -> Self {
        Self::new(Code::Keys, error.to_string())
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        let code = match &error {
            SinkError::Diverged { .. } => Code::HeadMismatch,
            _ => Code::HeadFile,
        };
        Self::new(code, error.to_string())
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Store(error) => error.into(),
            error => Self::new(Code::Verify, error.to_string()),
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        let sentence = error.to_string();
        match error {
            SpawnError::NotEnforced { .. } | SpawnError::TooManyRules { .. } => {
                Self::new(Code::Unconfined, sentence).hint(
                    "use a kernel with Landlock, or say `--unconfined-agent`, which the record will show",
                )
            }
            SpawnError::Forbidden { .. } => Self::new(Code::AgentStart, sentence)
                .hint("move the agent's program out of that place"),
            SpawnError::Exec { errno, .. } if errno == Errno::NOEXEC.raw_os_error() => {
                Self::new(Code::AgentStart, sentence).hint(
                    "a script's first line has to name its interpreter, such as `#!/usr/bin/env python3`, and a binary has to be one for this machine",
                )
            }
            _ => Self::new(Code::AgentStart, sentence),
        }
    }
}

impl From<CredentialFault> for Failure {
    fn from(fault: CredentialFault) -> Self {
        Self::new(Code::Credential, fault.to_string())
    }
}

impl From<RulesFault> for Failure {
    fn from(fault: RulesFault) -> Self {
        let code = match fault {
            RulesFault::Client => Code::Bug,
            RulesFault::Host(_)
            | RulesFault::Loopback
            | RulesFault::Closed(_)
            | RulesFault::Metadata
            | RulesFault::Twice
            | RulesFault::Deadlines
            | RulesFault::MaxBody
            | RulesFault::Roots(_)
            | RulesFault::Proxy(_) => Code::Outgoing,
        };
        Self::new(code, fault.to_string())
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        Self::new(Code::FilesRoot, error.to_string())
            .hint("name a folder of your own that is there and that no state, key or rule lies in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_differ_and_each_has_its_page() {
        let codes: std::collections::BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for code in codes {
            assert!(pages.join(format!("{code}.md")).is_file(), "{code} has no page");
        }
    }

    #[test]
    fn foreign_text_in_a_sentence_is_one_safe_line() {
        let failure = Failure::usage("no run `\u{1b}[2J\n\u{202e}x`").hint("a\nb");
        let shown = failure.to_string();
        assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
        assert_eq!(failure.exit(), Exit::Usage);
    }
}
