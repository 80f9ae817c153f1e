//! Bad input: one clear sentence, the right exit status, nothing left running.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use crate::{
    exec::{self, End, Job},
    guests::{Stage, clew_binary},
    tally::Tally,
};

/// An input, the expected status, and a piece of the sentence.
struct Input {
    name: &'static str,
    /// Command line after `clew`; `FILE` stands for the file made from `content`.
    argv: &'static [&'static str],
    content: Content,
    status: i32,
    says: &'static [&'static str],
}

/// How to make the file.
enum Content {
    None,
    Text(&'static str),
    NotExecutable,
    /// The first bytes of a real program.
    Truncated(usize),
    /// A real program with bytes replaced.
    Patched(&'static [(usize, &'static [u8])]),
}

const RUN: &[&str] = &["run", "--", "./FILE"];

const INPUTS: &[Input] = &[
    Input {
        name: "missing file",
        argv: &["run", "--", "./nothing-here"],
        content: Content::None,
        status: 127,
        says: &["no such file"],
    },
    Input {
        name: "missing in PATH",
        argv: &["run", "--", "nothing-here"],
        content: Content::None,
        status: 127,
        says: &["PATH"],
    },
    Input { name: "empty name", argv: &["run", "--", ""], content: Content::None, status: 127, says: &["empty"] },
    Input { name: "folder", argv: &["run", "--", "./in"], content: Content::None, status: 126, says: &["folder"] },
    Input {
        name: "device",
        argv: &["run", "--", "/dev/null"],
        content: Content::None,
        status: 126,
        says: &["regular file"],
    },
    Input { name: "not executable", argv: RUN, content: Content::NotExecutable, status: 126, says: &["chmod"] },
    Input {
        name: "text without #!",
        argv: RUN,
        content: Content::Text("echo plain text\n"),
        status: 126,
        says: &["FILE"],
    },
    Input { name: "empty file", argv: RUN, content: Content::Text(""), status: 126, says: &["FILE"] },
    Input {
        name: "missing interpreter",
        argv: RUN,
        content: Content::Text("#!/no/such/interpreter\n"),
        status: 127,
        says: &["interpreter"],
    },
    Input { name: "#! without a name", argv: RUN, content: Content::Text("#!\n"), status: 126, says: &["FILE"] },
    Input {
        name: "script that interprets itself",
        argv: RUN,
        content: Content::Text("#!./FILE\n"),
        status: 126,
        says: &["FILE"],
    },
    Input {
        name: "32-bit ELF",
        argv: RUN,
        content: Content::Patched(&[(4, &[1]), (18, &[3, 0])]),
        status: 126,
        says: &["32-bit"],
    },
    Input {
        name: "ARM ELF",
        argv: RUN,
        content: Content::Patched(&[(18, &[183, 0])]),
        status: 126,
        says: &["AArch64"],
    },
    Input { name: "big-endian ELF", argv: RUN, content: Content::Patched(&[(5, &[2])]), status: 126, says: &["FILE"] },
    Input { name: "object file", argv: RUN, content: Content::Patched(&[(16, &[1, 0])]), status: 126, says: &["FILE"] },
    Input { name: "magic alone", argv: RUN, content: Content::Truncated(4), status: 126, says: &["FILE"] },
    Input { name: "half a header", argv: RUN, content: Content::Truncated(40), status: 126, says: &["FILE"] },
    Input { name: "truncated program", argv: RUN, content: Content::Truncated(1000), status: 126, says: &["FILE"] },
    // Offset 32 is e_phoff, 56 e_phnum, 54 e_phentsize; a program header has offset at 8, filesz at 32, memsz at 40.
    Input {
        name: "program headers beyond the end",
        argv: RUN,
        content: Content::Patched(&[(32, &[0, 0, 0, 0, 1, 0, 0, 0])]),
        status: 126,
        says: &["FILE"],
    },
    Input {
        name: "no program headers",
        argv: RUN,
        content: Content::Patched(&[(56, &[0, 0])]),
        status: 126,
        says: &["FILE"],
    },
    Input {
        name: "odd size of program headers",
        argv: RUN,
        content: Content::Patched(&[(54, &[1, 0])]),
        status: 126,
        says: &["FILE"],
    },
    Input {
        name: "corrupt program headers",
        argv: RUN,
        content: Content::Patched(CORRUPT),
        status: 126,
        says: &["FILE"],
    },
    Input { name: "no memory", argv: &["ulimit"], content: Content::None, status: 125, says: &["memory"] },
    Input { name: "no program", argv: &["run"], content: Content::None, status: 125, says: &["PROGRAM"] },
    Input {
        name: "unknown option",
        argv: &["run", "--no-such-option", "--", "true"],
        content: Content::None,
        status: 125,
        says: &["--no-such-option"],
    },
    Input {
        name: "unknown mode",
        argv: &["run", "--mode", "fast", "--", "true"],
        content: Content::None,
        status: 125,
        says: &["fast"],
    },
    Input { name: "unknown verb", argv: &["no-such-verb"], content: Content::None, status: 2, says: &["no-such-verb"] },
];

/// Every program header's memory size becomes huge and its offset odd.
const CORRUPT: &[(usize, &[u8])] = &[
    (64 + 40, &[0xff; 8]),
    (64 + 56 + 8, &[0xff; 8]),
    (64 + 112 + 8, &[0xff; 8]),
    (64 + 112 + 32, &[0xff; 8]),
    (64 + 168 + 8, &[0xff; 8]),
    (64 + 168 + 40, &[0xff; 8]),
    (64 + 224 + 8, &[0xff; 8]),
];

pub fn badinput(clew: Option<String>) -> Result<Tally, String> {
    let mut tally = Tally::new("badinput");
    let stage = Stage::new("badinput", &clew_binary(clew)?)?;
    for input in INPUTS {
        tally.count(input.name, check(&stage, input));
    }
    Ok(tally)
}

fn check(stage: &Stage, input: &Input) -> Result<(), String> {
    let folder = stage.fresh("badinput").map_err(|e| e.to_string())?;
    let dir = folder.join("w");
    make(stage, &dir, &input.content).map_err(|e| e.to_string())?;
    let clew = stage.clew.display().to_string();
    // A limit on address space too small for any engine must be told, whatever the program is.
    let script = format!("ulimit -v 60000; exec {clew} run --mode count -- /bin/true");
    let argv = match input.argv {
        ["ulimit"] => vec!["sh".into(), "-c".into(), script.into()],
        words => [clew.as_str()].iter().chain(words).map(Into::into).collect(),
    };
    let outcome = exec::run(&Job {
        argv,
        env: stage.environment(&folder),
        dir,
        stdin: None,
        capture: stage.captures("badinput"),
        limit: Duration::from_secs(30),
    })
    .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let sentence = said.lines().next().unwrap_or_default().to_owned();
    if outcome.end != End::Exit(input.status) {
        return Err(format!("ends with {} instead of exit {} [{sentence}]", outcome.end, input.status));
    }
    if !sentence.starts_with("clew: ") {
        return Err(format!("says `{sentence}`"));
    }
    if input.argv.contains(&"--") && input.argv[0] == "run" && input.status != 125 && said.lines().count() != 1 {
        return Err(format!("says more than one sentence: {said:?}"));
    }
    if let Some(word) = input.says.iter().find(|word| !said.contains(**word)) {
        return Err(format!("`{sentence}` does not name `{word}`"));
    }
    if !outcome.stdout.is_empty() || !outcome.strays.is_empty() {
        return Err("wrote to standard output or left something running".to_owned());
    }
    Ok(())
}

fn make(stage: &Stage, dir: &Path, content: &Content) -> std::io::Result<()> {
    let program = || fs::read(stage.bin().join("hello-no-pie"));
    let bytes = match content {
        Content::None => return Ok(()),
        Content::Text(text) => text.as_bytes().to_vec(),
        Content::NotExecutable => program()?,
        Content::Truncated(n) => program()?[..*n].to_vec(),
        Content::Patched(patches) => {
            let mut bytes = program()?;
            for (at, new) in *patches {
                bytes[*at..*at + new.len()].copy_from_slice(new);
            }
            bytes
        }
    };
    let mode = if matches!(content, Content::NotExecutable) { 0o644 } else { 0o755 };
    fs::write(dir.join("FILE"), bytes)?;
    fs::set_permissions(dir.join("FILE"), fs::Permissions::from_mode(mode))
}
