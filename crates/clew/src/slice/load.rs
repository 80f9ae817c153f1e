//! Slices that were saved: shown again without their recording.
//!
//! A saved slice is the JSON document of `clew slice`. Paths are not in it; edges are if they were asked for when it was
//! saved.

use super::Refusal;
use super::show::{self, SHOWN, SHOWN_EDGES};
use crate::cli::Slice as Options;
use crate::message::Paint;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A slice from a file.
pub struct Saved {
    document: Value,
}

impl Saved {
    pub fn open(file: &Path) -> Result<Saved, Refusal> {
        let text =
            std::fs::read(file).map_err(|e| Refusal::usage(format!("{} cannot be read: {e}", file.display())))?;
        let document: Option<Value> = serde_json::from_slice(&text).ok();
        let document = document.filter(|d| d["clew"] == 1 && d["verb"] == "slice" && d["candidates"].is_array());
        let wrong = || Refusal::usage(format!("{} is no slice: give a file that --save wrote", file.display()));
        Ok(Saved { document: document.ok_or_else(wrong)? })
    }

    /// As the options say.
    pub fn show(&self, options: &Options, paint: Paint) -> Result<String, Refusal> {
        if options.path.is_some() {
            return Err(Refusal::usage("a saved slice has no paths: give the recording instead of --load"));
        }
        if (options.edges || options.dot) && !self.document["edges"].is_array() {
            return Err(Refusal::usage("the slice was saved without edges: save it with --edges"));
        }
        Ok(match (options.json, options.dot) {
            (true, _) => format!("{:#}\n", self.document),
            (_, true) => show::graph(self.edges()),
            _ => self.text(options.edges, paint),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    fn lines(&self) -> &[Value] {
        self.document["candidates"].as_array().map_or(&[], Vec::as_slice)
    }

    /// User, maker, what for.
    fn edges(&self) -> impl Iterator<Item = (String, String, String)> {
        let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let edges = self.document["edges"].as_array().into_iter().flatten();
        edges.map(move |e| (word(&e["user"]), word(&e["maker"]), word(&e["why"])))
    }

    fn text(&self, with_edges: bool, paint: Paint) -> String {
        let d = &self.document;
        let word = |v: &Value| v.as_str().unwrap_or("?").to_owned();
        let mut out = format!("Slice of {} (process {}):\n", word(&d["criterion"]["text"]), word(&d["process"]));
        let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (user, maker, why) in self.edges().filter(|_| with_edges) {
            edges.entry(user).or_default().push(format!("{maker} {why}"));
        }
        // Functions in the order of their nearest lines.
        let mut functions: Vec<(String, Vec<&Value>)> = Vec::new();
        for line in self.lines().iter().take(SHOWN) {
            let file = line["file"].as_str().map(|f| format!(" ({f})")).unwrap_or_default();
            let process = match line["process"] == d["process"] || line["process"].is_null() {
                true => String::new(),
                false => format!(", process {}", word(&line["process"])),
            };
            let title = format!("{}{file}{process}", word(&line["function"]));
            match functions.iter_mut().find(|(t, _)| *t == title) {
                Some((_, lines)) => lines.push(line),
                None => functions.push((title, vec![line])),
            }
        }
        for (title, mut lines) in functions {
            let _ = writeln!(out, "\n{}", paint.strong(&title));
            lines.sort_by_key(|l| (l["line"].as_u64(), word(&l["address"])));
            for line in lines {
                let at = line["line"].as_u64().map_or_else(|| word(&line["address"]), |n| n.to_string());
                let (instances, executed) = (line["instances"].as_u64().unwrap_or(0), line["executed"].as_u64());
                let times = show::times(instances, executed.unwrap_or(0));
                let _ = writeln!(out, "  {at:>6}  {times:>10}  {}", line["text"].as_str().unwrap_or_default());
                let short = format!("{}:{at}", line["file"].as_str().unwrap_or_default());
                for edge in edges.get(&short).into_iter().flatten().take(SHOWN_EDGES) {
                    let _ = writeln!(out, "                        ← {edge}");
                }
            }
        }
        if self.lines().len() > SHOWN {
            let _ =
                writeln!(out, "\n… and {} more lines, farther away (--json has them all)", self.lines().len() - SHOWN);
        }
        let s = &d["slice"];
        let _ = writeln!(
            out,
            "\n{} of {} executed lines, {} of {} executed instructions",
            s["lines"], s["executed_lines"], s["instructions"], s["executed_instructions"]
        );
        for (key, label) in [("inputs", "from outside"), ("limits", "limit")] {
            for text in d[key].as_array().into_iter().flatten() {
                let _ = writeln!(out, "{label}: {}", word(text));
            }
        }
        out
    }
}
