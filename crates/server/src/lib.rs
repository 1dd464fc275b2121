//! Front doors that stay open: each call of a host passes the gate.
//!
//! It knows nothing of SQL, and nothing of the back ends behind the ports.

#![forbid(unsafe_code)]
