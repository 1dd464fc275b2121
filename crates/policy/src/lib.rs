//! From a class table to a verdict: the pure decision.
