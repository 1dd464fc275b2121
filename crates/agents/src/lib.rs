//! Agents: a script of proposals, and any program that speaks the agent protocol.
