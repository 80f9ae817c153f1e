//! Rules about documents and text in general.

use std::path::{Component, Path, PathBuf};

use super::{Breaches, SourceFile};

/// Text that names a machine or a host of packages does not belong into the project. Put together from pieces, so that
/// this file does not break its own rule.
const PLACES: &[&[&str]] = &[
    &["/home", "/"],
    &["/ro", "ot/"],
    &["/Us", "ers/"],
    &["/wo", "rk/"],
    &["crates", ".io/api"],
    &["index.crates", ".io"],
    &["static.crates", ".io"],
    &["deb.deb", "ian.org"],
    &["security.deb", "ian.org"],
    &["py", "pi.org"],
    &["registry.np", "mjs.org"],
    &["proxy.go", "lang.org"],
];

/// Links in Markdown to files of the repository must exist, and so must their anchors.
pub fn links(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        for (n, target) in link_targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let full = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let found = files.iter().find(|f| f.path == full);
            let folder = files.iter().any(|f| f.path.starts_with(&format!("{}/", full.trim_end_matches('/'))));
            match found {
                None if !folder => breaches.push(format!("{}:{n}: {target} is not there", file.path)),
                Some(f)
                    if !anchor.is_empty()
                        && f.path.ends_with(".md")
                        && !anchors(&f.text).contains(&anchor.to_owned()) =>
                {
                    breaches.push(format!("{}:{n}: {target} has no such heading", file.path));
                }
                _ => {}
            }
        }
    }
    breaches
}

pub fn places(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    let places: Vec<String> = PLACES.iter().map(|pieces| pieces.concat()).collect();
    for file in files.iter().filter(|f| !f.path.ends_with("Cargo.lock")) {
        for (i, line) in file.text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| line.contains(place.as_str())) {
                breaches.push(format!("{}:{}: names `{place}`", file.path, i + 1));
            }
        }
    }
    breaches
}

/// The first two fenced blocks of the README are one command each: the main job on an example, and the tests; what runs
/// automatically is the second and nothing else.
pub fn set_up(files: &[SourceFile]) -> Breaches {
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let blocks: Vec<&str> = text("README.md").split("```").skip(1).step_by(2).take(2).collect();
    let commands: Vec<Vec<&str>> =
        blocks.iter().map(|b| b.lines().skip(1).filter(|l| !l.is_empty()).collect()).collect();
    let [Some([_]), Some([tests])] = [0, 1].map(|n| commands.get(n).map(Vec::as_slice)) else {
        return vec!["README.md: its first two fenced blocks must be one command each".to_owned()];
    };
    let is_preamble = |l: &&str| l.starts_with('#') || l.starts_with("set -") || l.starts_with("cd ") || l.is_empty();
    let run: Vec<&str> = text(".ci/run").lines().filter(|l| !is_preamble(l)).collect();
    if run == [*tests] {
        Vec::new()
    } else {
        vec![".ci/run: must run the second command of README.md, no more".to_owned()]
    }
}

/// Targets of `[text](target)` outside code, with their lines.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let (mut targets, mut in_code) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            if let Some(end) = rest.find(')') {
                targets.push((i + 1, rest[..end].trim().to_owned()));
            }
        }
    }
    targets
}

/// Headings as anchors: lower case, blanks to hyphens, punctuation dropped.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim());
    headings
        .map(|h| {
            h.to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// `target` as seen from `from`, without `.` and `..`.
fn resolve(from: &str, target: &str) -> String {
    let mut path = PathBuf::from(from);
    path.pop();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    #[test]
    fn broken_links_are_found() {
        let files = [
            file("docs/a.md", "# One Two\n[b](b.md) [up](../README.md#the-end) [x](gone.md) [self](#one-two)\n"),
            file("docs/b.md", ""),
            file("README.md", "# The end\n"),
        ];
        assert_eq!(links(&files), ["docs/a.md:2: gone.md is not there"]);
    }

    #[test]
    fn code_in_documents_is_not_linked() {
        assert_eq!(links(&[file("a.md", "```\n[x](gone.md)\n```\n")]), Breaches::new());
    }

    #[test]
    fn what_runs_automatically_is_what_the_readme_says() {
        let readme = file("README.md", "# X\n```sh\nmake\n```\ntext\n```sh\nmake check\n```\n```\nmore\n```\n");
        let run = |text: &str| file(".ci/run", text);
        let good = run("#!/bin/sh\n# why\nset -e\n\ncd ..\nmake check\n");
        assert_eq!(set_up(&[readme.clone(), good.clone()]), Breaches::new());
        assert_eq!(set_up(&[readme, run("make check --fast\n")]).len(), 1);
        assert_eq!(set_up(&[file("README.md", "```\na\nb\n```\n```\nmake check\n```\n"), good]).len(), 1);
    }

    #[test]
    fn places_are_found() {
        let text = format!("see {}{}user/x\n", "/home", "/");
        assert_eq!(places(&[file("a.md", &text)]).len(), 1);
        assert_eq!(places(&[file("a.md", "see docs/x\n")]), Breaches::new());
    }
}
