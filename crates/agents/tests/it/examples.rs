//! The example agents of the repository.
