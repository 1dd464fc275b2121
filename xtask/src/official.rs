//! What the tests run that others wrote of MCP: the official servers, and a Node to run them. `crates/cli/tests/it/official.rs` looks for the servers where this puts them.

use crate::npm::Packages;

/// The packages of `tests/mcp`.
pub(crate) const PACKAGES: Packages = Packages {
    sources: "tests/mcp",
    files: &["package.json", "package-lock.json"],
    place: "target/mcp-peers",
    // For npm alone: what runs the servers is one of the packages.
    node: 18,
    words: &["ci"],
    what: "the official MCP servers",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npm;

    #[test]
    fn each_package_is_pinned_with_a_digest_and_no_address() {
        npm::assert_pinned(&PACKAGES, 100);
    }
}
