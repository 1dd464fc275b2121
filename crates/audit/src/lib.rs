//! Chain verification, signed heads, and keys.
