//! The gate, the driver, leases, limits and recovery.
