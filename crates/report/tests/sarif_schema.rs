//! SARIF documents have the structure that the schema of version 2.1.0 asks for.
//!
//! The table below is the part of the schema that Clew uses, with its required properties and types; as in the schema, an
//! object may have no other properties. May miss: rules that are in the text of the standard only.
//! Source: OASIS, sarif-schema-2.1.0.json, `definitions`.

mod common;

use report::{Cause, Place, Report, sarif};
use serde_json::{Value, json};

/// An object: its name, and its properties with their types; `!` marks the required ones.
type Definition = (&'static str, &'static [(&'static str, &'static str)]);

/// Types: a name of this table, `string`, `integer`, `bool`, `bag` (anything), `uri`, one of several words `a|b`, `[type]`
/// for an array, `{type}` for an object with any keys.
const SCHEMA: &[Definition] = &[
    ("sarifLog", &[("$schema", "uri"), ("version!", "2.1.0"), ("runs!", "[run]"), ("properties", "bag")]),
    (
        "run",
        &[
            ("tool!", "tool"),
            ("invocations", "[invocation]"),
            ("originalUriBaseIds", "{artifactLocation}"),
            ("columnKind", "utf16CodeUnits|unicodeCodePoints"),
            ("results", "[result]"),
            ("properties", "bag"),
        ],
    ),
    ("tool", &[("driver!", "toolComponent")]),
    ("toolComponent", &[("name!", "string"), ("version", "string"), ("rules", "[reportingDescriptor]")]),
    (
        "reportingDescriptor",
        &[
            ("id!", "string"),
            ("shortDescription", "text"),
            ("fullDescription", "text"),
            ("defaultConfiguration", "reportingConfiguration"),
        ],
    ),
    ("reportingConfiguration", &[("level", LEVEL)]),
    ("text", &[("text!", "string")]),
    (
        "invocation",
        &[("executionSuccessful!", "bool"), ("toolExecutionNotifications", "[notification]"), ("properties", "bag")],
    ),
    ("notification", &[("message!", "text"), ("level", LEVEL)]),
    (
        "result",
        &[
            ("message!", "text"),
            ("ruleId", "string"),
            ("ruleIndex", "integer"),
            ("level", LEVEL),
            ("locations", "[location]"),
            ("codeFlows", "[codeFlow]"),
            ("properties", "bag"),
        ],
    ),
    ("codeFlow", &[("threadFlows!", "[threadFlow]"), ("message", "text")]),
    ("threadFlow", &[("locations!", "[threadFlowLocation]")]),
    ("threadFlowLocation", &[("location", "location")]),
    (
        "location",
        &[("physicalLocation", "physicalLocation"), ("logicalLocations", "[logicalLocation]"), ("message", "text")],
    ),
    ("logicalLocation", &[("name", "string"), ("kind", "string")]),
    ("physicalLocation", &[("artifactLocation", "artifactLocation"), ("address", "address"), ("region", "region")]),
    ("artifactLocation", &[("uri", "uri"), ("uriBaseId", "string")]),
    ("address", &[("fullyQualifiedName", "string")]),
    ("region", &[("startLine", "integer"), ("snippet", "text")]),
];
const LEVEL: &str = "none|note|warning|error";

/// What is wrong with `value`, which should be of type `kind`.
fn breaches(kind: &str, value: &Value, at: &str, out: &mut Vec<String>) {
    if let Some(item) = kind.strip_prefix('[').and_then(|k| k.strip_suffix(']')) {
        match value.as_array() {
            Some(all) => all.iter().enumerate().for_each(|(n, v)| breaches(item, v, &format!("{at}[{n}]"), out)),
            None => out.push(format!("{at} is no array")),
        }
    } else if let Some(item) = kind.strip_prefix('{').and_then(|k| k.strip_suffix('}')) {
        match value.as_object() {
            Some(all) => all.iter().for_each(|(k, v)| breaches(item, v, &format!("{at}.{k}"), out)),
            None => out.push(format!("{at} is no object")),
        }
    } else if let Some((_, properties)) = SCHEMA.iter().find(|(name, _)| *name == kind) {
        object(kind, properties, value, at, out);
    } else if !is_simple(kind, value) {
        out.push(format!("{at} is {value}, not {kind}"));
    }
}

fn object(kind: &str, properties: &[(&str, &str)], value: &Value, at: &str, out: &mut Vec<String>) {
    let Some(all) = value.as_object() else { return out.push(format!("{at} is no object")) };
    for (name, value) in all {
        match properties.iter().find(|(n, _)| n.trim_end_matches('!') == name) {
            Some((_, kind)) => breaches(kind, value, &format!("{at}.{name}"), out),
            None => out.push(format!("{at}.{name} is not in the schema")),
        }
    }
    let required = properties.iter().filter_map(|(name, _)| name.strip_suffix('!'));
    out.extend(required.filter(|name| !all.contains_key(*name)).map(|name| format!("{at}.{name} is missing")));
    if kind == "physicalLocation" && !all.contains_key("artifactLocation") && !all.contains_key("address") {
        out.push(format!("{at} has neither artifactLocation nor address"));
    }
    if kind == "threadFlow" && value["locations"].as_array().is_some_and(Vec::is_empty) {
        out.push(format!("{at}.locations is empty"));
    }
}

fn is_simple(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "bool" => value.is_boolean(),
        "bag" => value.is_object(),
        "uri" => {
            let plain = |c: char| c.is_ascii_graphic() && !"<>\"{}|\\^`".contains(c);
            value.as_str().is_some_and(|text| text.chars().all(plain))
        }
        words => value.as_str().is_some_and(|text| words.split('|').any(|word| word == text)),
    }
}

/// Checks the structure of the answer's document, and gives it.
#[track_caller]
fn checked(report: &Report, root: Option<&str>) -> Value {
    let document: Value = serde_json::from_str(&sarif(report, root)).expect("it is JSON");
    let mut wrong = Vec::new();
    breaches("sarifLog", &document, "", &mut wrong);
    assert_eq!(wrong, Vec::<String>::new());
    for result in document["runs"][0]["results"].as_array().expect("checked") {
        let index = result["ruleIndex"].as_u64().expect("checked") as usize;
        assert_eq!(document["runs"][0]["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    }
    document
}

#[test]
fn a_cause_is_a_result_with_its_path_as_code_flow() {
    let document = checked(&common::sample(), Some("/src/count"));
    let results = &document["runs"][0]["results"];
    assert_eq!(results.as_array().map(Vec::len), Some(3));
    let first = &results[0];
    for (pointer, expected) in [
        ("/ruleId", json!("critical-predicate")),
        ("/level", json!("error")),
        ("/locations/0/physicalLocation/artifactLocation", json!({ "uri": "count.c", "uriBaseId": "SRCROOT" })),
        ("/locations/0/physicalLocation/region/startLine", json!(49)),
        ("/locations/0/logicalLocations/0/name", json!("read_all")),
        ("/codeFlows/0/threadFlows/0/locations/2/location/message/text", json!("count.c:27: t->words")),
        (
            "/codeFlows/0/threadFlows/0/locations/4/location/physicalLocation/artifactLocation/uri",
            json!("file:///src/library/printing.c"),
        ),
        (
            "/codeFlows/0/threadFlows/0/locations/5/location/physicalLocation/address/fullyQualifiedName",
            json!("libc.so.6+0x10e1a4"),
        ),
    ] {
        assert_eq!(first.pointer(pointer), Some(&expected), "{pointer}");
    }
    let message = "With line 49 taken the other way on its 5th execution the program prints 8 words as expected. \
                   The run fails: byte 8 of standard output is '9' instead of '8'.";
    assert_eq!(first["message"]["text"], json!(message));
    assert_eq!(results[2]["level"], json!("warning"));
}

#[test]
fn an_answer_without_causes_is_a_run_without_results() {
    let document = checked(&Report::default(), None);
    assert_eq!(document["runs"][0]["results"], json!([]));
}

#[test]
fn hostile_names_keep_the_structure() {
    let mut report = common::sample();
    let nasty = "a b\u{0}\"<>{}|\\^`%\n.c";
    let place = Place { file: Some(nasty.into()), full: Some(format!("/{nasty}")), ..Place::default() };
    report.causes.push(Cause { place, explanation: nasty.into(), ..report.causes[0].clone() });
    report.command.push(nasty.into());
    checked(&report, None);
}

/// The check itself must notice what is wrong.
#[test]
fn breaches_of_the_schema_are_found() {
    let run = json!({ "tool": { "driver": {} }, "columnKind": "bytes", "novel": 1, "results": [
        { "message": { "text": "x" }, "locations": [{ "physicalLocation": {} }], "level": "fatal" },
        { "message": {}, "codeFlows": [{ "threadFlows": [{ "locations": [] }] }] },
    ] });
    let mut wrong = Vec::new();
    breaches("sarifLog", &json!({ "version": "2.1.0", "runs": [run] }), "", &mut wrong);
    wrong.sort();
    let expected = [
        ".runs[0].columnKind is \"bytes\", not utf16CodeUnits|unicodeCodePoints",
        ".runs[0].novel is not in the schema",
        ".runs[0].results[0].level is \"fatal\", not none|note|warning|error",
        ".runs[0].results[0].locations[0].physicalLocation has neither artifactLocation nor address",
        ".runs[0].results[1].codeFlows[0].threadFlows[0].locations is empty",
        ".runs[0].results[1].message.text is missing",
        ".runs[0].tool.driver.name is missing",
    ];
    assert_eq!(wrong, expected);
}
