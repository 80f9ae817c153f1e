//! The other end: a client that speaks packets, and the real gdb.
//!
//! Everything has a time limit, so that a mistake fails and does not hang.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use gdb::{Debuggee, End, ServeError, listen, serve, serve_next};

const PATIENCE: Duration = Duration::from_secs(60);

/// A client that sends packets by hand.
pub struct Client {
    pub stream: UnixStream,
}

impl Client {
    pub fn send(&mut self, body: &str) {
        let sum = body.bytes().fold(0u8, |sum, byte| sum.wrapping_add(byte));
        self.raw(format!("${body}#{sum:02x}").as_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes what we send");
    }

    /// The body of the next packet, which is acknowledged.
    pub fn receive(&mut self) -> String {
        while self.byte() != b'$' {}
        self.receive_rest()
    }

    /// As `receive`, after the `$`.
    pub fn receive_rest(&mut self) -> String {
        let mut body = Vec::new();
        loop {
            match self.byte() {
                b'#' => break,
                byte => body.push(byte),
            }
        }
        self.byte();
        self.byte();
        // After its last answer the server may be gone already.
        let _ = self.stream.write_all(b"+");
        String::from_utf8_lossy(&body).into_owned()
    }

    pub fn ask(&mut self, body: &str) -> String {
        self.send(body);
        self.receive()
    }

    /// Reads until the server closes, or is stuck.
    pub fn drain(&mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("the server closes");
    }

    pub fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).expect("the server answers");
        byte[0]
    }
}

/// Serves `debuggee` to `client`, and says how that ended.
pub fn with_client(debuggee: &mut (dyn Debuggee + Send), client: impl FnOnce(&mut Client)) -> Result<End, ServeError> {
    let (here, there) = UnixStream::pair().expect("a pair of sockets");
    there.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    thread::scope(|scope| {
        // The stream must be gone when the server is, so that the client sees its end.
        let server = scope.spawn(move || {
            let mut stream = here;
            serve(&mut stream, debuggee)
        });
        let mut peer = Client { stream: there };
        client(&mut peer);
        drop(peer);
        server.join().expect("the server does not panic")
    })
}

/// A request and the answer that is expected for it.
pub type Exchange<'a> = (&'a str, &'a str);

/// Checks answers one by one.
#[track_caller]
pub fn check_exchanges(debuggee: &mut (dyn Debuggee + Send), exchanges: &[Exchange<'_>]) -> End {
    let end = with_client(debuggee, |client| {
        for (request, answer) in exchanges {
            assert_eq!(client.ask(request), *answer, "the answer to {request}");
        }
    });
    end.expect("the session ends well")
}

/// A gdb that talks to us over pipes.
pub struct Gdb {
    child: Child,
    input: Option<std::process::ChildStdin>,
    lines: mpsc::Receiver<String>,
    pub seen: Vec<String>,
}

impl Gdb {
    fn start(arguments: &[String]) -> Gdb {
        let installed = Command::new("gdb").arg("--version").stdout(Stdio::null()).status();
        assert!(installed.is_ok(), "gdb is not installed; `cargo xtask setup` installs it");
        // The shell only puts errors where the other output is.
        let mut child = Command::new("sh")
            .args(["-c", "exec gdb \"$@\" 2>&1", "gdb", "-nx", "-q"])
            .args(arguments)
            .env_remove("DEBUGINFOD_URLS")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Gdb { child, input, lines, seen: Vec::new() }
    }

    pub fn type_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("gdb still reads");
        writeln!(input, "{line}").expect("gdb still reads");
    }

    /// Waits for a line with this in it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let found = line.contains(text);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(_) => self.give_up(&format!("gdb never said `{text}`")),
            }
        }
    }

    #[track_caller]
    fn give_up(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        panic!("{why}; it said:\n{}", self.seen.join("\n"));
    }

    /// Waits for its end.
    #[track_caller]
    fn finish(&mut self) {
        self.input = None;
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => self.give_up("gdb did not end"),
            }
        }
        self.child.wait().expect("gdb ends");
    }
}

/// Starts gdb, lets `dialogue` go on while `server` serves it, and gives what gdb said and how the session ended.
/// `knock` connects to the server: it may still wait for a gdb that never came.
#[track_caller]
fn with_gdb(
    arguments: &[String],
    server: impl FnOnce() -> Result<End, ServeError> + Send,
    knock: impl FnOnce(),
    dialogue: impl FnOnce(&mut Gdb),
) -> (Vec<String>, End) {
    thread::scope(|scope| {
        let mut gdb = Gdb::start(arguments);
        let server = scope.spawn(server);
        let knock = Knock(Some(knock));
        dialogue(&mut gdb);
        gdb.finish();
        drop(knock);
        let end = server.join().expect("the server does not panic").expect("the session ends well");
        (std::mem::take(&mut gdb.seen), end)
    })
}

/// Does so also when a test fails: otherwise its failure would be waiting for the server.
struct Knock<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Knock<F> {
    fn drop(&mut self) {
        if let Some(knock) = self.0.take() {
            knock();
        }
    }
}

#[track_caller]
fn with_gdb_over_tcp(
    debuggee: &mut (dyn Debuggee + Send),
    arguments: impl FnOnce(&str) -> Vec<String>,
    dialogue: impl FnOnce(&mut Gdb),
) -> (Vec<String>, End) {
    let listener = listen(0).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let arguments = arguments(&address.to_string());
    with_gdb(&arguments, move || serve_next(&listener, debuggee), || drop(TcpStream::connect(address)), dialogue)
}

fn batch(address: &str, commands: &[&str]) -> Vec<String> {
    let connect = format!("target remote {address}");
    let first = ["set confirm off", "set width 0", "set height 0", &connect];
    let all = first.iter().chain(commands).flat_map(|command| ["-ex", command]);
    ["-batch"].into_iter().chain(all).map(str::to_owned).collect()
}

/// Lets gdb execute commands after it has connected; what it said, and how the session ended.
#[track_caller]
pub fn gdb_batch(debuggee: &mut (dyn Debuggee + Send), commands: &[&str]) -> (Vec<String>, End) {
    with_gdb_over_tcp(debuggee, |address| batch(address, commands), |_| {})
}

#[track_caller]
pub fn gdb_batch_over_a_unix_socket(debuggee: &mut (dyn Debuggee + Send), commands: &[&str]) -> (Vec<String>, End) {
    let path = std::env::temp_dir().join(format!("clew-gdb-socket-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = move || serve(&mut listener.accept()?.0, debuggee);
    let knock = || drop(UnixStream::connect(&path));
    let result = with_gdb(&batch(&path.display().to_string(), commands), server, knock, |_| {});
    std::fs::remove_file(&path).expect("the socket is ours");
    result
}

/// Talks to gdb as editors do.
#[track_caller]
pub fn gdb_machine_interface(
    debuggee: &mut (dyn Debuggee + Send),
    dialogue: impl FnOnce(&mut Gdb),
) -> (Vec<String>, End) {
    let arguments = |address: &str| {
        let connect = format!("target remote {address}");
        ["-i=mi", "-ex", "set confirm off", "-ex", "set mi-async on", "-ex", &connect].map(str::to_owned).to_vec()
    };
    with_gdb_over_tcp(debuggee, arguments, dialogue)
}
