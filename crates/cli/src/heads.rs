//! Signed heads outside the database: compared before a run, kept after it.

use std::path::Path;

use portcullis::system::{OsEntropy, SystemClock};
use portcullis_audit::FileError;
use portcullis_audit::Head;
use portcullis_audit::head::{FileSink, HeadResult, HeadSink as _, compare_head, read_heads, tips};
use portcullis_audit::keys::{PublicFileError, PublicKey, SigningKey};
use portcullis_domain::ports::{Clock as _, Ledgers};

use crate::failure::{Code, Failure};
use crate::place::Place;

/// The name of this installation's own key.
const HOST: &str = "host";

/// The file of heads, and the key that signs them.
pub(crate) struct Heads {
    file: std::path::PathBuf,
    key: SigningKey,
}

impl Heads {
    /// Opens this installation's own key, which is made when there is none. It answers no question.
    pub(crate) fn open(file: &Path, place: &Place) -> Result<Self, Failure> {
        let key = SigningKey::open_or_create(&place.host, HOST, &OsEntropy)?;
        Ok(Self { file: file.to_owned(), key })
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
                    return Err(mismatch(head, "does not reach"));
                }
                HeadResult::Diverged => return Err(mismatch(head, "has another record at")),
            }
        }
        if of_this || kept.is_empty() {
            return Ok(());
        }
        let sentence =
            format!("the heads in `{}` are those of another database", self.file.display());
        Err(Failure::new(Code::HeadMismatch, sentence)
            .hint("name the right database with --db, or another file of heads for this one"))
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
}

fn mismatch(head: &Head, how: &str) -> Failure {
    let sentence = format!(
        "the database {how} event {} of {}, which was kept of it: an old copy was put back, or its end was cut",
        head.seq, head.journal
    );
    Failure::new(Code::HeadMismatch, sentence)
        .hint("find out which; `portcullis verify` says what the database itself can show")
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
