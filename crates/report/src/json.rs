//! The answer as one JSON document, stable and versioned.

use crate::{Cause, Decision, Place, Report, SliceLine, Step};
use serde_json::{Value, json};

/// The document, with a newline behind it.
pub fn json(report: &Report) -> String {
    let mut tried = json!({ "trials": report.tried.trials, "controls": report.tried.controls });
    for (name, n) in &report.tried.verdicts {
        tried[name] = json!(n);
    }
    let mut time = json!({ "seconds": report.seconds });
    for (name, seconds) in &report.phases {
        time[name] = json!(seconds);
    }
    let causes = report.causes.iter().enumerate().map(|(n, c)| cause(report, n + 1, c));
    let document = json!({
        "clew": 1,
        "verb": report.verb,
        "recording": report.recording,
        "process": report.process,
        "command": report.command,
        "failure": report.failure,
        "candidates": causes.collect::<Vec<_>>(),
        "needed": report.needed.iter().map(decision).collect::<Vec<_>>(),
        "slice": report.slice.iter().map(slice_line).collect::<Vec<_>>(),
        "tried": tried,
        "limits": report.limits,
        "time": time,
    });
    format!("{document:#}\n")
}

fn decision(decision: &Decision) -> Value {
    let mut value = place(&decision.place);
    merge(&mut value, json!({ "instance": decision.instance.number, "of": decision.instance.of }));
    value
}

fn cause(report: &Report, rank: usize, cause: &Cause) -> Value {
    let mut value = place(&cause.place);
    let more = json!({
        "rank": rank,
        "kind": cause.kind.name(),
        "status": if cause.proved { "proved" } else { "suspected" },
        "instance": cause.instance.map(|i| i.number),
        "of": cause.instance.and_then(|i| i.of),
        "distance": cause.distance,
        "explanation": cause.explanation,
        "doubt": cause.doubt,
        "path": cause.path.iter().map(step).collect::<Vec<_>>(),
        "closer": cause.closer,
    });
    merge(&mut value, more);
    if let Some(e) = &cause.evidence {
        value["evidence"] = json!({ "recording": report.recording, "moment": e.moment, "alteration": e.alteration });
        value["trial"] = json!({ "verdict": e.verdict, "end": e.end });
    }
    value
}

fn place(place: &Place) -> Value {
    json!({
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "address": place.address,
        "source": place.source,
    })
}

fn step(step: &Step) -> Value {
    let mut value = place(&step.place);
    value["by"] = json!(step.by);
    value
}

fn slice_line(line: &SliceLine) -> Value {
    json!({
        "file": line.place.file,
        "line": line.place.line,
        "function": line.place.function,
        "distance": line.distance,
        "instances": line.instances,
        "executed": line.executed,
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Evidence, Kind};

    #[test]
    fn a_finding_has_the_fields_of_the_contract() {
        let found = Cause {
            place: Place {
                file: Some("lcode.c".into()),
                line: Some(988),
                function: Some("luaK_exp2val".into()),
                ..Place::default()
            },
            kind: Kind::CriticalPredicate,
            proved: true,
            instance: Some(crate::Execution { number: 2, of: Some(2) }),
            distance: Some(4),
            explanation: "with line 988 taken the other way it works".into(),
            doubt: None,
            evidence: Some(Evidence { verdict: "fixed".into(), ..Evidence::default() }),
            path: Vec::new(),
            closer: String::new(),
        };
        let report = Report { verb: "why".into(), causes: vec![found], ..Report::default() };
        let value: Value = serde_json::from_str(&json(&report)).expect("it is JSON");
        assert_eq!((&value["clew"], &value["verb"]), (&json!(1), &json!("why")));
        let first = &value["candidates"][0];
        for (key, expected) in [
            ("rank", json!(1)),
            ("file", json!("lcode.c")),
            ("line", json!(988)),
            ("kind", json!("critical-predicate")),
            ("status", json!("proved")),
            ("instance", json!(2)),
        ] {
            assert_eq!(first[key], expected, "{key}");
        }
        assert_eq!(first["trial"]["verdict"], json!("fixed"));
    }
}
