//! An external agent's process, confined.
//!
//! [`spawn`] starts our own binary again with a hidden first argument. That small process ([`run_if_child`]) gives
//! up its rights, checks that they are gone, reports over a socket, and becomes the agent's program. The parent
//! never forks: its size and threads do not matter, and its own rights stay as they are.
//!
//! What is enforced on a confined child: its own session; death with the parent; no new privileges, no
//! capabilities; no descriptors but the three standard ones; only the environment that was named; and, by
//! Landlock, an allow list of files: system folders and the program's own folder to read and execute, a scratch
//! folder to write. Signals and tracing reach only its own descendants (Linux 6.12; older kernels stop only
//! tracing), and no sockets of any family can be made unless [`Network::Open`]. Permissions, owners and attributes
//! of files cannot be changed, in the scratch folder neither: Landlock cannot tell them apart there. Memory, sizes of
//! files, open files and the number of processes are bounded ([`Bounds`]).
//!
//! What is not: CPU time and disk space as a whole are unlimited, memory is bounded for each process and not for all
//! together, and root may start any number of processes. Sizes and times of files outside can be
//! looked up by name, and times be set (Landlock guards opening, not looking). A bind mount or hard link that makes
//! a forbidden file appear beneath an allowed folder is not searched for. A descendant of the agent that leaves its
//! session and outlives its own parent is not found by [`AgentChild::kill`], and goes on, confined; the same holds
//! for descendants when the parent is killed. With a keeper ([`AgentSpec::kept`]) both are found; what is not, then, is
//! a program that kills or stops its keeper, which an unconfined one can, and one that starts others faster than they
//! are found.

mod allow;
mod catch_all;
mod error;
mod exec;
mod keep;
mod landlock;
mod lines;
mod place;
mod program;
mod reexec;
mod running;
mod seccomp;
mod spawn;
mod spec;
mod tail;
mod wire;

pub use catch_all::is_catch_all;
pub use error::{SpawnError, Stage};
pub use lines::Lines;
pub use place::Place;
pub use program::find as find_program;
pub use reexec::run_if_child;
pub use running::AgentChild;
pub use spawn::{Prepared, prepare, spawn};
pub use spec::{AgentSpec, Bounds, Confinement, DEFAULT_PATH, Network};
pub use tail::{STDERR_TAIL_BYTES, Tail};
