//! One run of some steps with the system's allocator, so that what it allocates can be counted from outside.
//!
//! `allocations STEPS FOLDER BYTES`; the bench `allocations` starts it with a library that counts.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a bench reads its command line")]

#[path = "../gated.rs"]
#[allow(dead_code, reason = "shared with the bench program, which uses more of it")]
mod gated;

use std::path::Path;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let steps = words.next().context("how many steps?")?.parse()?;
    let folder = words.next().context("where?")?;
    let bytes = words.next().context("how many bytes?")?.parse()?;
    gated::runtime()?.block_on(async {
        let gate = gated::gate(gated::store(Path::new(&folder))?, bytes)?;
        gated::drive(&gate, Box::new(gated::Worker { steps })).await
    })
}
