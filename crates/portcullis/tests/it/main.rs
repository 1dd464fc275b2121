//! Tests of the library's public face: what its documentation shows has to work.

#![allow(clippy::unwrap_used, reason = "tests")]

mod shown;
