//! The programs that are recorded: those of the engine's benchmark, programs that mostly make system calls, and a build.
//!
//! Inputs are generated once. A run that writes does so in its own fresh directory, so every run does the same work.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use super::{Group, project};
use crate::{
    agree::inputs,
    bench::{Workload, workloads},
    guests::Stage,
    random::Random,
};

/// A row and what it needs around it.
#[derive(Clone, Debug)]
pub struct Work {
    pub workload: Workload,
    pub group: Group,
    /// A folder to copy into the working directory before a run.
    project: Option<PathBuf>,
    /// Who asks the program, if it is a server.
    pub client: Option<Client>,
}

impl Work {
    fn new(group: Group, workload: Workload) -> Work {
        Work { workload, group, project: None, client: None }
    }

    /// Makes the working directory ready for a run.
    pub fn prepare(&self, dir: &Path) -> io::Result<()> {
        let Some(project) = &self.project else { return Ok(()) };
        let status = Command::new("cp").arg("-r").arg(project).arg(dir.join("project")).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("cp failed")) }
    }

    /// The workload for a replay, which has its input in the recording.
    pub fn without_input(&self) -> Workload {
        Workload { stdin: None, ..self.workload.clone() }
    }
}

/// Asks a server on loopback a fixed number of times, from two threads so that it always has something to do.
#[derive(Clone, Debug)]
pub struct Client {
    requests: u64,
}

const CLIENTS: u64 = 2;
const PATHS: [&str; 4] = ["words.txt", "tree/a/two.txt", "data.json", "tree/b/four.txt"];
/// How long the server may take to answer before the row counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Client {
    /// Asks the server that writes its port to `dir/port`, until all is answered or the server has ended.
    pub fn run(&self, dir: &Path, ended: &AtomicBool) -> Result<(), String> {
        let port = loop {
            match fs::read_to_string(dir.join("port")).ok().and_then(|text| text.parse::<u16>().ok()) {
                Some(port) => break port,
                None if ended.load(Ordering::Relaxed) => return Err("the server has not started".to_owned()),
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        thread::scope(|scope| {
            let ask_all = |first: u64| {
                (first..self.requests)
                    .step_by(CLIENTS as usize)
                    .try_for_each(|i| ask(port, PATHS[(i % PATHS.len() as u64) as usize]))
            };
            let clients: Vec<_> = (0..CLIENTS).map(|first| scope.spawn(move || ask_all(first))).collect();
            clients.into_iter().try_for_each(|c| {
                c.join().unwrap_or(Err(io::Error::other("panicked"))).map_err(|e| format!("a request failed: {e}"))
            })
        })
    }
}

fn ask(port: u16, path: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.windows(7).take(20).any(|w| w == b" 200 OK") {
        Ok(())
    } else {
        Err(io::Error::other("not answered with 200 OK"))
    }
}

const SERVER: &str = "
import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a): super().__init__(*a, directory='in')
    def log_message(self, *a): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
with open('port.new', 'w') as f: f.write(str(server.server_port))
os.rename('port.new', 'port')
n = int(sys.argv[1])
for _ in range(n): server.handle_request()
print(n, 'requests')
";

/// Every row, smaller by the factor `shrink`.
pub fn all(stage: &Stage, shrink: u64) -> Result<Vec<Work>, String> {
    let mut rows: Vec<Work> = workloads::all(stage, shrink)?
        .into_iter()
        .map(|w| Work::new(if w.cpu_bound { Group::Cpu } else { Group::Start }, w))
        .collect();
    rows.extend(system_calls(stage, shrink).map_err(|e| format!("cannot make the inputs: {e}"))?);
    let project = stage.scratch.path().join("workloads/project");
    project::write(&project, shrink).map_err(|e| format!("cannot make the inputs: {e}"))?;
    let make = ["/usr/bin/make", "-C", "project", "-j2", "-s"];
    rows.push(Work { project: Some(project), ..Work::new(Group::Build, row("make -j2, 21 files", &make)) });
    rows.push(Work {
        project: Some(stage.inputs().join("program")),
        ..Work::new(Group::TinyBuild, row("make -j2, ten files of ten lines", &make))
    });
    Ok(rows)
}

fn system_calls(stage: &Stage, shrink: u64) -> io::Result<Vec<Work>> {
    let size = |n: u64| (n / shrink).max(10);
    let dir = stage.scratch.path().join("workloads");
    fs::create_dir_all(&dir)?;
    let (tree, repository) = (dir.join("tree"), dir.join("repository"));
    write_tree(&tree, size(5000))?;
    write_repository(&repository, size(30_000))?;
    let (inserts, script) = (dir.join("inserts.sql"), dir.join("server.py"));
    fs::write(&inserts, insertions(size(10_000)))?;
    fs::write(&script, SERVER)?;
    let text = |path: &Path| path.display().to_string();
    let (tree, repository, script) = (text(&tree), text(&repository), text(&script));
    let server = text(&stage.bin().join("bench-server"));
    let mut find = vec!["/usr/bin/find"];
    // One walk is too short to measure.
    find.extend([tree.as_str(); 20]);
    find.extend(["-type", "f", "-size", "+1", "-printf", "%P %s %m\n"]);
    let (few, many) = (size(1500), size(5000));
    let calls = |name: &str, argv: &[&str]| Work::new(Group::Syscalls, row(name, argv));
    let mut database = calls("sqlite3 inserts", &["/usr/bin/sqlite3", "-batch", "file.db"]);
    database.workload.stdin = Some(inserts);
    Ok(vec![
        calls("cp -r", &["/usr/bin/cp", "-r", &tree, "copy"]),
        calls("find", &find),
        calls("git status", &["/usr/bin/git", "--no-optional-locks", "-C", &repository, "status", "--porcelain"]),
        database,
        Work {
            client: Some(Client { requests: many }),
            ..calls("HTTP server in C", &[&server, &many.to_string(), "in"])
        },
        Work {
            client: Some(Client { requests: few }),
            ..calls("HTTP server in Python", &["/usr/bin/python3", &script, &few.to_string()])
        },
    ])
}

fn row(name: &str, argv: &[&str]) -> Workload {
    let argv = argv.iter().map(|w| (*w).to_owned()).collect();
    Workload { name: name.to_owned(), argv, stdin: None, cpu_bound: false }
}

/// Small files, fifty to a folder.
fn write_tree(dir: &Path, files: u64) -> io::Result<()> {
    let mut random = Random::new(21);
    // Git looks into files that are as new as its index; these are not.
    let old = SystemTime::now() - Duration::from_secs(3600);
    for i in 0..files {
        let folder = dir.join(format!("part{}/folder{}", i / 1000, i / 50));
        if i % 50 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let length = 100 + random.below(3000) as usize;
        let mut file = fs::File::create(folder.join(format!("file{i}.txt")))?;
        file.write_all(inputs::text(&mut random, length).as_bytes())?;
        file.set_modified(old)?;
    }
    Ok(())
}

/// A repository of one commit, with a few files changed and a few new ones.
fn write_repository(dir: &Path, files: u64) -> io::Result<()> {
    write_tree(dir, files)?;
    for words in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "all"]] {
        let status = Command::new("/usr/bin/git")
            .args(["-c", "user.name=A", "-c", "user.email=a@b", "-c", "core.fsync=none", "-c", "gc.auto=0"])
            .args(words)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", dir)
            .current_dir(dir)
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("git {} failed", words[0])));
        }
    }
    for i in 0..5 {
        fs::write(dir.join(format!("part0/folder0/file{i}.txt")), "changed\n")?;
        fs::write(dir.join(format!("new{i}.txt")), "new\n")?;
    }
    Ok(())
}

/// One transaction per row; waiting for the disk and making files would hide what is measured.
fn insertions(n: u64) -> String {
    let mut sql = String::from(
        "pragma synchronous=off;\npragma journal_mode=persist;\ncreate table t(id integer primary key, name text);\n",
    );
    (0..n).for_each(|i| sql.push_str(&format!("insert into t values({i}, 'row {}');\n", i * 7919 % 10007)));
    sql + "select count(*), sum(id), max(name) from t;\n"
}
