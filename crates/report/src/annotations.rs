//! The answer as workflow commands, which GitHub shows beside the lines that they name.
//!
//! The form is that of "Workflow commands for GitHub Actions": `::error file=…,line=…,title=…::message`.
//! Guarantees: one line per cause, whatever foreign text holds. May miss: GitHub shows at most ten errors and ten
//! warnings of a step.

use crate::words::{sentence, visible};
use crate::{Cause, Report};
use std::fmt::Write;

/// A line per cause; files below `root`, the folder of the checked out repository, are named as the repository does.
pub fn annotations(report: &Report, root: Option<&str>) -> String {
    let failure = sentence(&format!("the run fails: {}", report.failure));
    if report.causes.is_empty() {
        return command("notice", &[("title", "Clew: no cause found".to_owned())], &failure);
    }
    report.causes.iter().enumerate().map(|(n, c)| one(c, n + 1, &failure, root)).collect()
}

fn one(cause: &Cause, rank: usize, failure: &str, root: Option<&str>) -> String {
    let (level, status) = if cause.proved { ("error", "proved") } else { ("warning", "suspected") };
    let mut properties = Vec::new();
    if let Some(file) = cause.place.path_from(root) {
        properties.push(("file", file.to_owned()));
        properties.extend(cause.place.line.map(|line| ("line", line.to_string())));
    }
    properties.push(("title", format!("Clew: cause {rank}, {status}")));
    let mut message = sentence(&cause.explanation);
    if cause.place.file_key().is_none() {
        message = format!("{}: {message}", cause.place.short());
    }
    if let Some(doubt) = &cause.doubt {
        let _ = write!(message, "\n{}", sentence(&format!("suspected only: {doubt}")));
    }
    let _ = write!(message, "\n{failure}");
    if !cause.closer.is_empty() {
        let _ = write!(message, "\nTo look closer: {}", cause.closer);
    }
    command(level, &properties, &message)
}

fn command(level: &str, properties: &[(&str, String)], message: &str) -> String {
    let properties: Vec<String> =
        properties.iter().map(|(name, value)| format!("{name}={}", property(value))).collect();
    let lines: Vec<_> = message.lines().map(visible).collect();
    format!("::{level} {}::{}\n", properties.join(","), data(&lines.join("\n")))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Place};

    fn cause(full: &str, proved: bool) -> Cause {
        Cause {
            place: Place { full: Some(full.into()), line: Some(12), ..Place::default() },
            kind: Kind::CriticalPredicate,
            proved,
            instance: None,
            explanation: "with line 12 taken the other way it is 100% right".into(),
            distance: None,
            doubt: (!proved).then(|| "a control failed".to_owned()),
            evidence: None,
            path: Vec::new(),
            closer: "clew gdb latest".into(),
        }
    }

    #[track_caller]
    fn check(causes: Vec<Cause>, expected: &str) {
        let report = Report { failure: "it dies".into(), causes, ..Report::default() };
        assert_eq!(annotations(&report, Some("/src/project/")), expected);
    }

    #[test]
    fn proved_causes_are_errors_and_others_warnings() {
        check(
            vec![cause("/src/project/a.c", true), cause("/usr/include/b.h", false)],
            "::error file=a.c,line=12,title=Clew%3A cause 1%2C proved::With line 12 taken the other way it is 100%25 \
             right.%0AThe run fails: it dies.%0ATo look closer: clew gdb latest\n\
             ::warning file=/usr/include/b.h,line=12,title=Clew%3A cause 2%2C suspected::With line 12 taken the other \
             way it is 100%25 right.%0ASuspected only: a control failed.%0AThe run fails: it dies.%0A\
             To look closer: clew gdb latest\n",
        );
    }

    #[test]
    fn a_cause_without_source_is_told_by_its_address() {
        let mut nowhere = cause("", true);
        nowhere.place = Place { address: "prog+0x12".into(), ..Place::default() };
        nowhere.closer.clear();
        check(
            vec![nowhere],
            "::error title=Clew%3A cause 1%2C proved::prog+0x12: With line 12 taken the other way it is 100%25 right.\
             %0AThe run fails: it dies.\n",
        );
    }

    #[test]
    fn without_causes_there_is_a_notice() {
        check(vec![], "::notice title=Clew%3A no cause found::The run fails: it dies.\n");
    }

    #[test]
    fn hostile_text_stays_in_its_place() {
        for (given, as_data, as_property) in [
            ("a%0Ab", "a%250Ab", "a%250Ab"),
            ("a\r\nb", "a%0D%0Ab", "a%0D%0Ab"),
            ("x:y,z", "x:y,z", "x%3Ay%2Cz"),
            ("\n::error::no", "%0A::error::no", "%0A%3A%3Aerror%3A%3Ano"),
        ] {
            assert_eq!((data(given).as_str(), property(given).as_str()), (as_data, as_property), "{given:?}");
        }
        let mut hostile = cause("/src/project/x,y:\n::stop-commands::t.c", true);
        hostile.explanation = "\r::error::no\n".into();
        let report = Report { causes: vec![hostile], ..Report::default() };
        assert_eq!(annotations(&report, Some("/src/project")).lines().count(), 1);
    }
}
