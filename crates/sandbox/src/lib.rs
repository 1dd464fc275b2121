//! Confinement: files beneath a held directory, an agent's process behind Landlock, and who a process is.
//!
//! ```
//! use portcullis_sandbox::confined::{Fault, RelPath, Root};
//!
//! let folder = tempfile::tempdir()?;
//! let root = Root::open(folder.path())?;
//! let note = RelPath::parse("note.txt")?;
//! root.create(&note, b"hello")?;
//! assert_eq!(root.read(&note, 1024)?, b"hello");
//! let again = root.create(&note, b"other").unwrap_err();
//! assert_eq!(again.fault, Fault::Exists);
//! assert!(RelPath::parse("../elsewhere").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows nothing of the gate, of policies, tools, runs or the record: it says what the operating system
//! enforces, and refuses when it enforces less than is asked. Linux only.

pub mod child;
pub mod confined;
pub mod identity;
