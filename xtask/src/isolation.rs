//! Isolation: wild loads, stores and jumps of a guest behave as natively.
//!
//! The guest `isolation.c` touches more than 10,000 addresses of nine classes, jumps to several thousand of ten, and prints
//! per class how often the outcome was not what its own memory map says. Natively that is never; under Clew it must be
//! never too, in every mode, whether the program is position-independent or not.

use std::time::Duration;

use crate::{
    exec::End,
    guests::{Stage, clew_binary},
    tally::Tally,
};

pub fn isolation(clew: Option<String>, modes: &[&str]) -> Result<Tally, String> {
    let mut tally = Tally::new("isolation");
    let stage = Stage::new("isolation", &clew_binary(clew)?)?;
    let clew = stage.clew.display().to_string();
    for guest in ["isolation", "isolation-no-pie"] {
        let native = stage.run("isolation", &[guest], Duration::from_secs(60))?;
        if native.end != End::Exit(0) {
            return Err(format!("the guest {guest} itself fails natively: {}", native.end));
        }
        for mode in modes {
            let words = [&clew, "run", "--quiet", "--mode", mode, "--", guest];
            let got = stage.run("isolation", &words, Duration::from_secs(120))?;
            let text = String::from_utf8_lossy(&got.stdout).into_owned();
            for expected in String::from_utf8_lossy(&native.stdout).lines().skip(1) {
                let class = expected.split(':').next().unwrap_or_default();
                let line = text.lines().find(|line| line.starts_with(class));
                let result = match line {
                    Some(line) if line == expected => Ok(()),
                    Some(line) => Err(format!("`{line}`; {}", first_line(&got.stderr))),
                    None => Err(format!("no result: {} {}", got.end, first_line(&got.stderr))),
                };
                tally.count(&format!("{guest}, {class} ({mode})"), result);
            }
        }
    }
    Ok(tally)
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}
