//! Writing to people: one place for the prefix, for colours, and for what happens when nobody reads.
//!
//! A message is written with one system call, so that it does not mix with what a guest writes at the same moment.
//! Messages on standard error may be lost: the run matters. An answer on standard output that cannot be written makes the
//! exit status one of failure; nothing is said when the reader has gone.

use crate::cli::Color;
use crate::startup::Startup;
use anstyle::{AnsiColor, Style};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether and how to colour one stream.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    pub fn for_stdout(color: Color, startup: &Startup) -> Paint {
        Paint(decide(color, startup, rustix::termios::isatty(rustix::stdio::stdout())))
    }

    pub fn for_stderr(color: Color, startup: &Startup) -> Paint {
        Paint(decide(color, startup, rustix::termios::isatty(rustix::stdio::stderr())))
    }

    pub fn on(self) -> bool {
        self.0
    }

    fn style(self, text: &str, style: Style) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    pub fn good(self, text: &str) -> String {
        self.style(text, AnsiColor::Green.on_default())
    }

    pub fn middling(self, text: &str) -> String {
        self.style(text, AnsiColor::Yellow.on_default())
    }

    pub fn bad(self, text: &str) -> String {
        self.style(text, AnsiColor::Red.on_default().bold())
    }

    pub fn strong(self, text: &str) -> String {
        self.style(text, Style::new().bold())
    }

    pub fn faint(self, text: &str) -> String {
        self.style(text, Style::new().dimmed())
    }
}

impl report::Style for Paint {
    fn strong(&self, text: &str) -> String {
        Paint::strong(*self, text)
    }

    fn good(&self, text: &str) -> String {
        Paint::good(*self, text)
    }

    fn middling(&self, text: &str) -> String {
        Paint::middling(*self, text)
    }

    fn faint(&self, text: &str) -> String {
        Paint::faint(*self, text)
    }
}

/// Colours are for terminals that can show them; NO_COLOR and TERM=dumb are how people say that theirs cannot.
fn decide(color: Color, startup: &Startup, terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = startup.variable("NO_COLOR").is_some_and(|v| !v.is_empty());
            let dumb = startup.variable("TERM").is_none_or(|v| v == "dumb" || v.is_empty());
            terminal && !refused && !dumb
        }
    }
}

/// Messages of one run, on standard error with the prefix `clew: `.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    pub paint: Paint,
}

impl Messages {
    /// Something the user must know.
    pub fn error(&self, text: &str) {
        self.say(&self.paint.bad("clew:"), text);
    }

    /// Something the user may want to know.
    pub fn note(&self, text: &str) {
        self.say(&self.paint.middling("clew:"), text);
    }

    fn say(&self, prefix: &str, text: &str) {
        let mut lines = String::new();
        for line in text.lines() {
            lines.push_str(prefix);
            lines.push(' ');
            lines.push_str(line);
            lines.push('\n');
        }
        stderr(&lines);
    }
}

/// Writes to standard error.
pub fn stderr(text: &str) {
    stderr_bytes(text.as_bytes());
}

pub fn stderr_bytes(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
}

/// Some answer could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output.
pub fn stdout(text: &str) {
    stdout_bytes(text.as_bytes());
}

pub fn stdout_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout();
    let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) else { return };
    // Said once; whoever reads only the beginning has all that was wanted.
    if !LOST.swap(true, Ordering::Relaxed) && error.kind() != std::io::ErrorKind::BrokenPipe {
        stderr(&format!("clew: standard output cannot be written: {error}\n"));
    }
}

/// Could some answer not be written?
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}
