//! The commands, one in a file.

pub(crate) mod answer;
pub(crate) mod approve;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod models;
pub(crate) mod pin;
pub(crate) mod recheck;
pub(crate) mod reject;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod spend;
pub(crate) mod verify;
pub(crate) mod watch;
