//! Everything that implements the tool source port.
