//! The list of prices in force: the built-in one, and over it the operator's own file in the configuration folder.

use std::path::{Path, PathBuf};

use portcullis_models::{MAX_PRICE_FILE_BYTES, PriceError, PriceList};

use crate::args::Globals;
use crate::failure::{Code, Failure};
use crate::place;
use crate::trusted::{self, Trusted};

/// Where the operator's list is kept.
pub(crate) fn path(globals: &Globals) -> PathBuf {
    globals.place.config.join("prices.toml")
}

/// The list in force: the built-in one, and the operator's own before it, model by model.
pub(crate) fn list(globals: &Globals) -> Result<PriceList, Failure> {
    let built_in = PriceList::built_in().map_err(|error| misfit(None, &error))?;
    Ok(match own(globals)? {
        None => built_in,
        Some(own) => built_in.merged_with(own),
    })
}

/// The operator's own list, if there is one.
pub(crate) fn own(globals: &Globals) -> Result<Option<PriceList>, Failure> {
    let path = path(globals);
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let text = read(&path)?;
    PriceList::read(&text).map(Some).map_err(|error| misfit(Some(&path), &error))
}

/// The text of a price file that nobody else could have written.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    Trusted { what: "price file", code: Code::Prices, most: MAX_PRICE_FILE_BYTES }.read(path)
}

/// Puts a list in force: the file appears whole, and takes the place of the former one.
pub(crate) fn keep(globals: &Globals, text: &str) -> Result<(), Failure> {
    place::make_private(&globals.place.config)?;
    trusted::replace(&path(globals), text.as_bytes())
}

/// Says what does not fit in a list.
pub(crate) fn misfit(path: Option<&Path>, error: &PriceError) -> Failure {
    let place = path.map(|path| format!(" (`{}`)", path.display())).unwrap_or_default();
    Failure::new(Code::Prices, format!("{error}{place}"))
        .hint("docs/models.md says what a price file looks like")
}
