//! `portcullis models prices`: the prices in force, with their day, and another list in their place.

use std::io;
use std::path::PathBuf;

use portcullis_domain::ports::Price;
use portcullis_models::{PriceList, show_amount};
use serde::Serialize;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::model::prices;
use crate::output::Out;
use crate::output::table::Columns;

/// Arguments of `models prices`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A list of prices that goes before the built-in one, model by model
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Runs the command. Nothing is fetched: a list comes from a file.
pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, Failure> {
    if let Some(from) = &args.from {
        put(from, globals)?;
    }
    let list = prices::list(globals)?;
    let own = prices::own(globals)?;
    let shown = PricesJson {
        dated: list.dated().to_owned(),
        own_dated: own.as_ref().map(|own| own.dated().to_owned()),
        file: prices::path(globals).display().to_string(),
        models: list.iter().map(|(name, price)| ModelJson::of(name, price, own.as_ref())).collect(),
    };
    let mut out = Out::new();
    let written = if globals.json { out.json(&shown) } else { text(&mut out, &shown) };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

/// Reads the whole list before anything is changed. An older one than the own list in force is refused: prices that went up
/// would be charged too low.
fn put(from: &std::path::Path, globals: &Globals) -> Result<(), Failure> {
    let text = prices::read(from)?;
    let new = PriceList::read(&text).map_err(|error| prices::misfit(Some(from), &error))?;
    if let Some(own) = prices::own(globals)?
        && new.dated() < own.dated()
    {
        let sentence = format!(
            "the list is of {}, and the one in force is of {}; nothing was changed",
            new.dated(),
            own.dated()
        );
        let path = prices::path(globals);
        return Err(Failure::new(Code::Prices, sentence)
            .hint(format!("to go back, remove `{}` first", path.display())));
    }
    prices::keep(globals, &text)
}

/// `models prices`.
#[derive(Debug, Serialize)]
struct PricesJson {
    dated: String,
    own_dated: Option<String>,
    file: String,
    models: Vec<ModelJson>,
}

/// Micros of a unit of money for a million tokens.
#[derive(Debug, Serialize)]
struct ModelJson {
    model: String,
    own: bool,
    free: bool,
    input: u64,
    cache_read: u64,
    cache_write: u64,
    cache_write_long: u64,
    output: u64,
}

impl ModelJson {
    fn of(model: &str, price: Price, own: Option<&PriceList>) -> Self {
        let rates = match price {
            Price::Priced(rates) => rates,
            Price::Free | Price::Unpriced => portcullis_domain::ports::Rates::default(),
        };
        Self {
            model: model.to_owned(),
            own: own.is_some_and(|own| own.iter().any(|(name, _)| name == model)),
            free: price == Price::Free,
            input: rates.input,
            cache_read: rates.cache_read,
            cache_write: rates.cache_write,
            cache_write_long: rates.cache_write_long,
            output: rates.output,
        }
    }
}

fn text(out: &mut Out, shown: &PricesJson) -> io::Result<()> {
    let headings = ["MODEL", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "FROM"];
    let mut table = Columns::new(&headings);
    for model in &shown.models {
        let amount = |micros| if model.free { "free".to_owned() } else { show_amount(micros) };
        let from = if model.own { "your list" } else { "built-in list" };
        table.row([
            model.model.clone(),
            amount(model.input),
            amount(model.output),
            amount(model.cache_read),
            amount(model.cache_write),
            from.to_owned(),
        ]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    let own = shown.own_dated.as_deref().map_or_else(
        || "there is no list of yours".to_owned(),
        |dated| format!("your list is of {dated}"),
    );
    out.line(&format!(
        "dollars for a million tokens; the oldest list here is of {}, {own}",
        shown.dated
    ))
}
