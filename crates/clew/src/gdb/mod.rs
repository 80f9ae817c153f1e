//! `clew gdb`: a debugger looks at a recording.
//!
//! Without a port gdb is started here and talks to us over a socket in a private folder; with one we wait for debuggers.

mod adapter;
mod alter;
mod altered;
mod auxv;
mod copy;
mod files;
mod monitor;
mod places;
mod points;
mod ranges;
mod signals;
mod slices;
mod statements;

use crate::cli::{Color, Gdb as Options};
use crate::guest::{Failed, start_engine};
use crate::home;
use crate::message::{Messages, Paint};
use crate::scratch::Scratch;
use crate::startup::Startup;
use crate::status;
use adapter::Recorded;
use model::log::{Ending, Origin};
use recording::{Recording, UnitName};
use session::{Replayer, Session};
use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

/// Why no debugger can be served, and the exit status for it.
type Trouble = (String, i32);

/// Serves the recording of the command line; gives our exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    match serve(options, startup, &messages) {
        Ok(status) => status,
        Err((why, status)) => {
            messages.error(&why);
            status
        }
    }
}

fn serve(options: &Options, startup: &Startup, messages: &Messages) -> Result<i32, Trouble> {
    let (opened, unit) = home::find(&options.recording, startup).map_err(|why| (why, status::USAGE))?;
    let recording = &opened.recording;
    let unit = match unit {
        Some(unit) => unit,
        None => {
            let chosen = choose(recording).ok_or_else(|| {
                (format!("{} has no process that can be replayed", recording.path().display()), status::USAGE)
            })?;
            if recording.units().len() > 1 && !options.quiet {
                messages.note(&format!("process {chosen} of {}", recording.units().len()));
            }
            chosen
        }
    };
    let session =
        start_engine(startup, |engine| Session::open(&Replayer { engine, recording }, &unit).map_err(Failed::Error));
    let session = session.map_err(|failed| match failed {
        Failed::Error(e) => (e.to_string(), status::INTERNAL),
        Failed::Signal(_) => ("told to end before the recording was open".into(), status::INTERNAL),
    })?;
    let mut recorded = Recorded::new(recording, session, startup.search()).map_err(|why| (why, status::USAGE))?;
    match options.port {
        Some(port) => wait_for_debuggers(port, &mut recorded, options.quiet, messages),
        None => start_gdb(options, &mut recorded, messages),
    }
}

/// The first process that died of a signal, else the first one.
fn choose(recording: &Recording) -> Option<UnitName> {
    let died = recording.units().iter().filter(|u| u.end.is_some_and(|e| e.ending == Ending::Signaled));
    let first = recording.units().iter().filter(|u| u.start.origin == Origin::First);
    let earliest = died.min_by_key(|u| u.start.time);
    earliest.or(first.min_by_key(|u| u.start.time)).or(recording.units().first()).map(|u| u.name)
}

fn wait_for_debuggers(
    port: u16,
    recorded: &mut Recorded<'_>,
    quiet: bool,
    messages: &Messages,
) -> Result<i32, Trouble> {
    let listener =
        gdb::listen(port).map_err(|e| (format!("cannot listen on port {port} of this machine: {e}"), status::USAGE))?;
    let port = listener.local_addr().map_or(port, |a| a.port());
    if !quiet {
        messages.note(&format!("connect with: gdb -ex 'target remote 127.0.0.1:{port}'"));
    }
    // Debuggers come and go; a connection that fails is that debugger's trouble.
    loop {
        match gdb::serve_next(&listener, recorded) {
            Ok(gdb::End::Killed) => return Ok(0),
            Ok(_) => {}
            Err(gdb::ServeError::Debuggee(why)) => return Err((why, status::INTERNAL)),
            Err(e) => messages.note(&e.to_string()),
        }
    }
}

fn start_gdb(options: &Options, recorded: &mut Recorded<'_>, messages: &Messages) -> Result<i32, Trouble> {
    let internal = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| (format!("{what}: {e}"), status::INTERNAL)
    };
    let folder = Scratch::new().map_err(|why| (why, status::INTERNAL))?;
    let (socket, script) = (folder.path().join("socket"), folder.path().join("commands"));
    let listener = UnixListener::bind(&socket).map_err(internal("cannot make the connection to gdb"))?;
    std::fs::write(&script, commands(recorded, &socket)).map_err(internal("cannot write gdb's commands"))?;
    // Ctrl-C is gdb's: it asks us to stop.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        // The flag is not read: that there is a handler is what counts.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    let mut gdb = Command::new("gdb");
    gdb.arg("-q").arg("-x").arg(&script).args(&options.arguments);
    let mut gdb = gdb.spawn().map_err(|e| {
        let advice = "install it, or let another debugger connect with --port";
        (format!("gdb cannot be started: {e}; {advice}"), status::INTERNAL)
    })?;
    let served = match accept(&listener, &mut gdb).map_err(internal("gdb does not connect"))? {
        Some(mut stream) => gdb::serve(&mut stream, recorded),
        None => Ok(gdb::End::Closed),
    };
    if let Err(e) = served {
        messages.error(&e.to_string());
    }
    let ended = gdb.wait().map_err(internal("gdb cannot be waited for"))?;
    Ok(ended.code().unwrap_or(status::INTERNAL))
}

/// The connection of a gdb that was started; nothing if it ended before it connected.
fn accept(listener: &UnixListener, gdb: &mut Child) -> io::Result<Option<std::os::unix::net::UnixStream>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return listener.accept().map(|(stream, _)| Some(stream)),
            Err(e) => return Err(e.into()),
        }
        if gdb.try_wait()?.is_some() {
            return Ok(None);
        }
    }
}

/// What gdb is to do before the user's own commands.
fn commands(recorded: &Recorded<'_>, socket: &Path) -> String {
    let mut text = String::from(gdb::COMMANDS);
    // The program is the kept one, whose name gdb does not know.
    text += "set confirm off\nset pagination off\nset exec-file-mismatch off\nset sysroot target:/\n";
    if let Some(extra) = recorded.recording.extra() {
        let _ = writeln!(text, "set debug-file-directory {}:/usr/lib/debug", extra.join("debug").display());
        for folder in std::fs::read_dir(extra.join("sources")).into_iter().flatten().flatten() {
            let name = folder.file_name();
            let _ = writeln!(text, "set substitute-path /{} {}", name.display(), folder.path().display());
        }
    }
    if let Some(program) = recorded.program() {
        let _ = writeln!(text, "file {}", program.display());
    }
    let _ = writeln!(text, "target remote {}", socket.display());
    recorded.files().paths().filter_map(pretty_printers).for_each(|printers| text += &printers);
    text + "set confirm on\n" + gdb::ALIASES
}

/// Commands that load the pretty printers for a library. gdb looks for them by its name, but not where it is remote.
fn pretty_printers(library: &Path) -> Option<String> {
    let script = format!("/usr/share/gdb/auto-load{}-gdb.py", library.to_str()?);
    let source = std::fs::read_to_string(&script).ok()?;
    // That of the C++ library says where its parts are, but believes it only when gdb has found it.
    let folder = source.lines().find_map(|l| l.strip_prefix("pythondir = '")?.strip_suffix('\''));
    let path = folder.map(|f| format!("python import sys; sys.path.append('{f}')\n")).unwrap_or_default();
    Some(format!("{path}source {script}\n"))
}
