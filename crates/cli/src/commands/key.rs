//! `portcullis key`: makes reviewers' keys and shows their public halves. No private half is ever read here.

use portcullis::system::OsEntropy;
use portcullis_audit::FileError;
use portcullis_audit::keys::{KeyEntry, KeyFileError, Keyring, KeyringError, SigningKey};

use crate::args::{Globals, is_key_name};
use crate::assemble;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::wire::KeyJson;

/// Arguments of `key`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// List who may answer: the configured reviewers, else the keys of the key folder
    List,
    /// Show one key of the key folder
    Show {
        /// The key's name
        #[arg(value_parser = name)]
        name: String,
    },
    /// Draw a key: NAME.key for its owner alone, NAME.pub for everybody
    New {
        /// The key's name: the person whose key it is
        #[arg(value_parser = name)]
        name: String,
    },
    /// Print the public key of the key folder that a configuration names
    Public {
        /// The key's name [default: your user name]
        #[arg(value_parser = name)]
        name: Option<String>,
    },
}

fn name(text: &str) -> Result<String, String> {
    if is_key_name(text) {
        Ok(text.to_owned())
    } else {
        Err("use 1 to 60 letters, digits, `.`, `-` or `_`, not starting with `.`".to_owned())
    }
}

/// Does it.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    match args.act {
        Act::List => {
            let ring = assemble::keyring(globals)?;
            tell(ring.entries().map(|(_, entry)| entry), globals)
        }
        Act::Show { name } => tell([&of_folder(&name, globals)?].into_iter(), globals),
        Act::New { name } => {
            let key = match SigningKey::create(&globals.place.keys, &name, &OsEntropy) {
                Err(error @ KeyFileError::File(FileError::Exists { .. })) => {
                    return Err(Failure::from(error).hint("choose another name"));
                }
                made => made?,
            };
            tell([&KeyEntry::new(key.public(), &name, ["operator"])].into_iter(), globals)
        }
        Act::Public { name } => {
            let name = name.as_deref().or(globals.key.as_deref()).unwrap_or(&globals.user);
            let entry = of_folder(name, globals)?;
            if globals.json {
                return tell([&entry].into_iter(), globals);
            }
            crate::say(&[entry.key.to_string()])?;
            Ok(Exit::Done)
        }
    }
}

fn of_folder(name: &str, globals: &Globals) -> Result<KeyEntry, Failure> {
    let ring = match Keyring::load_dir(&globals.place.keys) {
        Err(KeyringError::Folder(FileError::Missing { .. })) => Keyring::default(),
        loaded => loaded?,
    };
    let found = ring.entries().map(|(_, entry)| entry).find(|entry| entry.person == name).cloned();
    found.ok_or_else(|| {
        let folder = globals.place.keys.display();
        Failure::new(Code::NoKey, format!("there is no key `{name}` in `{folder}`"))
            .hint(format!("make it with `portcullis key new {name}`"))
    })
}

fn tell<'k>(
    entries: impl Iterator<Item = &'k KeyEntry>,
    globals: &Globals,
) -> Result<Exit, Failure> {
    if globals.json {
        let mut entries = entries.map(KeyJson::of);
        return entries.try_for_each(|entry| crate::say_json(&entry)).map(|()| Exit::Done);
    }
    let lines: Vec<String> = entries.map(text).collect();
    if lines.is_empty() {
        return crate::say(&["no keys; make one with `portcullis key new NAME`".to_owned()])
            .map(|()| Exit::Done);
    }
    crate::say(&lines)?;
    Ok(Exit::Done)
}

fn text(entry: &KeyEntry) -> String {
    let mut line = format!("{:<16} {}  {}", entry.person, entry.key, entry.roles.join(", "));
    if entry.revoked {
        line.push_str("  revoked");
    }
    for (word, at) in [("from", entry.not_before), ("until", entry.not_after)] {
        if let Some(at) = at {
            line.push_str(&format!("  {word} {at}"));
        }
    }
    line
}
