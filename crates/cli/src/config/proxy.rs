//! `[proxy]`: how calls of MCP hosts are held, repeated and counted, and who is let in over HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_server::http::Terms;
use portcullis_server::proxy::Settings;
use serde::Deserialize;

use super::Misfit;
use super::numbers::{Given, Number};

/// What stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProxy {
    hold_ms: Given,
    repeat_window_ms: Given,
    max_pending: Given,
    status_tool: Option<bool>,
    token_file: Option<PathBuf>,
    origins: Vec<String>,
    behind_tls: Option<String>,
}

/// What it means; nothing where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProxyChoice {
    hold: Option<Duration>,
    repeat_window: Option<Duration>,
    max_pending: Option<u64>,
    status_tool: Option<bool>,
    /// Where the token for hosts over HTTP is kept, absolute.
    pub(crate) token_file: Option<PathBuf>,
    /// Who is let in over HTTP.
    pub(crate) terms: Terms,
}

/// Hosts give up on a call by themselves, most of them within a minute.
const HOLD: Number = Number {
    key: "hold_ms",
    unit: "milliseconds (0 holds no call)",
    least: 0,
    most: Some(600_000),
};

const REPEAT_WINDOW: Number = Number {
    key: "repeat_window_ms",
    unit: "milliseconds (0 lets each repeat through)",
    least: 0,
    most: Some(30 * 24 * 3_600_000),
};

const MAX_PENDING: Number =
    Number { key: "max_pending", unit: "questions", least: 1, most: Some(1_000) };

/// Relative paths start at `base`.
pub(super) fn read(raw: RawProxy, base: &Path) -> Result<ProxyChoice, Misfit> {
    Ok(ProxyChoice {
        hold: HOLD.read(&raw.hold_ms)?.map(Duration::from_millis),
        repeat_window: REPEAT_WINDOW.read(&raw.repeat_window_ms)?.map(Duration::from_millis),
        max_pending: MAX_PENDING.read(&raw.max_pending)?,
        status_tool: raw.status_tool,
        token_file: raw.token_file.map(|path| base.join(path)),
        terms: Terms { origins: raw.origins, behind_tls: raw.behind_tls },
    })
}

impl ProxyChoice {
    /// Settings with what was chosen.
    pub(crate) fn over(&self, usual: Settings) -> Settings {
        let named = usual.status_tool.clone().filter(|_| self.status_tool != Some(false));
        Settings {
            hold: self.hold.unwrap_or(usual.hold),
            repeat_window: self.repeat_window.unwrap_or(usual.repeat_window),
            max_pending: self.max_pending.unwrap_or(usual.max_pending),
            status_tool: named,
            ..usual
        }
    }
}
