//! `clew gdb` with stock gdb: recordings are walked through in both directions, and the dialogue is checked.
//!
//! Each check gives gdb a list of commands and expects texts in this order. gdb must be installed: without it there is
//! nothing to test with, and the tests fail and say so.

mod common;

use common::dialogue::{Dialogue, check, check_answers, talk};
use common::place::{Place, finish};
use common::{compile, stderr, stdout};
use recording::Recording;
use session::{EngineProgram, Replayer, Session, Stopped};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Records a guest of `tests/guests`, which must end with this status.
fn record(place: &Place, guest: &str, status: i32) {
    let program = compile(guest, &place.folder);
    let mut clew = place.clew(["record", "--quiet", "--"]);
    clew.arg(program);
    let output = finish(clew, b"");
    let ended =
        std::os::unix::process::ExitStatusExt::signal(&output.status).map_or(output.status.code(), |s| Some(-s));
    assert_eq!(ended, Some(status), "{guest}: {}", stderr(&output));
}

#[test]
fn a_heap_overwrite_is_found_by_going_back_to_it() {
    let place = Place::new("heap");
    record(&place, "heap", -11);
    check(
        &place,
        "latest",
        &[
            ("continue", &["Program received signal SIGSEGV", "main () at", "sum += twice(p->id);"]),
            ("print $_siginfo.si_signo", &["= 11"]),
            ("print a->next == b", &["= 0"]),
            ("watch -l a->next", &["Hardware watchpoint 1"]),
            // The last bytes of the name, one by one; the first of them is the one that does the damage.
            ("reverse-continue", &["Hardware watchpoint 1", "Old value", "New value", "rename_item (", "it->name[n]"]),
            ("print n", &["= 13"]),
            ("reverse-continue", &["rename_item ("]),
            ("print n", &["= 12"]),
            ("print it->next", &["= (struct item *) 0x"]),
            ("backtrace", &["#0", "rename_item", "#1", "main () at"]),
            ("delete", &[]),
            ("reverse-finish", &["main () at", "rename_item(a,"]),
            ("print a->next == b", &["= 1"]),
            ("continue", &["Program received signal SIGSEGV", "sum += twice(p->id);"]),
            ("continue", &["No more reverse-execution history", "main ()"]),
        ],
    );
    place.done();
}

#[test]
fn going_back_out_of_a_handler_leads_to_where_the_signal_came() {
    let place = Place::new("handler");
    record(&place, "handler", 0);
    check(
        &place,
        "latest",
        &[
            ("break on_alarm", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, on_alarm (signal=14)"]),
            ("backtrace", &["#1  <signal handler called>", "#2", "main () at"]),
            ("set $turns = turns", &[]),
            ("reverse-finish", &["main () at"]),
            ("print turns == $turns", &["= 1"]),
            ("print rung", &["= 0"]),
            ("continue", &["Breakpoint 1, on_alarm"]),
            // A fault with a handler stops gdb before it is delivered, as natively.
            ("continue", &["Program received signal SIGSEGV", "*(volatile int *)8 = 1;"]),
            ("print $_siginfo._sifields._sigfault.si_addr", &["= (void *) 0x8"]),
            ("break on_fault", &["Breakpoint 2"]),
            ("continue", &["Breakpoint 2, on_fault (signal=11)"]),
            ("reverse-finish", &["main () at", "*(volatile int *)8 = 1;"]),
            ("reverse-continue", &["Breakpoint 1, on_alarm"]),
            ("reverse-continue", &["No more reverse-execution history"]),
        ],
    );
    place.done();
}

#[test]
fn going_back_passes_through_the_threads_as_they_ran() {
    let place = Place::new("switches");
    record(&place, "switches", 0);
    let turn = |me: &'static str| ("print me", if me == "1" { &["= 1"][..] } else { &["= 2"][..] });
    check(
        &place,
        "latest",
        &[
            ("continue", &["No more reverse-execution history"]),
            ("break take_turn", &["Breakpoint 1"]),
            ("reverse-continue", &["hit Breakpoint 1, take_turn (me=2)"]),
            ("print rounds", &["= 5"]),
            ("reverse-continue", &["Switching to Thread", "hit Breakpoint 1, take_turn (me=1)"]),
            ("info threads", &["Frame", "futex", "take_turn (me=1)"]),
            ("reverse-continue", &["Switching to Thread", "take_turn (me=2)"]),
            turn("2"),
            ("thread apply all print $_thread", &["= "]),
            ("continue", &["take_turn (me=1)"]),
            ("delete", &[]),
            // The other thread runs in between, but the step is this thread's.
            ("set $before = $_gthread", &[]),
            ("reverse-finish", &["work ("]),
            ("reverse-next", &["take_turn(me);"]),
            ("print $_gthread == $before", &["= 1"]),
            ("watch turn", &["Hardware watchpoint 2"]),
            ("reverse-continue", &["Hardware watchpoint 2", "Old value = 1", "New value = 2", "take_turn (me=2)"]),
        ],
    );
    place.done();
}

#[test]
fn going_back_over_a_long_jump_leads_inside() {
    let place = Place::new("jump");
    record(&place, "jump", 0);
    check(
        &place,
        "latest",
        &[
            ("break jump.c:18", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, main () at", "depth = -how;"]),
            ("print how", &["= 3"]),
            ("break descend", &["Breakpoint 2"]),
            ("reverse-continue", &["Breakpoint 2, descend (n=3)"]),
            ("backtrace", &["#3", "descend (n=0)", "#4", "main () at"]),
            ("reverse-continue", &["Breakpoint 2, descend (n=2)"]),
            ("delete 2", &[]),
            ("continue", &["Breakpoint 1, main () at"]),
            ("reverse-stepi", &["if (how == 0)"]),
            ("reverse-stepi", &["if (how == 0)"]),
            ("print how", &["= 3"]),
            // Back over the return of setjmp, which was made by longjmp.
            ("reverse-stepi", &["int how = setjmp(out);"]),
            ("reverse-stepi", &["longjmp"]),
        ],
    );
    place.done();
}

#[test]
fn parent_and_child_are_visited_each_by_its_number() {
    let place = Place::new("family");
    record(&place, "family", 7);
    // Without a number it is the one that died of a signal.
    check(
        &place,
        "latest",
        &[
            ("continue", &["received signal SIGABRT"]),
            ("print who", &["= 2"]),
            ("backtrace", &["abort", "child () at", "main () at"]),
            ("break main", &["Breakpoint 1"]),
            // The child's history begins with its parent's.
            ("reverse-continue", &["Breakpoint 1, main () at"]),
            ("print who", &["= 1"]),
        ],
    );
    let info = place.run(["info", "latest", "--json"]);
    let number = stdout(&info).lines().find_map(|l| l.trim().strip_prefix("\"pid\": ")).expect("a process");
    check(
        &place,
        &format!("latest:{}", number.trim_end_matches(',')),
        &[
            ("break family.c:20", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, main () at"]),
            ("print who", &["= 3"]),
            ("print status", &["= 6"]),
            ("watch who", &["Hardware watchpoint 2"]),
            ("reverse-continue", &["Old value = 3", "New value = 1", "main () at"]),
            ("reverse-continue", &["No more reverse-execution history"]),
        ],
    );
    place.done();
}

#[test]
fn registers_libraries_and_calls_are_there() {
    let place = Place::new("look");
    record(&place, "heap", -11);
    check(
        &place,
        "latest",
        &[
            ("info registers rip", &["rip", "0x"]),
            ("break rename_item", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, rename_item"]),
            ("print $ymm0.v32_int8", &["= {"]),
            ("print $mxcsr", &["IM"]),
            ("print $fs_base != 0", &["= 1"]),
            ("info sharedlibrary", &["Yes", "ld-linux-x86-64.so.2", "Yes", "libc.so.6"]),
            ("info proc mappings", &["/heap"]),
            ("info auxv", &["AT_PHDR", "AT_ENTRY"]),
            ("info threads", &["* 1", "Thread", "rename_item"]),
            // Functions run in a copy that is thrown away.
            ("print twice(21)", &["= 42"]),
            ("print ((unsigned long (*)(const char *))strlen)(name)", &["= 13"]),
            ("delete", &[]),
            ("print rename_item(it, \"x\")", &[]),
            ("print it->name[0]", &["= 120 'x'"]),
            ("next", &["it->name[n] = name[n];"]),
            ("print it->name[0]", &["= 97 'a'"]),
            // What needs the outside world is refused, and nothing is lost.
            ("print ((int (*)(int))close)(0)", &["cannot go on: it makes the system call close"]),
            ("monitor when", &[":0x"]),
            ("continue", &["SIGSEGV"]),
            // At a crash too.
            ("print twice(4)", &["= 8"]),
            ("print *(long *)8", &[]),
        ],
    );
    place.done();
}

#[test]
fn commands_of_the_recording_go_to_moments() {
    let place = Place::new("monitor");
    record(&place, "heap", -11);
    check(
        &place,
        "latest",
        &[
            ("monitor when", &["0:0x"]),
            ("monitor instance heap.c:15", &["before heap.c:15#1, of 14"]),
            ("monitor seek heap.c:15#3", &[]),
            ("stepi", &["rename_item", "it->name[n] = name[n];"]),
            ("print n", &["= 2"]),
            ("monitor instance heap.c:15", &["heap.c:15#3 begins here, of 14"]),
            ("monitor checkpoint", &["Checkpoint 1 at "]),
            ("reverse-next", &["for (size_t n"]),
            ("monitor instance heap.c:15", &["at or behind heap.c:15#2, of 14"]),
            ("monitor checkpoint", &["Checkpoint 2 at "]),
            ("monitor info checkpoints", &["1 ", ":0x", "rename_item at ", "heap.c:15", "2 ", "heap.c:14"]),
            ("monitor seek end", &[]),
            ("stepi", &["sum += twice(p->id);"]),
            ("monitor rollback 1", &[]),
            ("stepi", &["it->name[n] = name[n];"]),
            ("print n", &["= 2"]),
            ("monitor cdelete 1", &[]),
            ("monitor rollback 1", &["there is no checkpoint 1"]),
            ("monitor seek start", &[]),
            ("stepi", &["_start"]),
            ("seek end", &["sum += twice(p->id);"]),
            // Libraries that were loaded on the way are known.
            ("info sharedlibrary", &["Yes", "ld-linux-x86-64.so.2", "Yes", "libc.so.6"]),
            ("monitor seek heap.c:15#15", &["executed 14 times only"]),
            ("monitor seek 1:0x1", &["there is no moment 1:0x1"]),
            ("monitor seek nowhere", &["is no moment"]),
            ("monitor instance heap.c:9999", &["no image of the process has code from heap.c:9999"]),
            ("monitor bogus", &["there is no command `bogus`"]),
        ],
    );
    place.done();
}

#[test]
fn reads_and_writes_are_watched_in_both_directions() {
    let place = Place::new("access");
    record(&place, "calls", 30);
    check(
        &place,
        "latest",
        &[
            ("break main", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, main"]),
            // The loop reads it, to compare and to call, without changing it.
            ("next", &["n <= 5"]),
            ("rwatch n", &["Hardware read watchpoint 2"]),
            ("continue", &["Hardware read watchpoint 2", "Value = 1"]),
            ("continue", &["Hardware read watchpoint 2", "Value = 1"]),
            ("continue", &["Hardware read watchpoint 2", "Value = 2"]),
            // gdb itself goes back over the access that it stands behind.
            ("reverse-continue", &["Hardware read watchpoint 2", "Value = 1"]),
            ("delete 2", &[]),
            ("awatch sum", &["Hardware access (read/write) watchpoint 3"]),
            ("continue", &["Hardware access (read/write) watchpoint 3", "Old value = 2", "New value = 6"]),
            ("reverse-continue", &["Hardware access (read/write) watchpoint 3", "Old value = 6", "New value = 2"]),
            ("delete 3", &[]),
            ("watch $pc", &["Watchpoint 4: $pc"]),
        ],
    );
    with_session(&place, |_, mut session| {
        let mut never = || false;
        session.seek_tick(500, &mut never).expect("the tick exists");
        let (from, thread) = (session.moment(), session.place().thread);
        let rbx = |session: &Session| session.registers(thread).expect("it answers").gpr[3];
        let before = rbx(&session);
        // Found by single steps.
        while rbx(&session) == before {
            session.step(thread, &mut never).expect("a step");
        }
        let (expected, after) = (session.moment(), rbx(&session));
        session.seek(from, &mut never).expect("it exists");
        assert_eq!(session.forward_to_register(thread, 3, &mut never).expect("it runs"), Stopped::RegisterChanged);
        assert_eq!((session.moment(), rbx(&session)), (expected, after));
        assert_eq!(session.backward_to_register(thread, 3, &mut never).expect("it runs"), Stopped::RegisterChanged);
        assert_eq!(rbx(&session), before);
        assert!(session.moment() < expected);
        // Of bytes that are only read there is no change to find, but accesses.
        session.seek(from, &mut never).expect("it exists");
        let stack = session.registers(thread).expect("it answers").gpr[4];
        session.set_accesses(&[session::Access { addr: stack, len: 8, read: true, write: true }]);
        assert_eq!(session.forward(None, &mut never).expect("it runs"), Stopped::Accessed(0));
        let first = session.moment();
        assert!(first > from);
        session.forward(None, &mut never).expect("it runs");
        assert_eq!(session.backward(&mut never).expect("it runs"), Stopped::Accessed(0));
        assert!(session.moment() >= from);
    });
    place.done();
}

/// A server that ends with the test, however that ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn debuggers_connect_to_a_port_one_after_another() {
    let place = Place::new("port");
    record(&place, "heap", -11);
    let mut server = place.clew(["gdb", "latest", "--port", "0"]);
    let mut server = Server(server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("clew starts"));
    let mut line = String::new();
    BufReader::new(server.0.stderr.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let target = line.split('\'').nth(1).unwrap_or_else(|| panic!("no command to connect with in {line:?}")).to_owned();
    let dialogue: Dialogue<'_> = &[
        ("continue", &["SIGSEGV", "twice(p->id)"]),
        ("reverse-continue", &["No more reverse-execution history"]),
        ("monitor when", &["0:0x"]),
    ];
    for _ in 0..2 {
        check_answers(&talk(&place, &["gdb", "-nx", "-batch", "-ex", &target], dialogue), dialogue);
    }
    drop(server);
    place.done();
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_sentence() {
    let place = Place::new("refused");
    record(&place, "jump", 0);
    for (arguments, part) in [
        (&["gdb", "nothing"][..], "nothing"),
        (&["gdb", "latest:1"][..], "no process 1"),
        (&["gdb", "latest", "--port", "99999"][..], "99999"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    place.done();
}

/// A session on the newest recording of this place.
fn with_session(place: &Place, look: impl FnOnce(&Recording, Session)) {
    let recording = Recording::open(&place.home.join("latest")).expect("the recording opens");
    let engine = EngineProgram::in_memory(clew::ENGINE).expect("there is an engine");
    let unit = recording.units().first().expect("a process").name;
    let session = Session::open(&Replayer { engine: &engine, recording: &recording }, &unit).expect("it opens");
    look(&recording, session);
}

#[test]
fn stack_and_variables_are_known_at_any_moment() {
    let place = Place::new("scene");
    record(&place, "heap", -11);
    with_session(&place, |recording, mut session| {
        let images = session::images_of(recording);
        session.seek_end(&mut || false).expect("there is an end");
        let look = |session: &Session, expression: &str| {
            let scene = session.scene(recording, &images, session.place().thread).expect("there is a thread");
            let trace = image::backtrace(&scene, 10);
            let inspector = image::Inspector::in_backtrace(&scene, &trace.frames, 0, 0).expect("there is a frame");
            let functions: Vec<String> = trace.frames.iter().filter_map(|f| f.location.function.clone()).collect();
            let answer = inspector.evaluate(expression).map(|a| a.text).unwrap_or_else(|e| e.to_string());
            (functions, answer)
        };
        let (functions, answer) = look(&session, "a->id + b->id");
        assert_eq!((functions[0].as_str(), answer.as_str()), ("main", "3"));
        let loaded = session.loaded(recording, &images).expect("images are mapped");
        let line = loaded.iter().find_map(|l| Some((l.bias, l.image.find_line("heap.c", 15).first()?.start)));
        let (bias, start) = line.expect("the line has code");
        session.seek_instance(&[bias.to_guest(start).0], 5, &mut || false).expect("the line was executed");
        let (functions, answer) = look(&session, "name[n]");
        assert_eq!((&functions[..2], answer.as_str()), (&["rename_item".into(), "main".into()][..], "32 ' '"));
    });
    place.done();
}

/// Steps forward from a tick, then back, and meets the same places.
#[track_caller]
fn check_steps(session: &mut Session, tick: u64, steps: usize) {
    session.seek_tick(tick, &mut || false).expect("the tick exists");
    let thread = session.place().thread;
    let mut places = vec![session.place().clone()];
    for _ in 0..steps {
        if let Stopped::End(_) = session.step(thread, &mut || false).expect("a step") {
            break;
        }
        places.push(session.place().clone());
    }
    for place in places.iter().rev().skip(1) {
        let from = session.moment();
        session.step_back(thread, &mut || false).expect("a step back");
        assert_eq!(session.place(), place, "back from {from}");
    }
}

#[test]
fn steps_back_undo_steps() {
    let place = Place::new("steps");
    for (guest, status) in [("heap", -11), ("handler", 0), ("switches", 0)] {
        record(&place, guest, status);
        with_session(&place, |_, mut session| {
            session.seek_end(&mut || false).expect("there is an end");
            let end = session.moment();
            for part in 1..12 {
                check_steps(&mut session, end.tick * part / 12, 60);
            }
            check_steps(&mut session, end.tick - 30, 200);
        });
    }
    place.done();
}
