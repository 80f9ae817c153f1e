//! The answer as one page: failure, causes, paths, output and sources.
//!
//! Guarantees: the page needs no network and no other file, and its policy forbids both; foreign text is never markup;
//! everything is there without scripts, which only mark lines and copy commands. May miss: browsers older than the colour
//! and layout features of 2021 show it plainly.

mod causes;
mod difference;
mod escape;
mod sources;

use crate::words::{command_line, sentence};
use crate::{Report, text};
use escape::Escaped;
use sources::Sources;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Nothing may be loaded, sent or embedded; only what is in the page itself counts.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page.
pub fn html(report: &Report) -> String {
    let sources = Sources::of(report);
    let program = report.command.first().and_then(|p| p.rsplit('/').next()).unwrap_or("the program");
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Why {} fails · Clew</title>\n<style>\n{STYLE}</style></head><body>\n",
        Escaped(program)
    );
    header(&mut out, report, program);
    out.push_str("<main>\n<div class=\"answer\">\n");
    out.push_str(&causes::section(report, &sources));
    tried(&mut out, report);
    out.push_str("</div>\n<div class=\"seen\">\n");
    if let Some(difference) = &report.difference {
        out.push_str(&difference::section(difference));
    }
    out.push_str(&sources.section());
    let _ = write!(out, "</div>\n</main>\n<script>\n{SCRIPT}</script>\n</body></html>\n");
    out
}

fn header(out: &mut String, report: &Report, program: &str) {
    let _ = writeln!(out, "<header><h1>Why <code>{}</code> fails</h1>", Escaped(program));
    let failure = sentence(&format!("the run fails: {}", report.failure));
    let _ = writeln!(out, "<p class=\"failure\">{}</p>", Escaped(&failure));
    let _ = write!(out, "<p class=\"run\"><code>{}</code>", Escaped(&command_line(&report.command)));
    for (name, value) in [("recording", &report.recording), ("process", &report.process)] {
        if !value.is_empty() {
            let _ = write!(out, " · {name} {}", Escaped(value));
        }
    }
    out.push_str("</p></header>\n");
}

fn tried(out: &mut String, report: &Report) {
    let _ = writeln!(out, "<section class=\"tried\"><h2>What was tried</h2><p>{}</p>", Escaped(&text::tried(report)));
    if !report.limits.is_empty() {
        out.push_str("<p class=\"label\">What the answer does not cover</p><ul>");
        for limit in &report.limits {
            let _ = write!(out, "<li>{}</li>", Escaped(&sentence(limit)));
        }
        out.push_str("</ul>");
    }
    out.push_str("</section>\n");
}
