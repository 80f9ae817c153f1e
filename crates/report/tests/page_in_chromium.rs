//! The page in a real browser: Chromium without a window opens it, a probe looks and clicks, and says what it saw.
//!
//! The probe is a script appended to a copy of the page; Chromium prints the resulting document. Every connection would have
//! to go through a proxy that is not there. Without Chromium these tests say that they were not run; with
//! `CLEW_REQUIRE_CHROMIUM` set they fail.

mod common;

use report::{Report, html};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// What the probes share: whether people see an element, and the line that is highlighted.
const TOOLS: &str = r#"
  const seen = (e) => {
    if (!e) return false;
    const r = e.getBoundingClientRect();
    return e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && r.width > 0 && r.height > 0;
  };
  const inView = (e) => {
    const r = e.getBoundingClientRect();
    return r.top >= 0 && r.bottom <= innerHeight;
  };
  const highlighted = () => [...document.querySelectorAll(".row:target, .row.here")].map((e) => e.innerText.trim());
  const text = (e) => e ? e.innerText.trim() : null;
  const answer = (value) => {
    const out = document.createElement("pre");
    out.id = "outcome";
    out.textContent = JSON.stringify(value);
    document.body.append(out);
  };
"#;

/// What Chromium made of a page.
struct Visit {
    outcome: Value,
    /// Errors and all else that the page left on the console.
    console: Vec<String>,
}

/// Opens `page`, `width` pixels wide, with a probe. `None`, after saying so, when there is no Chromium.
#[track_caller]
fn visit(name: &str, page: &str, width: u32, probe: &str) -> Option<Visit> {
    if Command::new("chromium").arg("--version").output().is_err() {
        assert!(std::env::var_os("CLEW_REQUIRE_CHROMIUM").is_none(), "chromium is required but cannot be run");
        eprintln!(
            "NOT RUN: this test opens a page in chromium, which is not installed; `cargo xtask setup` installs it"
        );
        return None;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    let file = folder.join("page.html");
    let script = format!("<script>\n(() => {{ {TOOLS} {probe} }})();\n</script></body>");
    std::fs::write(&file, page.replace("</body>", &script)).expect("the page can be written");
    let output = Command::new("timeout")
        .args(["--kill-after=5", "50", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--proxy-server=http://127.0.0.1:9", "--enable-logging=stderr"])
        .args([format!("--window-size={width},900"), format!("--user-data-dir={}", folder.join("profile").display())])
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("timeout is there");
    let _ = std::fs::remove_dir_all(&folder);
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "chromium: {}\n{log}", output.status);
    let outcome = dom.split("<pre id=\"outcome\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let outcome = outcome.unwrap_or_else(|| panic!("the probe did not answer\n{log}\n{dom}"));
    let outcome = outcome.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&");
    Some(Visit {
        outcome: serde_json::from_str(&outcome).expect("the probe answers in JSON"),
        console: log.lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect(),
    })
}

/// Opens `page` and expects what the probe says, and a clean console.
#[track_caller]
fn check(name: &str, page: &str, width: u32, probe: &str, expected: &Value) {
    if let Some(visit) = visit(name, page, width, probe) {
        assert_eq!(&visit.outcome, expected);
        assert_eq!(visit.console, Vec::<String>::new());
    }
}

/// Looks at the best cause, then clicks on the third and fifth step of its path.
const TOUR: &str = r##"
  const cause = document.querySelector("#cause-1");
  const line = document.querySelector(cause.querySelector("a.line").getAttribute("href"));
  const result = {
    cause: text(cause.querySelector("h3")),
    cause_seen: seen(cause) && inView(cause.querySelector("h3")),
    line: text(line),
    line_seen: seen(line),
    before: highlighted(),
    loaded: performance.getEntriesByType("resource").length,
    overflow: document.documentElement.scrollWidth > innerWidth,
  };
  const steps = cause.querySelectorAll("a.step");
  const step = (n, name, next) => {
    addEventListener("hashchange", () => {
      const line = document.querySelector(steps[n].getAttribute("href"));
      result[name] = { lines: highlighted(), seen: seen(line) && inView(line) };
      next();
    }, { once: true });
    steps[n].click();
  };
  addEventListener("load", () => step(2, "first", () => step(4, "second", () => answer(result))));
"##;

fn tour() -> Value {
    json!({
        "cause": "1. count.c:49 in read_all proved",
        "cause_seen": true,
        "line": "49\n1\n\t\tif (length >= 0)",
        "line_seen": true,
        "before": [],
        "loaded": 0,
        "overflow": false,
        "first": { "lines": ["27\n2\n\tt->words++;"], "seen": true },
        "second": { "lines": ["120000\n\tstep(120000); /* generated */"], "seen": true },
    })
}

#[test]
fn the_path_leads_through_the_sources() {
    check("wide", &html(&common::sample()), 1400, TOUR, &tour());
}

#[test]
fn a_narrow_screen_is_wide_enough() {
    check("narrow", &html(&common::sample()), 500, TOUR, &tour());
}

/// The page without its own script; the probe stands for the person.
#[test]
fn it_works_without_its_script() {
    let page = html(&common::sample());
    let (before, rest) = page.split_once("<script>").expect("the page has a script");
    let (_, after) = rest.split_once("</script>").expect("it ends");
    check("scriptless", &format!("{before}{after}"), 1400, TOUR, &tour());
}

#[test]
fn a_step_opens_what_is_folded_and_marks_its_path() {
    let probe = r##"
      document.querySelectorAll("details").forEach((d) => { d.open = false; });
      const step = document.querySelectorAll("#cause-1 a.step")[2];
      const line = document.querySelector(step.getAttribute("href"));
      const before = seen(line);
      step.click();
      answer({
        before,
        after: seen(line),
        here: [...document.querySelectorAll(".here")].map((e) => e.id),
        on_path: document.querySelectorAll(".row.on-path").length,
        button: seen(document.querySelector("#cause-1 button")),
      });
    "##;
    let expected = json!({ "before": false, "after": true, "here": ["f0-27"], "on_path": 5, "button": true });
    check("folded", &html(&common::sample()), 1400, probe, &expected);
}

#[test]
fn hostile_text_is_only_text() {
    let nasty = "\"'></script></style></title><img src=x onerror=pwned()><script>pwned()</script>&lt;b&gt;<!--";
    let probe = r##"
      answer({
        images: document.images.length,
        scripts: document.scripts.length,
        handlers: document.querySelectorAll("[onerror]").length,
        told: text(document.querySelector("#cause-1 .why")),
        cards: document.querySelectorAll(".card").length,
      });
    "##;
    let expected = json!({ "images": 0, "scripts": 2, "handlers": 0, "told": format!("{nasty}."), "cards": 3 });
    check("hostile", &html(&hostile(nasty)), 1400, probe, &expected);
}

/// The sample with foreign text in every place that foreign text can get to.
fn hostile(nasty: &str) -> Report {
    let mut report = common::sample();
    let replace = |place: &mut report::Place| {
        place.file = Some(nasty.into());
        place.full = Some(format!("/{nasty}"));
        place.function = Some(nasty.into());
        place.address = nasty.into();
        place.source = Some(nasty.into());
    };
    for cause in &mut report.causes {
        replace(&mut cause.place);
        cause.explanation = nasty.into();
        cause.doubt = Some(nasty.into());
        cause.closer = nasty.into();
        for step in &mut cause.path {
            replace(&mut step.place);
            step.by = nasty.into();
        }
        if let Some(evidence) = &mut cause.evidence {
            for text in [&mut evidence.moment, &mut evidence.alteration, &mut evidence.verdict, &mut evidence.end] {
                *text = nasty.into();
            }
        }
    }
    report.slice.iter_mut().for_each(|line| replace(&mut line.place));
    report.sources = vec![report::Source { path: format!("/{nasty}"), lines: vec![nasty.into(); 100] }];
    for text in [&mut report.failure, &mut report.recording, &mut report.process] {
        *text = nasty.into();
    }
    report.command = vec![nasty.into(), nasty.into()];
    report.limits = vec![nasty.into()];
    report.tried.verdicts = vec![(nasty.into(), 1)];
    if let Some(difference) = &mut report.difference {
        difference.stream = nasty.into();
        difference.found = nasty.as_bytes().to_vec();
        difference.expected = nasty.bytes().rev().collect();
    }
    report
}

/// The tests above rest on seeing what the console has: errors of scripts and what the policy refuses.
#[test]
fn errors_of_a_page_are_seen() {
    let page = html(&common::sample()).replace("</body>", "<img src=\"http://127.0.0.1:9/x\"></body>");
    let Some(visit) = visit("errors", &page, 1400, "answer(1); undefinedFunction();") else { return };
    for what in ["undefinedFunction is not defined", "Content Security Policy"] {
        assert!(visit.console.iter().any(|line| line.contains(what)), "{what}: {:?}", visit.console);
    }
}
