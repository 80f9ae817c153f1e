//! What happens to recordings when the recorder or the program is killed, the disk is full, or bytes change later.
//!
//! The promise: always either a correct, possibly shorter replay, or a clear error; no panic, no hang. A replay is correct
//! when what it writes is a beginning of what was written when recording; when it says that the recording is damaged, what
//! some process of several wrote may be missing, but what is there is right.
//! Every case follows from a fixed seed and its number; a sample is done normally, all with `CLEW_FULL=1`.

mod common;

use common::place::{PATIENCE, Place, copy_folder, finish};
use common::{CLEW, compile};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use testkit::random::Random;
use testkit::sample;

const SEED: u64 = 0x0c1e_0002;
/// Steps of the guest that is interrupted, and how many lines it writes at most.
const STEPS: u64 = 60;
const LINES: u64 = 110;
/// The same for a log so long that its files are used several times.
const LONG_STEPS: u64 = 400;
const LONG_LINES: u64 = 700;

/// The generator of one case.
fn case(suite: u64, number: usize) -> Random {
    Random::new(SEED ^ suite << 32 ^ (number as u64) << 8)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A replay of something that may be damaged: what it wrote, or the sentence that says why not.
#[track_caller]
fn check_replay(output: &Output, recorded: &[u8], what: &str) -> Result<Vec<u8>, String> {
    let told = text(&output.stderr);
    let code = output.status.code();
    assert!(code.is_some_and(|c| (0..=3).contains(&c)), "{what}: {:?}: {told}", output.status);
    assert!(!told.contains("panicked"), "{what}: {told}");
    if code == Some(0) {
        let (short, long) = (text(&output.stdout), text(recorded));
        assert!(long.starts_with(&short), "{what}: replayed {short:?}, recorded was {long:?}; {told}");
        return Ok(output.stdout.clone());
    }
    if told.contains("clew: incomplete: ") {
        let (short, long) = (text(&output.stdout), text(recorded));
        let mut lines = long.lines();
        let in_order = short.lines().all(|line| lines.any(|l| l == line));
        assert!(in_order, "{what}: replayed {short:?}, recorded was {long:?}; {told}");
    }
    let sentence = told.lines().find(|l| l.starts_with("clew: ")).map(str::to_owned);
    Err(sentence.unwrap_or_else(|| panic!("{what}: status {code:?} without a word: {told:?}")))
}

/// A guest that is being recorded, and the lines it writes.
struct Victim {
    recorder: Child,
    lines: BufReader<std::process::ChildStdout>,
    written: Vec<u8>,
}

impl Victim {
    fn start(place: &Place, program: &Path, file: &Path) -> Victim {
        Victim::start_for(STEPS, place, program, file)
    }

    fn start_for(steps: u64, place: &Place, program: &Path, file: &Path) -> Victim {
        let mut command = place.clew(["record", "--quiet", "--"]);
        command.arg(program).arg(steps.to_string()).arg(file);
        let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(recorder.stdout.take().unwrap());
        Victim { recorder, lines, written: Vec::new() }
    }

    /// Waits until the guest has written so many lines, or has ended.
    fn read_lines(&mut self, count: u64) {
        for _ in 0..count {
            self.lines.read_until(b'\n', &mut self.written).unwrap();
        }
    }

    /// The guest's process, which it names in its first line.
    fn guest(&self) -> Pid {
        let first = text(&self.written);
        let pid = first.split(' ').nth(1).and_then(|n| n.parse().ok()).and_then(Pid::from_raw);
        pid.unwrap_or_else(|| panic!("the first line names the process: {first:?}"))
    }

    /// Waits for all processes; gives what they wrote, and the recorder's end and messages.
    #[track_caller]
    fn end(self) -> (Vec<u8>, Output) {
        let pid = Pid::from_child(&self.recorder);
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let Victim { recorder, mut lines, mut written } = self;
            // The end of the stream is the end of all that hold it.
            lines.read_to_end(&mut written).unwrap();
            sender.send((written, recorder.wait_with_output().unwrap()))
        });
        ended.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the recorder or the program hangs");
        })
    }
}

fn line_count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

/// Replays what is left after a kill: all but at most the last line must come back.
#[track_caller]
fn check_left(place: &Place, written: &[u8], what: &str) {
    for how in [&["replay", "latest"][..], &["replay", "--verify", "latest"]] {
        let output = place.run(how);
        let replayed = check_replay(&output, written, what).unwrap_or_else(|why| panic!("{what}: {why}"));
        let (short, long) = (line_count(&replayed), line_count(written));
        assert!(short + 1 >= long, "{what}: {short} of {long} lines came back: {}", text(&output.stderr));
    }
    let info = place.run(["info", "latest", "--json"]);
    assert_eq!(info.status.code(), Some(0), "{what}: {}", text(&info.stderr));
}

#[test]
fn a_recording_survives_the_death_of_its_recorder() {
    let place = Place::new("kill-recorder");
    let program = compile("progress", &place.folder);
    let all = 50;
    let numbers = sample::indices(all, 6);
    for number in &numbers {
        let at = 1 + case(1, *number).below(LINES);
        let mut victim = Victim::start(&place, &program, &program);
        victim.read_lines(at);
        victim.recorder.kill().unwrap();
        let (written, _) = victim.end();
        check_left(&place, &written, &format!("recorder killed after line {at}"));
    }
    sample::say(&format!("recorder killed: {} of {all}", numbers.len()));
    place.done();
}

#[test]
fn a_recording_survives_the_death_of_the_program() {
    let place = Place::new("kill-guest");
    let program = compile("progress", &place.folder);
    let all = 50;
    let numbers = sample::indices(all, 6);
    for number in &numbers {
        let at = 1 + case(2, *number).below(LINES);
        let mut victim = Victim::start(&place, &program, &program);
        victim.read_lines(at);
        // It may have ended by itself.
        let killed = kill_process(victim.guest(), Signal::KILL).is_ok();
        let (written, output) = victim.end();
        let what = format!("program killed after line {at}");
        let (signal, code) = (output.status.signal(), output.status.code());
        assert!(killed && signal == Some(9) || code == Some(7), "{what}: {:?}", output.status);
        assert_eq!(text(&output.stderr), "", "{what}");
        check_left(&place, &written, &what);
    }
    sample::say(&format!("program killed: {} of {all}", numbers.len()));
    place.done();
}

#[test]
fn a_log_whose_files_are_used_again_survives_both_deaths() {
    let place = Place::new("kill-round");
    let program = compile("progress", &place.folder);
    let all = 50;
    let numbers = sample::indices(all, 4);
    for number in &numbers {
        let mut random = case(5, *number);
        let (at, of_recorder) = (LONG_LINES / 2 + random.below(LONG_LINES / 2), random.below(2) == 0);
        let mut victim = Victim::start_for(LONG_STEPS, &place, &program, &program);
        victim.read_lines(at);
        if of_recorder {
            victim.recorder.kill().unwrap();
        } else {
            kill_process(victim.guest(), Signal::KILL).unwrap();
        }
        let (written, _) = victim.end();
        check_left(&place, &written, &format!("recorder {of_recorder} or program killed after line {at}"));
    }
    sample::say(&format!("killed with a long log: {} of {all}", numbers.len()));
    place.done();
}

/// Records and replays with a home on a disk of so many kilobytes. The recorder is killed behind the line that the last
/// argument begins.
const ON_A_SMALL_DISK: &str = r#"
mount -t tmpfs -o size="$1"k,mode=700 clew-test "$2/disk" || exit 77
export CLEW_HOME="$2/disk/home"
rm -f "$2/pipe" && mkfifo "$2/pipe" || exit 78
"$3" record --quiet -- "$4" 60 "$4" >"$2/pipe" 2>"$2/record.err" </dev/null &
while read -r line; do
    printf '%s\n' "$line"
    case $line in "$5"*) kill -9 $! ;; esac
done <"$2/pipe" >"$2/recorded"
wait $!
echo $? >"$2/record.status"
"$3" replay --verify latest >"$2/replayed" 2>"$2/replay.err" </dev/null
echo $? >"$2/replay.status"
"$3" info latest >"$2/info" 2>&1
exit 0
"#;

/// What came of recording on a small disk.
struct OnSmallDisk {
    what: String,
    recorded: Vec<u8>,
    /// What was said when recording, and with which status it ended.
    told: String,
    status: i32,
    replay: Output,
}

impl OnSmallDisk {
    fn run(place: &Place, program: &Path, kilobytes: u64, killed_behind: &str) -> OnSmallDisk {
        let mut command = Command::new("unshare");
        // Without privileges this needs user namespaces, which some systems refuse.
        command.args(if rustix::process::getuid().is_root() { &["-m"][..] } else { &["-U", "-r", "-m"] });
        command.args(["sh", "-c", ON_A_SMALL_DISK, "sh"]);
        command.arg(kilobytes.to_string()).arg(&place.folder).arg(CLEW).arg(program).arg(killed_behind);
        let output = finish(command, b"");
        let told = text(&output.stderr);
        assert!(output.status.success(), "small disks need mount namespaces (unshare -m), which were refused: {told}");
        let read = |name: &str| fs::read(place.folder.join(name)).unwrap();
        let status = |name: &str| text(&read(name)).trim().parse::<i32>().unwrap();
        OnSmallDisk {
            what: format!("disk of {kilobytes} kB, recorder killed behind {killed_behind:?}"),
            recorded: read("recorded"),
            told: text(&read("record.err")),
            status: status("record.status"),
            replay: Output {
                status: ExitStatusExt::from_raw(status("replay.status") << 8),
                stdout: read("replayed"),
                stderr: read("replay.err"),
            },
        }
    }

    /// What is replayed is right, and nobody is left to believe that it is all.
    #[track_caller]
    fn check(&self) {
        let OnSmallDisk { what, recorded, told, status, replay } = self;
        assert!(!told.contains("panicked"), "{what}: {told}");
        match status {
            // The program ran to its end, recorded or not.
            7 => assert_eq!(text(recorded).lines().last().map(|l| l.starts_with("mapped 60 ")), Some(true), "{what}"),
            125 => assert!(told.starts_with("clew: "), "{what}: {told}"),
            137 => {}
            other => panic!("{what}: status {other}: {told}"),
        }
        let killed = *status == 137;
        if let Err(why) = check_replay(replay, recorded, what) {
            assert!(killed || !told.is_empty(), "{what}: nothing was said when recording, but now: {why}");
        }
        if text(&replay.stderr).contains("identical\n") && !text(&replay.stderr).contains("incomplete") {
            // The last call of a process that is killed may have been made but not logged.
            let (short, long) = (line_count(&replay.stdout), line_count(recorded));
            assert!(short + usize::from(killed) >= long, "{what}: identical, but {short} of {long} lines came back");
        }
    }
}

#[test]
fn a_full_disk_shortens_a_recording() {
    let place = Place::new("full-disk");
    let program = compile("progress", &place.folder);
    fs::create_dir(place.folder.join("disk")).unwrap();
    let all = 50;
    let numbers = sample::indices(all, 6);
    let mut refused = 0;
    for number in &numbers {
        // The library that every program keeps has two megabytes; the log of this one has as many.
        let kilobytes = 4 + case(3, *number).below(7000);
        let done = OnSmallDisk::run(&place, &program, kilobytes, "nothing");
        done.check();
        refused += usize::from(done.status == 125);
    }
    sample::say(&format!("small disks: {} of {all}, too small for any recording: {refused}", numbers.len()));
    place.done();
}

#[test]
fn a_child_without_room_for_its_log_is_missed() {
    let place = Place::new("full-disk-child");
    let program = compile("progress", &place.folder);
    fs::create_dir(place.folder.join("disk")).unwrap();
    // With such disks the parent's log has its files when there is no room left for one of a child. A recorder that is
    // killed has not written anything about that.
    for killed_behind in ["nothing", "ended 60"] {
        let mut met = 0;
        for kilobytes in [4400, 4800, 5200] {
            let done = OnSmallDisk::run(&place, &program, kilobytes, killed_behind);
            done.check();
            met += usize::from(text(&done.replay.stderr).contains("clew: the child of process "));
        }
        assert!(met > 0, "none of these disks is full when a child begins");
    }
    place.done();
}

/// All files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Damages a file in one way; says how.
fn damage(path: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(path).unwrap();
    let at = random.below(bytes.len().max(1) as u64) as usize;
    let how = match random.below(4) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 => {
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
            "zeroed"
        }
        2 => {
            let end = bytes.len().min(at + 1 + random.below(64) as usize);
            bytes[at..end].fill_with(|| random.word() as u8);
            "overwritten"
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
            "flipped"
        }
    };
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(path, bytes).unwrap();
    format!("{} {how} at {at}", path.display())
}

#[test]
fn damage_is_noticed_or_does_no_harm() {
    let place = Place::new("damage");
    let program = compile("progress", &place.folder);
    let recorded = place.record(&[program.as_os_str(), "10".as_ref(), program.as_os_str()], 7);
    // One that was killed has raw segments.
    let mut victim = Victim::start(&place, &program, &program);
    victim.read_lines(20);
    victim.recorder.kill().unwrap();
    let (written, _) = victim.end();
    let pack = place.folder.join("good.clew");
    assert!(place.run(["pack", "--bare", "progress-1", pack.to_str().unwrap()]).status.success());
    let all = 500;
    let numbers = sample::indices(all, 40);
    let (mut short, mut refused) = (0, 0);
    for number in &numbers {
        let mut random = case(4, *number);
        let copy = place.folder.join("copy");
        let (victim, output) = match random.below(4) {
            0 => {
                fs::copy(&pack, &copy).unwrap();
                (copy.clone(), &recorded.stdout)
            }
            kind => {
                let (name, output) =
                    if kind == 1 { ("progress-2", &written) } else { ("progress-1", &recorded.stdout) };
                copy_folder(&place.home.join(name), &copy);
                // Logs as often as kept files, which are larger.
                let part = *random.pick(&["units", "units", "files", "."]);
                let victim =
                    if part == "." { copy.join("recording") } else { random.pick(&files(&copy.join(part))).clone() };
                (victim, output)
            }
        };
        let what = format!("case {number}: {}", damage(&victim, &mut random));
        let name = copy.to_str().unwrap();
        match check_replay(&place.run(["replay", "--verify", name]), output, &what) {
            Ok(replayed) => short += usize::from(replayed.len() < output.len()),
            Err(_) => refused += 1,
        }
        let info = place.run(["info", name]);
        assert!(matches!(info.status.code(), Some(0 | 2)), "{what}: {}", text(&info.stderr));
        if copy.is_dir() {
            fs::remove_dir_all(&copy).unwrap();
        } else {
            fs::remove_file(&copy).unwrap();
        }
    }
    sample::say(&format!("damages: {} of {all}, {short} shorter, {refused} refused or different", numbers.len()));
    place.done();
}
