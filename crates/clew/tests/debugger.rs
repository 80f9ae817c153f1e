//! Slices, altered runs and calls of library functions in `clew gdb`, in dialogues with stock gdb.
//!
//! The guests have the shapes of five kinds of bugs: a smashed stack, a double free, a heap overflow, a dangling pointer, and
//! a NULL pointer from a failed call. Each dialogue finds the cause by slices and shows by altering the run that it is one.
//! Source of the shapes: the case studies on ncompress, Tidy, bc, Ghostscript and Tar in Y. Wang, "Dynamic Analysis
//! Techniques for Effective and Efficient Debugging" (2014), chapter 2.

mod common;

use common::dialogue::check;
use common::place::{Place, finish};
use common::processes::left;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Compiles a guest of `tests/guests/debugger` and records a run of it, which must die of this signal.
#[track_caller]
fn record(test: &str, guest: &str, input: &[u8], signal: i32) -> Place {
    let place = Place::new(test);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/debugger").join(format!("{guest}.c"));
    let program = place.folder.join(guest);
    // Frames must lie as the guests need them.
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O0", "-fno-stack-protector", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(source);
    assert!(cc.status().expect("cc runs").success(), "{guest}.c compiles");
    let mut clew = place.clew(["record", "--quiet", "--"]);
    clew.arg(program);
    let output = finish(clew, input);
    assert_eq!(output.status.signal(), Some(signal), "{guest}: {}", common::stderr(&output));
    place
}

const ENDED_WELL: &str = "The altered run exited with status 0.";

#[test]
fn a_smashed_stack_leads_back_to_the_copy() {
    let place = record("smash", "smash", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("break main", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, main"]),
            ("monitor record on", &["Slices see from", "to the end"]),
            ("monitor checkpoint", &["Checkpoint 1 at "]),
            ("delete", &[]),
            // The return address has been overwritten: both program counters are told.
            (
                "continue",
                &[
                    "The program counter 0x676e6f6c2d73 is no code",
                    "before was at 0x",
                    "pack at",
                    "smash.c:13",
                    "SIGSEGV",
                ],
            ),
            (
                "monitor slice smash.c:13",
                &[
                    "Slice 0 of smash.c:13, execution 1",
                    "  1 -> smash.c:10 1 due to Memory 0x7f",
                    "  1 -> smash.c:21 1 due to ControlDependence",
                    "smash.c:21 (1 dependence away)",
                    "  1 -> smash.c:20 1 due to ControlDependence",
                    "  1 -> smash.c:17 1 due to files[0]",
                    "region inputs: ",
                ],
            ),
            ("prune 0 files", &["Slice 1 of smash.c:13", "without files", "fewer executions", "than slice 0"]),
            ("monitor info slice 1 smash.c:17", &["Slice 1 of"]),
            ("monitor info slices", &["0 smash.c:13, execution 1: ", "1 smash.c:13, execution 1, without files: "]),
            // Each of these alone removes the crash.
            ("monitor rollback 1", &[]),
            ("stepi", &["main", "smash.c:16"]),
            ("monitor suppress smash.c:10", &["suppress smash.c:10: the next execution"]),
            ("continue", &["stdout: packed 3", ENDED_WELL]),
            ("rollback 1", &["smash.c:16"]),
            ("monitor suppress smash.c:21 1", &["suppress smash.c:21: execution 1"]),
            ("continue", &["stdout: packed 0", ENDED_WELL]),
            ("rollback 1", &["smash.c:16"]),
            ("monitor switch smash.c:19", &["switch smash.c:19"]),
            ("continue", &["stdout: packed 0", ENDED_WELL]),
            ("rollback 1", &["smash.c:16"]),
            ("monitor switch smash.c:20 all", &["switch smash.c:20: every execution from here on"]),
            ("continue", &["stdout: packed 0", ENDED_WELL]),
            // Along the slice, in both directions.
            ("rollback 1", &["smash.c:16"]),
            ("monitor sbreak all 0", &["Slice 0: breakpoints at"]),
            ("continue", &["Slice 0: smash.c:17, execution 1", "17\t"]),
            ("continue", &["Slice 0: smash.c:19, execution 1", "19\t"]),
            ("continue", &["Slice 0: smash.c:20, execution 1"]),
            ("reverse-continue", &["Slice 0: smash.c:19, execution 1"]),
            ("monitor info breakpoints", &["slice 0: "]),
            ("monitor sdelete 0", &[]),
            ("monitor info breakpoints", &["No library breakpoints and no slice breakpoints."]),
            ("continue", &["SIGSEGV"]),
        ],
    );
    place.done();
}

#[test]
fn a_double_free_leads_back_to_the_shallow_copy() {
    let place = record("twice", "twice", b"", SIGABRT);
    check(
        &place,
        "latest",
        &[
            ("continue", &["SIGABRT"]),
            ("frame function main", &["discard(second);"]),
            ("set $text = second->text", &[]),
            ("set $first = first", &[]),
            ("seek start", &["_start"]),
            // It is freed twice, it was allocated, and nobody wrote over it.
            ("eval \"monitor breakpoint free if arg1==%p\", $text", &["Library breakpoint 1: calls of free"]),
            ("continue", &["Library breakpoint 1: free is called, with 0x", "discard (n=", "free(n->text);"]),
            ("monitor instance twice.c:20", &["twice.c:20#1, of 2"]),
            ("continue", &["Library breakpoint 1: free is called", "free(n->text);"]),
            ("monitor instance twice.c:20", &["twice.c:20#2, of 2"]),
            // The pointer came from the copy of the node, and there from the first one.
            (
                "monitor slice twice.c:20 2 n->text",
                &[
                    "Slice 0 of twice.c:20, execution 2, n->text",
                    "  2 -> twice.c:13 1 due to n->text",
                    "twice.c:13 (1 dependence away)",
                    "  1 -> twice.c:12 1 due to copy",
                    "  1 -> twice.c:27 1 due to Memory 0x",
                    "twice.c:27 (2 dependences away)",
                ],
            ),
            ("monitor bdelete 1", &[]),
            ("eval \"monitor breakpoint malloc if ret==%p\", $first", &["Library breakpoint 2: calls of malloc"]),
            ("reverse-continue", &["Library breakpoint 2: malloc is called", "main () at", "malloc(sizeof *first)"]),
            ("monitor bdelete 2", &[]),
            ("monitor checkpoint", &["Checkpoint 1"]),
            ("eval \"monitor breakpoint strdup if write %p:4\", $text", &["Library breakpoint 3"]),
            ("continue", &["Library breakpoint 3: strdup is called", "main () at"]),
            ("monitor info breakpoints", &["3 calls of strdup if write 0x", ":4"]),
            ("monitor bdelete 3", &[]),
            // Any of these avoids the crash.
            ("rollback 1", &["malloc(sizeof *first)"]),
            ("monitor switch twice.c:19 2", &["execution 2"]),
            ("continue", &["stdout: released", ENDED_WELL]),
            ("rollback 1", &["malloc(sizeof *first)"]),
            ("monitor suppress discard 2", &["suppress discard: execution 2"]),
            ("continue", &["stdout: released", ENDED_WELL]),
            ("rollback 1", &["malloc(sizeof *first)"]),
            ("continue", &["SIGABRT"]),
        ],
    );
    place.done();
}

#[test]
fn a_heap_overflow_leads_back_to_the_wrong_bound() {
    let place = record("bound", "bound", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("continue", &["SIGSEGV", "look_up", "return *entries->value;"]),
            ("print entries->value", &["(long *) 0x0"]),
            (
                "eval \"monitor slice bound.c:27 1 %p 8\", &entries->value",
                &[
                    "Slice 0 of bound.c:27, execution 1, 0x",
                    "  1 -> bound.c:23 8 due to Memory 0x",
                    "bound.c:23 (1 dependence away)",
                    "  8 -> bound.c:22 8 due to index",
                    "  8 -> bound.c:22 8 due to ControlDependence",
                ],
            ),
            ("monitor slice bound.c:23 8", &["Slice 1 of bound.c:23, execution 8", "bound.c:22 8 due to index"]),
            ("monitor slice bound.c:23 8 $rax", &["Slice 2 of bound.c:23, execution 8, $rax"]),
            // Only executions that are part of the slice stop: the eighth of the store.
            ("monitor sbreak 0 bound.c:23", &["Slice 0: breakpoints at 1 executions"]),
            ("seek start", &["_start"]),
            ("monitor checkpoint", &["Checkpoint 1"]),
            ("continue", &["Slice 0: bound.c:23, execution 8", "arrays[index] = NULL;"]),
            ("print index", &["= 7"]),
            ("monitor sdelete 0", &[]),
            ("monitor instance bound.c:23", &["bound.c:23#8 begins here, of 8"]),
            // The execution that is about to begin counts as the next one.
            ("monitor suppress bound.c:23", &["the next execution"]),
            ("continue", &["stdout: found 7", ENDED_WELL]),
            ("rollback 1", &["_start"]),
            ("monitor suppress bound.c:23 8", &["execution 8"]),
            ("monitor suppress bound.c:23 7", &["execution 7"]),
            ("monitor info alterations", &["bound.c:23: execution 8", "bound.c:23: execution 7"]),
            ("continue", &["stdout: found 7", ENDED_WELL]),
            ("rollback 1", &["_start"]),
            ("monitor switch bound.c:22 5", &["execution 5"]),
            ("break look_up", &["Breakpoint 1"]),
            // Breakpoints, steps and values work in the altered run, and executions are counted in it.
            ("continue", &["Breakpoint 1, look_up"]),
            ("monitor instance bound.c:23", &["at or behind bound.c:23#4 of an altered run"]),
            ("print *entries->value", &["= 7"]),
            ("monitor checkpoint", &["Checkpoint 2"]),
            ("finish", &["main () at", "Value returned is $", "= 7"]),
            ("continue", &["stdout: found 7", ENDED_WELL]),
            ("rollback 2", &["look_up", "return *entries->value;"]),
            ("monitor when", &["of an altered run"]),
            ("set var *entries->value = 9", &[]),
            ("monitor info checkpoints", &["1 ", "2 ", "look_up at", "of an altered run"]),
            ("continue", &["stdout: found 9", ENDED_WELL]),
            // The recording is as it was.
            ("rollback 1", &["_start"]),
            ("delete", &[]),
            ("continue", &["SIGSEGV", "look_up"]),
            ("monitor instance bound.c:23", &["at or behind bound.c:23#8, of 8"]),
            ("slice bound.c:23 8 index", &["Slice 3 of bound.c:23, execution 8, index", "due to index"]),
        ],
    );
    let folder = place.folder.display().to_string();
    assert_eq!(left(&folder), Vec::<String>::new(), "altered runs end with the debugger");
    place.done();
}

#[test]
fn a_dangling_pointer_leads_back_to_who_reused_the_memory() {
    let place = record("dangling", "dangling", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("continue", &["SIGSEGV", "object_free (object=", "type->finalize(object);"]),
            ("monitor instance dangling.c:30", &["dangling.c:30#5, of 5"]),
            // An object's type must not come from an integer.
            (
                "monitor slice dangling.c:31 type",
                &[
                    "Slice 0 of dangling.c:31, execution 5, type",
                    "  5 -> dangling.c:30 5 due to type",
                    "dangling.c:30 (1 dependence away)",
                    "  5 -> dangling.c:41 1 due to Memory 0x",
                    "dangling.c:41 (2 dependences away)",
                ],
            ),
            // Going on from there, over the memory that it was given: who had given it back?
            (
                "monitor slice dangling.c:49 1",
                &["dangling.c:49, execution 1", "  1 -> dangling.c:37 1 due to Memory of libraries"],
            ),
            ("seek start", &["_start"]),
            ("monitor checkpoint", &["Checkpoint 1"]),
            ("monitor suppress object_free 5", &["suppress object_free: execution 5"]),
            ("continue", &["stdout: finalized 4", ENDED_WELL]),
            ("rollback 1", &["_start"]),
            ("monitor switch dangling.c:36", &["switch dangling.c:36"]),
            ("tbreak dangling.c:51", &["Temporary breakpoint 1"]),
            ("continue", &["Temporary breakpoint 1, main"]),
            // Watchpoints stop the altered run too.
            ("watch finalized", &["Hardware watchpoint 2"]),
            ("continue", &["Hardware watchpoint 2", "Old value = 4", "New value = 5", "finalize_glyph"]),
            ("delete", &[]),
            ("finish", &["object_free"]),
            // Back in the altered run, by making the same changes again.
            ("break object_make", &["Breakpoint 3"]),
            ("reverse-continue", &["Breakpoint 3, object_make"]),
            ("finish", &["main", "Value returned"]),
            ("reverse-stepi", &["object_make"]),
            ("reverse-next", &["}"]),
            ("reverse-next", &["return made;"]),
            ("reverse-next", &["made->type = &glyph;"]),
            ("delete", &[]),
            ("reverse-continue", &["No more reverse-execution history"]),
            ("monitor when", &["of an altered run"]),
            ("continue", &["stdout: finalized 5", ENDED_WELL]),
        ],
    );
    place.done();
}

#[test]
fn a_null_pointer_leads_back_to_the_call_that_failed() {
    let place = record("unreadable", "unreadable", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("continue", &["SIGSEGV", "strlen"]),
            ("frame function contents", &["(length = strlen(entry))"]),
            (
                "monitor slice unreadable.c:26",
                &[
                    "Slice 0 of unreadable.c:26, execution ",
                    " -> unreadable.c:24 2 due to ControlDependence",
                    " -> unreadable.c:22 2 due to names",
                    "unreadable.c:22 (1 dependence away)",
                    "  2 -> unreadable.c:12 1 due to rax",
                    "unreadable.c:12 (2 dependences away)",
                ],
            ),
            ("seek unreadable.c:37#2", &["if (incremental)"]),
            ("monitor checkpoint", &["Checkpoint 1"]),
            ("monitor switch unreadable.c:37", &["the next execution"]),
            ("continue", &["stdout: known 1", ENDED_WELL]),
            ("rollback 1", &["if (incremental)"]),
            ("monitor switch unreadable.c:24 2", &["execution 2"]),
            ("continue", &["stdout: known 1", ENDED_WELL]),
            ("rollback 1", &["if (incremental)"]),
            ("monitor suppress contents 2", &["suppress contents: execution 2"]),
            ("continue", &["stdout: known ", ENDED_WELL]),
            // Another crash in the altered run is told as one.
            ("rollback 1", &["if (incremental)"]),
            ("monitor live", &["goes on by itself"]),
            ("set var folders[1] = (char *)8", &[]),
            ("continue", &["The altered run died of SIGSEGV", "Program received signal SIGSEGV"]),
        ],
    );
    place.done();
}

#[test]
fn input_can_be_other_than_it_was() {
    let place = record("reads", "reads", b"abc!\n", SIGABRT);
    check(
        &place,
        "latest",
        &[
            ("break main", &["Breakpoint 1"]),
            ("continue", &["Breakpoint 1, main"]),
            ("monitor checkpoint", &["Checkpoint 1"]),
            ("monitor input 3 \"d\"", &["input: 1 bytes from offset 3 on"]),
            ("continue", &["stdout: read abcd", ENDED_WELL]),
            ("rollback 1", &["main"]),
            ("monitor input 0 7a 79", &["input: 2 bytes from offset 0 on"]),
            ("continue", &["The altered run died of SIGABRT", "SIGABRT"]),
            ("frame function main", &["abort();"]),
            ("print line[0]", &["'z'"]),
            ("rollback 1", &["main"]),
            ("continue", &["SIGABRT"]),
            ("frame function main", &["abort();"]),
            ("print line[0]", &["'a'"]),
        ],
    );
    place.done();
}

#[test]
fn slices_end_where_the_recorded_region_does() {
    let place = record("region", "bound", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("monitor record bound.c:22 on", &["Slices see from", "to the end"]),
            (
                "monitor slice bound.c:27 1",
                &[
                    "Slice 0",
                    "bound.c:23 8 due to Memory",
                    "due to index",
                    "region inputs: ",
                    "index",
                    "variable_count",
                ],
            ),
            ("monitor record bound.c:32 off", &["Slices see from"]),
            ("monitor slice bound.c:27 1", &["outside of the recorded region"]),
            ("monitor record bound.c:16 off", &["was not executed there"]),
            ("monitor record all", &["Slices see the whole recording."]),
            ("monitor slice bound.c:27 1", &["Slice 1", "bound.c:21"]),
        ],
    );
    place.done();
}

#[test]
fn what_makes_no_sense_is_refused_in_one_sentence() {
    let place = record("nonsense", "bound", b"", SIGSEGV);
    check(
        &place,
        "latest",
        &[
            ("monitor help", &["slice FILE:LINE", "suppress PLACE", "breakpoint FUNCTION"]),
            ("monitor slice", &["`slice` takes FILE:LINE"]),
            ("monitor slice bound.c", &["`bound.c` is no line: write FILE:LINE"]),
            ("monitor slice bound.c:23", &["was not executed before this moment"]),
            ("monitor slice bound.c:23 99", &["executed 8 times only"]),
            ("monitor slice bound.c:23 1 nothing", &["`nothing` cannot be found"]),
            ("monitor info slices", &["No slices."]),
            ("monitor info slice 3", &["there is no slice 3"]),
            ("monitor prune 3 x", &["there is no slice 3"]),
            ("monitor sbreak 3", &["`sbreak` takes"]),
            ("monitor sdelete x", &["there is no slice x"]),
            ("monitor record maybe", &["`record` takes"]),
            ("monitor switch bound.c:23", &["bound.c:23 decides nothing"]),
            ("monitor switch bound.c:22 never", &["`all`, `once` or its number"]),
            ("monitor switch bound.c:5", &["has no code; the next line that has is"]),
            ("monitor suppress bound.c:28", &["enters or leaves a function", "`monitor suppress look_up`"]),
            ("monitor suppress no_such", &["no line and no function"]),
            ("monitor input 3", &["`input` takes OFFSET and BYTES"]),
            ("monitor input x 41", &["`input` takes OFFSET and BYTES"]),
            ("monitor breakpoint", &["`breakpoint` takes a library function"]),
            ("monitor breakpoint no_such", &["no function `no_such` is known"]),
            ("monitor breakpoint malloc if arg9==1", &["a condition is argN==VALUE"]),
            ("monitor bdelete 1", &["there is no library breakpoint 1"]),
            ("monitor info alterations", &["This is the recording: nothing is altered."]),
            ("seek end", &["look_up"]),
            ("monitor switch bound.c:22 3", &["lies before this moment, 9 are over", "go back first"]),
            ("monitor suppress bound.c:23", &["the recording is over here", "go back first"]),
            ("seek start", &["_start"]),
            ("monitor live", &["goes on by itself"]),
            ("monitor slice bound.c:27", &["slices are of the recording"]),
            ("monitor record on", &["leave the altered run first"]),
        ],
    );
    place.done();
}
