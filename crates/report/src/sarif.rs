//! The answer as SARIF 2.1.0, which code scanning services and editors read.
//!
//! One run of the tool Clew; a rule per kind of cause, a result per cause, its path as a code flow, limits as notifications.
//! Guarantees: every object has the properties that the schema requires and no others. May miss: a place without source is
//! given by its address, which many readers do not show.
//! Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, section 3.

use crate::words::{command_line, sentence};
use crate::{Cause, Kind, Place, Report, Step};
use serde_json::{Map, Value, json};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The name of the folder that paths are relative to.
const ROOT: &str = "SRCROOT";

/// The document, with a newline behind it; files below `root`, the folder of the sources, are named from there.
pub fn sarif(report: &Report, root: Option<&str>) -> String {
    let root = root.map(|root| root.trim_end_matches('/'));
    let results: Vec<Value> = report.causes.iter().enumerate().map(|(n, c)| result(report, n + 1, c, root)).collect();
    let mut run = json!({
        "tool": { "driver": {
            "name": "Clew",
            "version": env!("CARGO_PKG_VERSION"),
            "rules": Kind::ALL.map(rule),
        }},
        "invocations": [invocation(report)],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": { "failure": report.failure, "recording": report.recording, "process": report.process },
    });
    if let Some(root) = root {
        run["originalUriBaseIds"] = json!({ ROOT: { "uri": format!("file://{}/", encoded(root)) } });
    }
    let document = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] });
    format!("{document:#}\n")
}

fn rule(kind: Kind) -> Value {
    let full = match kind {
        Kind::CriticalPredicate => "One execution of this branch, taken the other way, repairs the run.",
        Kind::ForcedPredicate => "The run is repaired when this branch always goes one way.",
        Kind::Value => "Another value, stored by one execution of this statement, repairs the run.",
        Kind::Suppression => "The run is repaired when one execution of this statement or call is left out.",
        Kind::Dependence => "A dependence leads from here to the failure.",
    };
    json!({
        "id": kind.name(),
        "shortDescription": { "text": sentence(kind.title()) },
        "fullDescription": { "text": full },
        "defaultConfiguration": { "level": "warning" },
    })
}

/// The run of Clew: it worked, even if it found nothing.
fn invocation(report: &Report) -> Value {
    let limits = report.limits.iter().map(|l| json!({ "level": "note", "message": { "text": sentence(l) } }));
    json!({
        "executionSuccessful": true,
        "toolExecutionNotifications": limits.collect::<Vec<_>>(),
        "properties": {
            "command": command_line(&report.command),
            "trials": report.tried.trials,
            "controls": report.tried.controls,
            "seconds": report.seconds,
        },
    })
}

fn result(report: &Report, rank: usize, cause: &Cause, root: Option<&str>) -> Value {
    let mut value = json!({
        "ruleId": cause.kind.name(),
        "ruleIndex": Kind::ALL.iter().position(|k| *k == cause.kind),
        "level": if cause.proved { "error" } else { "warning" },
        "message": { "text": message(report, cause) },
        "locations": [location(&cause.place, None, root)],
        "properties": properties(rank, cause),
    });
    if !cause.path.is_empty() {
        let steps: Vec<Value> = cause.path.iter().map(|s| flow_location(s, root)).collect();
        value["codeFlows"] = json!([{
            "message": { "text": "How it leads to the failure." },
            "threadFlows": [{ "locations": steps }],
        }]);
    }
    value
}

fn message(report: &Report, cause: &Cause) -> String {
    let mut text = sentence(&cause.explanation);
    if let Some(doubt) = &cause.doubt {
        text.push(' ');
        text.push_str(&sentence(&format!("suspected only: {doubt}")));
    }
    format!("{text} {}", sentence(&format!("the run fails: {}", report.failure)))
}

fn properties(rank: usize, cause: &Cause) -> Value {
    let mut properties = Map::new();
    properties.insert("rank".into(), json!(rank));
    properties.insert("status".into(), json!(if cause.proved { "proved" } else { "suspected" }));
    if let Some(execution) = cause.instance {
        properties.insert("instance".into(), json!(execution.number));
        properties.insert("of".into(), json!(execution.of));
    }
    if let Some(e) = &cause.evidence {
        let evidence = json!({ "moment": e.moment, "alteration": e.alteration, "verdict": e.verdict, "end": e.end });
        properties.insert("evidence".into(), evidence);
    }
    if !cause.closer.is_empty() {
        properties.insert("closer".into(), json!(cause.closer));
    }
    Value::Object(properties)
}

fn flow_location(step: &Step, root: Option<&str>) -> Value {
    let text = if step.by.is_empty() { step.place.short() } else { format!("{}: {}", step.place.short(), step.by) };
    json!({ "location": location(&step.place, Some(text), root) })
}

fn location(place: &Place, message: Option<String>, root: Option<&str>) -> Value {
    let mut value = json!({ "physicalLocation": physical(place, root) });
    if let Some(function) = &place.function {
        value["logicalLocations"] = json!([{ "name": function, "kind": "function" }]);
    }
    if let Some(text) = message {
        value["message"] = json!({ "text": text });
    }
    value
}

fn physical(place: &Place, root: Option<&str>) -> Value {
    let Some(path) = place.path_from(root) else {
        return json!({ "address": { "fullyQualifiedName": place.address } });
    };
    let artifact = match (path.starts_with('/'), root) {
        (true, _) => json!({ "uri": format!("file://{}", encoded(path)) }),
        (false, Some(_)) => json!({ "uri": encoded(path), "uriBaseId": ROOT }),
        (false, None) => json!({ "uri": encoded(path) }),
    };
    let mut value = json!({ "artifactLocation": artifact });
    // Lines are counted from 1; 0 is how debug information says that there is none.
    if let Some(line) = place.line.filter(|line| *line > 0) {
        value["region"] = json!({ "startLine": line });
        if let Some(source) = &place.source {
            value["region"]["snippet"] = json!({ "text": source });
        }
    }
    value
}

/// A path as part of a URI.
fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        for (path, root, expected) in [
            ("/src/a b.c", None, json!({ "uri": "file:///src/a%20b.c" })),
            ("/src/a.c", Some("/src"), json!({ "uri": "a.c", "uriBaseId": "SRCROOT" })),
            ("/srcs/a.c", Some("/src"), json!({ "uri": "file:///srcs/a.c" })),
            ("x:y/ü%#?.c", None, json!({ "uri": "x%3Ay/%C3%BC%25%23%3F.c" })),
        ] {
            let place = Place { full: Some(path.into()), ..Place::default() };
            assert_eq!(physical(&place, root)["artifactLocation"], expected, "{path}");
        }
    }

    #[test]
    fn line_zero_is_no_line() {
        let place = Place { full: Some("/a.c".into()), line: Some(0), ..Place::default() };
        assert_eq!(physical(&place, None).get("region"), None);
    }
}
