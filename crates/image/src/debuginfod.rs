//! Debug files and sources from a debuginfod server, by build-id.
//!
//! Nothing is fetched unless the user names servers (`DEBUGINFOD_URLS`, which only the command line reads). `curl` does
//! the transfer, so this project brings no network code of its own; without it nothing is found. What was fetched
//! stays in a folder of the user's cache; what servers do not have is not asked for again for an hour.
//! Guarantees: only `http` and `https` are spoken, also after redirections; a transfer ends after the time given, and
//! a file is complete or not there. Whoever uses a debug file compares its build-id.
//! Source: debuginfod(8), "WEBAPI".

use crate::elf::BuildId;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Larger files are not fetched, in bytes.
const MAX_FILE: u64 = 4 << 30;
/// How long a file that no server had is not asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(60 * 60);
/// Longer names cannot be used for files.
const MAX_NAME: usize = 255;

/// Servers, and where to keep what they give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Debuginfod {
    /// Asked in this order.
    pub urls: Vec<String>,
    /// The folder for what was fetched, such as `~/.cache/clew/debuginfod`.
    pub cache: PathBuf,
    /// How long one transfer may take.
    pub timeout: Duration,
    /// The program that fetches, with the options of `curl`.
    pub tool: PathBuf,
}

impl Debuginfod {
    /// `urls` as `DEBUGINFOD_URLS` has them, with spaces between. `None` when there is none that is spoken here.
    pub fn new(urls: &str, cache: PathBuf) -> Option<Debuginfod> {
        let spoken = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
        let urls: Vec<String> =
            urls.split_whitespace().filter(spoken).map(|url| url.trim_end_matches('/').to_string()).collect();
        let (timeout, tool) = (Duration::from_secs(30), PathBuf::from("curl"));
        (!urls.is_empty()).then_some(Debuginfod { urls, cache, timeout, tool })
    }

    pub(crate) fn debug_file(&self, id: &BuildId) -> Option<PathBuf> {
        self.fetch(id, "debuginfo", "debuginfo")
    }

    /// The source file that was recorded as `path`.
    pub(crate) fn source(&self, id: &BuildId, path: &Path) -> Option<PathBuf> {
        let path = path.to_str().filter(|p| p.starts_with('/'))?;
        let escaped: String = path.bytes().map(escape).collect();
        let name = format!("source{}", path.replace('/', "#"));
        (name.len() <= MAX_NAME).then(|| self.fetch(id, &format!("source{escaped}"), &name)).flatten()
    }

    fn fetch(&self, id: &BuildId, what: &str, name: &str) -> Option<PathBuf> {
        let folder = self.cache.join(id.to_string());
        let (kept, missing) = (folder.join(name), folder.join(format!("{}.missing", shortened(name))));
        if kept.is_file() {
            return Some(kept);
        }
        let asked = fs::metadata(&missing).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if asked.is_some_and(|age| age < RETRY_AFTER) {
            return None;
        }
        fs::create_dir_all(&folder).ok()?;
        let partial = folder.join(format!("{}.{}.partial", shortened(name), std::process::id()));
        let fetched = self.urls.iter().any(|url| self.transfer(&format!("{url}/buildid/{id}/{what}"), &partial));
        // Another process may have been faster; it got the same.
        let complete = fetched && partial.metadata().is_ok_and(|m| m.len() > 0) && fs::rename(&partial, &kept).is_ok();
        if !complete {
            // Neither matters: the next run asks again.
            let _ = fs::remove_file(&partial);
            let _ = fs::write(&missing, "");
        }
        complete.then_some(kept)
    }

    fn transfer(&self, url: &str, to: &Path) -> bool {
        let seconds = self.timeout.as_secs().max(1).to_string();
        let size = MAX_FILE.to_string();
        let options = ["--silent", "--fail", "--location", "--proto", "=http,https", "--proto-redir", "=http,https"];
        let limits = ["--max-time", &seconds, "--connect-timeout", &seconds, "--max-filesize", &size];
        let mut tool = Command::new(&self.tool);
        // The user's own options for curl must not change what happens here, so they are not read.
        tool.arg("--disable").args(options).args(limits).arg("--output").arg(to).arg("--").arg(url);
        tool.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tool.status().is_ok_and(|status| status.success())
    }
}

/// A byte of a path as it stands in an address.
fn escape(byte: u8) -> String {
    match byte {
        b'/' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}

/// The end of a name, so that something can be appended to it.
fn shortened(name: &str) -> &str {
    let mut start = name.len().saturating_sub(MAX_NAME - 64);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_that_are_spoken_to_count() {
        let urls = |text: &str| Debuginfod::new(text, "/c".into()).map(|d| d.urls);
        assert_eq!(urls(""), None);
        assert_eq!(urls("  file:///etc  ftp://x "), None);
        assert_eq!(urls("https://a/ http://b/c"), Some(vec!["https://a".to_string(), "http://b/c".to_string()]));
    }

    #[test]
    fn paths_are_escaped() {
        let escaped: String = "/a b/ü%?.c".bytes().map(escape).collect();
        assert_eq!(escaped, "/a%20b/%C3%BC%25%3F.c");
        assert_eq!(shortened(&"ü".repeat(200)).len(), 190);
    }
}
