//! Dialogues with the gdb that people have.

mod support;

use std::{fs, path::PathBuf, process::Command};

use gdb::End;
use support::{
    CALLER, Machine,
    client::{gdb_batch, gdb_batch_over_a_unix_socket, gdb_machine_interface},
};

/// Lets gdb execute `commands` and expects `lines` in this order in what it says.
#[track_caller]
fn check_dialogue(machine: &mut Machine, commands: &[&str], lines: &[&str]) -> End {
    let (said, end) = gdb_batch(machine, commands);
    let mut rest = said.iter();
    for line in lines {
        assert!(
            rest.any(|s| s.contains(line)),
            "expected `{line}` in its place in what gdb said:\n{}",
            said.join("\n")
        );
    }
    end
}

#[test]
fn all_registers_are_shown() {
    check_dialogue(
        &mut Machine::new(),
        &[
            "stepi",
            "print $rax",
            "print $rip",
            "print $eflags",
            "print $st0",
            "print $mxcsr",
            "print/x $xmm0.v4_int32",
            "print/x $ymm0.v8_int32",
            "print/x $fs_base",
            "print $orig_rax",
            "print/x $cs",
            "info registers fctrl ftag",
        ],
        &[
            "$1 = 1",
            "$2 = (void (*)()) 0x401003",
            "$3 = [ PF ZF IF ]",
            "$4 = 1.5",
            "$5 = [ IM DM ZM OM UM PM ]",
            "$6 = {0x3020100, 0x7060504, 0xb0a0908, 0xf0e0d0c}",
            "$7 = {0x3020100, 0x7060504, 0xb0a0908, 0xf0e0d0c, 0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c}",
            "$8 = 0x7f0000001000",
            "$9 = -1",
            "$10 = 0x33",
            "fctrl          0x37f",
            "ftag           0xfffc",
        ],
    );
}

#[test]
fn memory_is_shown_and_its_end_is_an_error() {
    check_dialogue(
        &mut Machine::new(),
        &["x/2i $pc", "x/gd 0x404008", "x/4xb 0x401000", "x/gx 0x1234", "x/gx 0xffffffffffffffff"],
        &[
            "inc    %rax",
            "mov    %rax,0x404000",
            "0x404008:\t77",
            "0x401000:\t0x48\t0xff\t0xc0\t0x48",
            "Cannot access memory at address 0x1234",
            "Cannot access memory at address 0xffffffffffffffff",
        ],
    );
}

#[test]
fn breakpoints_of_both_kinds_stop_forward_and_backward() {
    let mut machine = Machine::new();
    check_dialogue(
        &mut machine,
        &[
            "break *0x40100b",
            "hbreak *0x401013",
            "continue",
            "continue",
            "continue",
            "print $rax",
            "reverse-continue",
            "reverse-continue",
            "print $rax",
            "delete",
            "reverse-continue",
            "print $rax",
        ],
        &[
            "Breakpoint 1, 0x000000000040100b",
            "Breakpoint 2, 0x0000000000401013",
            "Breakpoint 1, 0x000000000040100b",
            "$1 = 2",
            "Breakpoint 2, 0x0000000000401013",
            "Breakpoint 1, 0x000000000040100b",
            "$2 = 1",
            "No more reverse-execution history",
            "$3 = 0",
        ],
    );
    assert_eq!(machine.points(), 0, "nothing is left behind");
}

#[test]
fn a_watchpoint_shows_who_wrote_in_reverse_too() {
    check_dialogue(
        &mut Machine::new(),
        &[
            "watch *(long *) 0x404000",
            "continue",
            "continue",
            "print $pc",
            "reverse-continue",
            "print $pc",
            "reverse-continue",
            "delete",
            "awatch *(long *) 0x404008",
            "continue",
            "print $pc",
        ],
        &[
            "Hardware watchpoint 1: *(long *) 0x404000",
            "Old value = 0",
            "New value = 1",
            "Old value = 1",
            "New value = 2",
            "$1 = (void (*)()) 0x40100b",
            "Old value = 2",
            "New value = 1",
            "$2 = (void (*)()) 0x401003",
            "Old value = 1",
            "New value = 0",
            "Hardware access (read/write) watchpoint 2: *(long *) 0x404008",
            "Value = 77",
            "$3 = (void (*)()) 0x401013",
        ],
    );
}

#[test]
fn steps_go_both_ways_and_history_has_two_ends() {
    check_dialogue(
        &mut Machine::new(),
        &[
            "stepi 3",
            "print $pc",
            "reverse-stepi",
            "print $pc",
            "reverse-stepi 9",
            "print $pc",
            "continue",
            "print $rax",
            "set exec-direction reverse",
            "stepi",
            "monitor when",
        ],
        &[
            "$1 = (void (*)()) 0x401013",
            "$2 = (void (*)()) 0x40100b",
            "No more reverse-execution history",
            "$3 = (void (*)()) 0x401000",
            "No more reverse-execution history",
            "$4 = 22",
            "moment 99",
        ],
    );
}

#[test]
fn threads_have_numbers_names_and_registers() {
    check_dialogue(
        &mut Machine::new(),
        &["info threads", "thread 2", "print $pc", "break *0x401201", "continue", "info threads", "reverse-stepi"],
        &[
            "* 1    Thread 4242.4242 \"main\"",
            "  2    Thread 4242.4243 \"worker <2>\"",
            "[Switching to thread 2 (Thread 4242.4243)]",
            "$1 = (void (*)()) 0x401200",
            "Thread 2 \"worker <2>\" hit Breakpoint 1, 0x0000000000401201",
            "* 2    Thread 4242.4243",
        ],
    );
}

#[test]
fn steps_of_a_thread_let_the_others_run_as_recorded() {
    check_dialogue(
        &mut Machine::new(),
        &["thread 2", "stepi", "print $pc", "monitor when", "reverse-stepi", "print $pc", "monitor when"],
        &["$1 = (void (*)()) 0x401201", "moment 8", "$2 = (void (*)()) 0x401200", "moment 7"],
    );
}

#[test]
fn monitor_commands_answer_and_may_move_time() {
    check_dialogue(
        &mut Machine::new(),
        &["stepi 5", "monitor when", "monitor nonsense", "monitor seek 2", "stepi", "print $pc", "stepi", "print $pc"],
        &["moment 5", "unknown command `nonsense`", "$1 = (void (*)()) 0x40100b", "$2 = (void (*)()) 0x401013"],
    );
}

#[test]
fn our_commands_for_gdb_can_be_read_and_used() {
    let file = std::env::temp_dir().join(format!("clew-gdb-commands-{}", std::process::id()));
    std::fs::write(&file, gdb::COMMANDS).unwrap();
    let source = format!("source {}", file.display());
    check_dialogue(
        &mut Machine::new(),
        &[&source, "seek 3", "print $pc", "when", "help seek"],
        &["$1 = (void (*)()) 0x401013", "moment 3", "Go to a moment"],
    );
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_called_function_runs_in_a_copy() {
    let mut machine = Machine::new();
    check_dialogue(
        &mut machine,
        &[
            "stepi 2",
            "print ((long (*)(long)) 0x401100)(21)",
            "print $pc",
            "print ((long (*)(void)) 0x401110)()",
            "stepi",
            "print $pc",
            "print *(long *) 0x404000",
            "monitor when",
        ],
        &["$1 = 42", "$2 = (void (*)()) 0x40100b", "$3 = 2", "$4 = (void (*)()) 0x401013", "$5 = 1", "moment 3"],
    );
    assert_eq!((machine.copies_made, machine.copies_ended), (1, 1));
}

#[test]
fn a_called_function_that_ends_the_program_does_not_end_the_session() {
    check_dialogue(
        &mut Machine::new(),
        &["print ((long (*)(void)) 0x401130)()", "monitor when", "info threads"],
        &["the called function ended its copy", "moment 0", "Thread 4242.4242"],
    );
}

#[test]
fn values_set_by_hand_last_until_time_moves() {
    check_dialogue(
        &mut Machine::new(),
        &[
            "set var *(long *) 0x404000 = 40",
            "print ((long (*)(void)) 0x401110)()",
            "set var $rbx = 5",
            "print $rbx",
            "stepi",
            "print $rbx",
            "print *(long *) 0x404000",
        ],
        &["$1 = 41", "$2 = 5", "note: what was set by hand is dropped", "$3 = 0", "$4 = 0"],
    );
}

#[test]
fn values_set_by_hand_stay_where_the_debuggee_keeps_them() {
    let mut machine = Machine::new();
    machine.keeps = true;
    let commands = ["set var $rbx = 5", "stepi", "print $rbx"];
    let (said, _) = gdb_batch(&mut machine, &commands);
    assert!(said.iter().any(|s| s.contains("= 5")), "{said:?}");
    assert!(!said.iter().any(|s| s.contains("dropped")), "{said:?}");
    assert_eq!((machine.copies_made, machine.copies_ended), (1, 0));
}

#[test]
fn what_is_to_be_said_about_a_stop_is_said_once() {
    let mut machine = Machine::new();
    machine.remark = Some("something about this stop\n".into());
    let (said, _) = gdb_batch(&mut machine, &["stepi", "stepi"]);
    assert_eq!(said.iter().filter(|s| s.contains("something about this stop")).count(), 1, "{said:?}");
}

#[test]
fn signals_are_reported_unless_the_user_passes_them() {
    let mut machine = Machine::new();
    machine.signal_at = Some(20);
    check_dialogue(
        &mut machine,
        &["continue", "print $_siginfo.si_signo", "monitor when", "continue"],
        &["received signal SIGUSR1", "$1 = 0", "moment 20", "No more reverse-execution history"],
    );
    let mut machine = Machine::new();
    machine.signal_at = Some(20);
    let (said, _) = gdb_batch(&mut machine, &["handle SIGUSR1 nostop noprint pass", "continue", "monitor when"]);
    assert!(said.iter().any(|s| s.contains("moment 100")), "{}", said.join("\n"));
    assert!(!said.iter().any(|s| s.contains("received signal")), "{}", said.join("\n"));
}

#[test]
fn sessions_end_as_the_user_wants() {
    for (command, end) in [("detach", End::Detached), ("kill", End::Killed), ("disconnect", End::Closed)] {
        let (said, ended) = gdb_batch(&mut Machine::new(), &["stepi", command, "info threads"]);
        assert_eq!(ended, end, "{command}: {}", said.join("\n"));
        assert!(said.iter().any(|s| s == "No threads."), "{command}: {}", said.join("\n"));
    }
    assert_eq!(gdb_batch(&mut Machine::new(), &["stepi"]).1, End::Detached, "quit");
}

#[test]
fn an_editor_can_interrupt_a_run_and_go_back() {
    let mut machine = Machine::new();
    machine.endless = true;
    let (_, end) = gdb_machine_interface(&mut machine, |gdb| {
        gdb.wait_for("*stopped");
        gdb.type_line("-exec-continue");
        gdb.wait_for("*running");
        gdb.type_line("-exec-interrupt");
        gdb.wait_for("signal-name=\"SIGINT\"");
        gdb.type_line("-thread-info");
        gdb.wait_for("name=\"worker <2>\"");
        gdb.type_line("-interpreter-exec console \"monitor seek 6\"");
        gdb.type_line("-exec-step-instruction --reverse");
        gdb.wait_for("*stopped");
        gdb.type_line("-exec-step-instruction --reverse");
        gdb.wait_for("*stopped");
        gdb.type_line("-data-evaluate-expression $pc");
        gdb.wait_for("0x401003");
        gdb.type_line("-gdb-exit");
    });
    assert_eq!(end, End::Detached);
}

/// The program of the machine with symbols and lines, so that gdb can go by source lines. Gone when dropped.
struct Source(PathBuf);

impl Source {
    const TEXT: &'static str = "\
.text
.globl _start
_start:
 .cfi_startproc
 inc %rax
 mov %rax, 0x404000
 mov 0x404008, %rbx
 jmp _start
 .cfi_endproc
.org 0x100
.type double_it, @function
double_it:
 .cfi_startproc
 lea (%rdi,%rdi), %rax
 ret
 .cfi_endproc
.size double_it, .-double_it
.org 0x140
.type caller, @function
caller:
 .cfi_startproc
 .cfi_undefined rip
 call double_it
 jmp caller
 .cfi_endproc
.size caller, .-caller
";

    fn build() -> Source {
        let folder = std::env::temp_dir().join(format!("clew-gdb-source-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("machine.s"), Source::TEXT).unwrap();
        for command in
            [["as", "-g", "machine.s", "-o", "machine.o"], ["ld", "-Ttext=0x401000", "machine.o", "-o", "machine"]]
        {
            let status = Command::new(command[0]).args(&command[1..]).current_dir(&folder).status();
            assert!(status.is_ok_and(|s| s.success()), "{command:?} works; `cargo xtask setup` installs it");
        }
        Source(folder)
    }

    fn command(&self) -> String {
        format!("file {}", self.0.join("machine").display())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn source_lines_and_calls_can_be_gone_over_both_ways() {
    let source = Source::build();
    check_dialogue(
        &mut Machine::starting_at(CALLER),
        &[
            &source.command(),
            "break double_it",
            "continue",
            "backtrace",
            "reverse-finish",
            "delete",
            "next",
            "reverse-next",
            "step",
            "step",
            "reverse-step",
            "finish",
        ],
        &[
            "Breakpoint 1, double_it () at machine.s:14",
            "#0  double_it () at machine.s:14",
            "#1  0x0000000000401145 in caller () at machine.s:23",
            "caller () at machine.s:23",
            "24\t jmp caller",
            "23\t call double_it",
            "double_it () at machine.s:14",
            "15\t ret",
            "14\t lea",
            "caller () at machine.s:24",
        ],
    );
}

#[test]
fn a_unix_socket_serves_as_well() {
    let (said, end) = gdb_batch_over_a_unix_socket(&mut Machine::new(), &["stepi", "print $pc"]);
    assert!(said.iter().any(|s| s.contains("$1 = (void (*)()) 0x401003")), "{}", said.join("\n"));
    assert_eq!(end, End::Detached);
}
