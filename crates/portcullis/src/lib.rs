//! The library's public face.
