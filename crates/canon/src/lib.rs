//! Strict JSON, canonical bytes, digests, schemas and text that is safe on a terminal.
