//! Signed heads outside the database: compared before a run, kept after it.

use std::path::{Path, PathBuf};

use portcullis::system::{OsEntropy, SystemClock};
use portcullis_audit::FileError;
use portcullis_audit::Head;
use portcullis_audit::head::{FileSink, HeadResult, HeadSink as _, compare_head, read_heads, tips};
use portcullis_audit::keys::{PublicFileError, PublicKey, SigningKey};
use portcullis_domain::ports::{Clock as _, Ledgers};
use portcullis_domain::row::Row as _;
use portcullis_domain::run::Run;

use crate::args::Globals;
use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::words::quote;

/// The name of this installation's own key.
const HOST: &str = "host";

/// The file of heads, and the key that signs them.
pub(crate) struct Heads {
    file: PathBuf,
    key: SigningKey,
    /// The operator named the file, so it has to be there once something was recorded.
    named: bool,
}

/// The file in which the heads of this database are kept, and whether the operator named it: the configured one,
/// else for the usual database one beside this installation's own key. Other databases have none by themselves.
pub(crate) fn file_of(globals: &Globals, config: &Config) -> Option<(PathBuf, bool)> {
    let usual = (globals.db == globals.place.database()).then(|| (globals.place.heads(), false));
    config.head.clone().map(|named| (named, true)).or(usual)
}

impl Heads {
    /// Where the heads of this database are kept, if anywhere.
    pub(crate) fn of(globals: &Globals, config: &Config) -> Result<Option<Self>, Failure> {
        let Some((file, named)) = file_of(globals, config) else { return Ok(None) };
        Ok(Some(Self { named, ..Self::open(&file, &globals.place)? }))
    }

    /// Opens this installation's own key, which is made when there is none. It answers no question.
    pub(crate) fn open(file: &Path, place: &Place) -> Result<Self, Failure> {
        let key = SigningKey::open_or_create(&place.host, HOST, &OsEntropy)?;
        Ok(Self { file: file.to_owned(), key, named: true })
    }

    /// Refuses a database that does not contain what was kept of it: a cut tail, or an old copy put back.
    pub(crate) fn compare(&self, ledgers: &dyn Ledgers) -> Result<(), Failure> {
        let kept = read_heads(&self.file)?;
        let mut ledger = ledgers.begin()?;
        let mut of_this = false;
        for head in &kept {
            if head.instance != ledger.instance() {
                continue;
            }
            head.check(&self.key.public()).map_err(|error| {
                Failure::new(
                    Code::HeadFile,
                    format!("a head in `{}` proves nothing: {error}", self.file.display()),
                )
                .hint(
                    "put back the file of heads or this installation's key, whichever was changed",
                )
            })?;
            match compare_head(ledger.as_mut(), head)? {
                HeadResult::Same | HeadResult::Grown => of_this = true,
                HeadResult::Cut | HeadResult::OtherInstance => {
                    return Err(self.mismatch(head, "does not reach"));
                }
                HeadResult::Diverged => return Err(self.mismatch(head, "has another record at")),
            }
        }
        // Of a file that nobody named, nobody was told that it must stay.
        if of_this || !self.named || kept.is_empty() && ledger.count(Run::TABLE)? == 0 {
            return Ok(());
        }
        Err(missing(&self.file, kept.is_empty()))
    }

    /// Keeps where the database ends now.
    pub(crate) fn keep(&self, ledgers: &dyn Ledgers) -> Result<(), Failure> {
        let mut ledger = ledgers.begin()?;
        let at = SystemClock::new().now();
        for (journal, tip) in tips(ledger.as_mut())? {
            let head = Head::sign(ledger.instance(), journal, tip, at, &self.key);
            FileSink::new(&self.file).keep(&head)?;
        }
        Ok(())
    }

    fn mismatch(&self, head: &Head, how: &str) -> Failure {
        let sentence = format!(
            "the database {how} event {} of {}, which was kept of it: an old copy was put back, or its end was cut",
            head.seq, head.journal
        );
        Failure::new(Code::HeadMismatch, sentence).hint(format!(
            "find out which, with `portcullis verify`; to accept the loss, move `{}` away",
            self.file.display()
        ))
    }
}

/// A database in which something was recorded, and a named file that does not know of it.
pub(crate) fn missing(file: &Path, empty: bool) -> Failure {
    let shown = file.display();
    if empty {
        let sentence = format!("runs are recorded, and `{shown}` holds no head or is not there");
        let begin = quote(&file.to_string_lossy());
        return Failure::new(Code::HeadMismatch, sentence).hint(format!(
            "put the file back; if this database is the right one, `portcullis verify --write-head {begin}` begins it"
        ));
    }
    let sentence = format!("the heads in `{shown}` are those of another database");
    Failure::new(Code::HeadMismatch, sentence)
        .hint("name the right database with --db, or another file of heads for this one")
}

/// The public half of this installation's own key, which heads are checked with; nothing where no head was
/// ever signed.
pub(crate) fn public_key(place: &Place) -> Result<Option<PublicKey>, Failure> {
    match PublicKey::open(&place.host.join(format!("{HOST}.pub"))) {
        Ok(key) => Ok(Some(key)),
        Err(PublicFileError::File(FileError::Missing { .. })) => Ok(None),
        Err(error) => Err(Failure::new(Code::Keys, error.to_string())),
    }
}
