//! The dependency arrows of `ARCHITECTURE.md`, proved with `cargo tree`.
//!
//! [`RULES`] is the whole truth: an edge between our packages that is not in it fails, and so does a package that is
//! not in it, so that a new crate or a new arrow is always a line in a review. Dev-dependencies are not looked at.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace::Member;

/// What one package may use.
struct Rule {
    /// The package.
    package: &'static str,
    /// Our packages that it may name in its manifest.
    may_use: &'static [&'static str],
    /// Other people's packages that must be nowhere in its tree.
    never: &'static [&'static str],
}

/// Packages that no part of the product may reach: one TLS library (rustls with ring), one SQLite (ours).
const NEVER_ANYWHERE: &[&str] = &[
    "openssl",
    "openssl-sys",
    "native-tls",
    "aws-lc-rs",
    "aws-lc-sys",
    "sqlite3-sys",
    "sqlx",
    "ureq",
    "curl",
];

/// What only these packages may name in their manifests: whoever wants to go out asks the one, whoever lets others in is the
/// other.
const BEHIND: &[(&[&str], &[&str])] = &[
    (&["portcullis-egress"], &["reqwest", "hyper-rustls", "rustls", "tokio-rustls"]),
    (&["portcullis-egress", "portcullis-server"], &["hyper", "hyper-util"]),
    (&["portcullis-mcp"], &["rmcp"]),
];

const RULES: &[Rule] = &[
    Rule {
        package: "portcullis-canon",
        may_use: &[],
        never: &[
            "tokio",
            "async-std",
            "smol",
            "rustix",
            "landlock",
            "rusqlite",
            "libsqlite3-sys",
            "reqwest",
            "hyper",
            "axum",
            "rmcp",
            "wasmtime",
        ],
    },
    Rule {
        package: "portcullis-domain",
        may_use: &["portcullis-canon"],
        never: &[
            "tokio",
            "async-std",
            "smol",
            "futures-executor",
            "rustix",
            "landlock",
            "rusqlite",
            "libsqlite3-sys",
            "reqwest",
            "hyper",
            "axum",
            "rmcp",
            "wasmtime",
        ],
    },
    Rule {
        package: "portcullis-policy",
        may_use: &["portcullis-canon", "portcullis-domain"],
        never: &[
            "tokio",
            "async-std",
            "rustix",
            "landlock",
            "rusqlite",
            "libsqlite3-sys",
            "reqwest",
            "hyper",
            "axum",
            "rmcp",
            "wasmtime",
        ],
    },
    Rule {
        package: "portcullis-store",
        may_use: &["portcullis-canon", "portcullis-domain"],
        never: &["reqwest", "axum", "rmcp", "wasmtime", "landlock"],
    },
    Rule {
        package: "portcullis-audit",
        may_use: &["portcullis-canon", "portcullis-domain"],
        never: &["tokio", "rusqlite", "libsqlite3-sys", "reqwest", "axum", "rmcp", "wasmtime"],
    },
    Rule {
        package: "portcullis-sandbox",
        may_use: &["portcullis-canon", "portcullis-domain"],
        never: &["rusqlite", "libsqlite3-sys", "reqwest", "axum", "rmcp"],
    },
    Rule {
        package: "portcullis-egress",
        may_use: &["portcullis-canon", "portcullis-domain"],
        // No second version of HTTP, no cookies, nothing that unpacks: what is counted is what is handed out.
        never: &[
            "h2",
            "h3",
            "cookie_store",
            "async-compression",
            "brotli",
            "flate2",
            "zstd",
            "rusqlite",
            "libsqlite3-sys",
            "landlock",
            "axum",
            "rmcp",
            "wasmtime",
        ],
    },
    Rule {
        package: "portcullis-tools",
        may_use: &[
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-egress",
            "portcullis-sandbox",
        ],
        never: &["rusqlite", "libsqlite3-sys", "axum"],
    },
    Rule {
        package: "portcullis-agents",
        may_use: &["portcullis-canon", "portcullis-domain", "portcullis-sandbox"],
        never: &["rusqlite", "libsqlite3-sys", "reqwest", "axum", "rmcp"],
    },
    Rule {
        package: "portcullis-models",
        may_use: &["portcullis-canon", "portcullis-domain", "portcullis-egress"],
        never: &["rusqlite", "libsqlite3-sys", "axum", "rmcp", "wasmtime", "landlock"],
    },
    Rule {
        package: "portcullis-mcp",
        may_use: &[
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-egress",
            "portcullis-sandbox",
        ],
        never: &["rusqlite", "libsqlite3-sys", "axum", "wasmtime"],
    },
    Rule {
        package: "portcullis-server",
        may_use: &[
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-engine",
            "portcullis-mcp",
            "portcullis-policy",
            "portcullis-sandbox",
        ],
        // One version of HTTP in its door, no framework around it.
        never: &["axum", "clap", "h2", "libsqlite3-sys", "rusqlite", "wasmtime"],
    },
    Rule {
        package: "portcullis-engine",
        may_use: &["portcullis-canon", "portcullis-domain", "portcullis-policy"],
        never: &[
            "tokio",
            "async-std",
            "rustix",
            "landlock",
            "rusqlite",
            "libsqlite3-sys",
            "reqwest",
            "hyper",
            "axum",
            "rmcp",
            "wasmtime",
        ],
    },
    Rule {
        package: "portcullis-testkit",
        may_use: &["portcullis-canon", "portcullis-domain", "portcullis-engine"],
        never: &["rusqlite", "libsqlite3-sys", "reqwest", "axum", "rmcp", "wasmtime"],
    },
    Rule {
        package: "portcullis",
        may_use: &[
            "portcullis-agents",
            "portcullis-audit",
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-egress",
            "portcullis-engine",
            "portcullis-models",
            "portcullis-policy",
            "portcullis-sandbox",
            "portcullis-store",
            "portcullis-tools",
        ],
        never: &["axum", "clap", "rmcp", "wasmtime"],
    },
    Rule {
        package: "portcullis-cli",
        may_use: &[
            "portcullis",
            "portcullis-agents",
            "portcullis-audit",
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-egress",
            "portcullis-engine",
            "portcullis-mcp",
            "portcullis-models",
            "portcullis-policy",
            "portcullis-sandbox",
            "portcullis-server",
            "portcullis-store",
            "portcullis-tools",
        ],
        never: &["bolero", "divan", "proptest"],
    },
    Rule {
        package: "portcullis-bench",
        may_use: &[
            "portcullis",
            "portcullis-agents",
            "portcullis-audit",
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-engine",
            "portcullis-models",
            "portcullis-policy",
            "portcullis-sandbox",
            "portcullis-store",
            "portcullis-testkit",
            "portcullis-tools",
        ],
        never: &[],
    },
    Rule {
        package: "portcullis-simulate",
        may_use: &[
            "portcullis-audit",
            "portcullis-canon",
            "portcullis-domain",
            "portcullis-engine",
            "portcullis-policy",
            "portcullis-store",
            "portcullis-testkit",
        ],
        never: &["tokio", "reqwest", "axum", "rmcp", "wasmtime", "landlock"],
    },
    Rule {
        package: "portcullis-crash-grid",
        may_use: &["portcullis", "portcullis-testkit"],
        never: &["axum", "clap", "rmcp", "wasmtime"],
    },
    Rule { package: "xtask", may_use: &[], never: &["clap", "serde_json", "tokio"] },
];

/// Checks every member; gives one sentence per broken arrow.
pub(crate) fn check(root: &Path, members: &[Member]) -> Result<Vec<String>> {
    let ours: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut broken = Vec::new();
    for member in members {
        let mut command = process::cargo(root);
        command.args(["tree", "--locked", "--edges", "normal", "--all-features"]);
        command.args(["--prefix", "depth", "--format", "{p}", "--package", &member.name]);
        let tree = parse(&process::keep(&mut command)?)?;
        broken.extend(judge(&member.name, &tree, &ours));
    }
    Ok(broken)
}

/// One line of a tree: how deep it stands, and the package's name.
type Line = (usize, String);

/// Reads `cargo tree --prefix depth --format {p}`.
fn parse(text: &str) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let rest = line.trim_start_matches(|character: char| character.is_ascii_digit());
        let digits = line.strip_suffix(rest).unwrap_or_default();
        let depth =
            digits.parse().with_context(|| format!("no depth in the tree line `{line}`"))?;
        let name = rest.split_whitespace().next();
        let name = name.with_context(|| format!("no package in the tree line `{line}`"))?;
        lines.push((depth, name.to_owned()));
    }
    if lines.is_empty() {
        bail!("cargo tree printed nothing");
    }
    Ok(lines)
}

fn judge(package: &str, tree: &[Line], ours: &BTreeSet<&str>) -> Vec<String> {
    let Some(rule) = RULES.iter().find(|rule| rule.package == package) else {
        return vec![format!(
            "{package} has no rule in xtask/src/arrows.rs: say there what it may use"
        )];
    };
    let mut broken = BTreeSet::new();
    for (depth, name) in tree {
        let name = name.as_str();
        if *depth == 1 && ours.contains(name) && !rule.may_use.contains(&name) {
            broken.insert(format!("{package} uses {name}, which is no arrow of the design"));
        }
        let behind = BEHIND.iter().find(|(_, behind)| behind.contains(&name));
        if let Some((owners, _)) = behind
            && *depth == 1
            && !owners.contains(&package)
        {
            let owners = owners.join(" and ");
            broken.insert(format!("{package} uses {name}, which is behind {owners}"));
        }
        if rule.never.contains(&name) || NEVER_ANYWHERE.contains(&name) {
            broken.insert(format!("{package} reaches {name}, which it must never"));
        }
    }
    broken.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &[&str] =
        &["portcullis-canon", "portcullis-domain", "portcullis-engine", "portcullis-policy"];

    fn check_tree(package: &str, text: &str) -> Vec<String> {
        judge(package, &parse(text).expect("a tree"), &OURS.iter().copied().collect())
    }

    #[test]
    fn a_tree_is_read_with_its_depths() {
        let text =
            "0portcullis-domain v0.1.0 (/x/crates/domain)\n1serde v1.0.0\n10memchr v2.0.0 (*)\n";
        let names = [(0, "portcullis-domain"), (1, "serde"), (10, "memchr")];
        assert_eq!(
            parse(text).expect("a tree"),
            names.map(|(depth, name)| (depth, name.to_owned()))
        );
        assert!(parse("").is_err());
        assert!(parse("serde v1").is_err());
    }

    #[test]
    fn the_arrows_of_the_design_pass() {
        let text = "0portcullis-engine v0.1.0\n1portcullis-policy v0.1.0\n2portcullis-domain v0.1.0\n1tracing v0.1.0\n";
        assert_eq!(check_tree("portcullis-engine", text), Vec::<String>::new());
    }

    #[test]
    fn a_planted_edge_between_our_crates_fails() {
        let text = "0portcullis-domain v0.1.0\n1portcullis-engine v0.1.0\n";
        let broken = check_tree("portcullis-domain", text);
        assert_eq!(
            broken,
            ["portcullis-domain uses portcullis-engine, which is no arrow of the design"]
        );
    }

    #[test]
    fn a_planted_forbidden_package_fails_at_any_depth() {
        let text =
            "0portcullis-engine v0.1.0\n1tracing v0.1.0\n2rusqlite v0.43.0\n7openssl v0.10.0\n";
        let broken = check_tree("portcullis-engine", text);
        assert_eq!(
            broken,
            [
                "portcullis-engine reaches openssl, which it must never",
                "portcullis-engine reaches rusqlite, which it must never",
            ]
        );
    }

    #[test]
    fn only_the_one_client_names_an_http_library() {
        let text = "0portcullis-tools v0.1.0\n1portcullis-egress v0.1.0\n2reqwest v0.13.5\n";
        assert_eq!(check_tree("portcullis-tools", text), Vec::<String>::new());
        assert_eq!(
            check_tree("portcullis-egress", "0portcullis-egress v0.1.0\n1reqwest v0.13.5\n"),
            Vec::<String>::new()
        );
        let broken = check_tree("portcullis-tools", "0portcullis-tools v0.1.0\n1reqwest v0.13.5\n");
        assert_eq!(broken, ["portcullis-tools uses reqwest, which is behind portcullis-egress"]);
        let broken =
            check_tree("portcullis-engine", "0portcullis-engine v0.1.0\n1x v1\n2reqwest v0.13.5\n");
        assert_eq!(broken, ["portcullis-engine reaches reqwest, which it must never"]);
    }

    #[test]
    fn only_the_door_listens_beside_the_client() {
        for (package, ok) in [
            ("portcullis-server", true),
            ("portcullis-egress", true),
            ("portcullis-mcp", false),
            ("portcullis-cli", false),
        ] {
            let broken = check_tree(package, &format!("0{package} v0.1.0\n1hyper v1.12.0\n"));
            assert_eq!(broken.is_empty(), ok, "{broken:?}");
        }
        let broken =
            check_tree("portcullis-server", "0portcullis-server v0.1.0\n1reqwest v0.13.5\n");
        assert_eq!(broken, ["portcullis-server uses reqwest, which is behind portcullis-egress"]);
    }

    #[test]
    fn an_indirect_edge_is_judged_where_it_is_direct() {
        let text =
            "0portcullis-policy v0.1.0\n1portcullis-domain v0.1.0\n2portcullis-canon v0.1.0\n";
        assert_eq!(check_tree("portcullis-policy", text), Vec::<String>::new());
    }

    #[test]
    fn a_package_without_a_rule_fails() {
        let broken = check_tree("portcullis-new", "0portcullis-new v0.1.0\n");
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("has no rule"));
    }

    #[test]
    fn the_table_has_no_arrow_back() {
        fn reaches(from: &str, to: &str) -> bool {
            let rule = RULES.iter().find(|rule| rule.package == from).expect("a rule");
            rule.may_use.iter().any(|next| *next == to || reaches(next, to))
        }
        for rule in RULES {
            assert!(!reaches(rule.package, rule.package), "{} reaches itself", rule.package);
        }
    }
}
