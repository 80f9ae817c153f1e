//! What the view says, against what programs do when they are stepped through.
//!
//! Most programs are statically linked, so that the C library is checked with them. For every executed instruction:
//! the next one is where the graph allows; every branch reaches its merge before its function returns; between a branch
//! and its merge nothing is written, in memory or registers, that was not predicted for that side; stores to constant
//! places go there.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use common::{Hints, built, read};
use flow::{Ending, Exit, Flow, Function, MayDefine, Merge, Place};
use iced_x86::{FlowControl, Instruction};
use testkit::oracle::{Access, Raw, observe};

/// One executed instruction.
struct Did {
    insn: Instruction,
    gpr: [u64; 16],
    fs_base: u64,
    writes: Vec<Access>,
}

/// A branch whose sides have not met again.
struct Open {
    pc: u64,
    merge: Merge,
    lenient: Merge,
    gpr: [u64; 16],
    predicted: Arc<MayDefine>,
}

struct Frame {
    function: Arc<Function>,
    entry_rsp: u64,
    open: Vec<Open>,
    /// The instruction that ran last in this frame.
    last: Option<Instruction>,
}

impl Frame {
    /// Code of the linkage table, which goes on with words pushed.
    fn is_stub(&self) -> bool {
        self.function.name().is_none() && self.function.instructions().len() < 6
    }
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Counts {
    instructions: usize,
    branches: usize,
    merged: usize,
    region_writes: usize,
    region_writes_by_place: usize,
    constant_stores: usize,
    learned_jumps: usize,
    landings: usize,
}

fn is_call(instruction: &Instruction) -> bool {
    instruction.mnemonic() == iced_x86::Mnemonic::Call
}

struct Checker {
    flow: Flow,
    frames: Vec<Frame>,
    before: Option<Did>,
    regions: HashMap<(u64, u64), Arc<MayDefine>>,
    places: HashMap<u64, Vec<Place>>,
    counts: Counts,
    wrong: Vec<String>,
    said: HashSet<(u64, &'static str)>,
}

impl Checker {
    fn complain(&mut self, pc: u64, what: &'static str, details: String) {
        if self.said.insert((pc, what)) {
            let name = self.flow.function(pc).and_then(|f| f.name().map(str::to_owned)).unwrap_or_default();
            self.wrong.push(format!("{pc:#x} in {name}: {what}: {details}"));
        }
    }

    fn see(&mut self, now: Did) {
        self.counts.instructions += 1;
        let pc = now.insn.ip();
        let rsp = now.gpr[4];
        let before = self.before.take();
        self.leave_frames(rsp, before.as_ref());
        self.land(pc);
        self.enter(pc, rsp, before.as_ref());
        if let Some(before) = &before {
            self.check_edge(before, pc);
        }
        self.merge(pc, &now);
        if let Some(frame) = self.frames.last()
            && frame.function.is_branch(pc)
        {
            self.counts.branches += 1;
        }
        self.check_writes(&now);
        if let Some(frame) = self.frames.last_mut() {
            frame.last = Some(now.insn);
        }
        self.before = Some(now);
    }

    fn leave_frames(&mut self, rsp: u64, before: Option<&Did>) {
        while self.frames.len() > 1 && self.frames.last().is_some_and(|f| f.entry_rsp < rsp) {
            let Some(frame) = self.frames.pop() else { break };
            // A jump out of several frames is a longjmp or an unwinder's work.
            let returned = before.is_some_and(|b| b.insn.flow_control() == FlowControl::Return);
            for open in frame.open.iter().filter(|_| returned) {
                for merge in [open.merge, open.lenient] {
                    if let Merge::At(at) = merge {
                        self.complain(open.pc, "left without passing the merge", format!("{at:#x}"));
                    }
                }
            }
        }
    }

    /// A call did not return but threw: its function goes on elsewhere.
    fn land(&mut self, pc: u64) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(call) = frame.last.filter(|l| is_call(l) && l.next_ip() != pc) else { return };
        let elsewhere = !frame.function.parts().iter().any(|p| p.contains(&pc));
        if elsewhere || pc == frame.function.entry() || !self.flow.observe_unwind(call.ip(), pc) {
            return;
        }
        self.counts.landings += 1;
        self.regions.clear();
        let Some(function) = self.flow.function(call.ip()) else { return };
        for open in &mut frame.open {
            (open.merge, open.lenient) = (function.merge(open.pc), function.merge_ignoring_noreturn(open.pc));
        }
        frame.function = function;
    }

    fn enter(&mut self, pc: u64, rsp: u64, before: Option<&Did>) {
        let called = before.is_some_and(|b| {
            matches!(b.insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                && rsp == b.gpr[4].wrapping_sub(8)
        });
        if called && let Some(b) = before {
            self.flow.observe(b.insn.ip(), pc);
            self.flow.entry_seen(pc);
        }
        let stays = self.frames.last().is_some_and(|f| f.function.contains(pc));
        if stays && !called {
            return;
        }
        let jumped = before.is_some_and(|b| b.insn.flow_control() == FlowControl::IndirectBranch);
        if !called
            && jumped
            && let Some(b) = before
        {
            // Inside the function: an edge that was not known. Otherwise a tail call.
            if self.flow.observe(b.insn.ip(), pc) {
                self.counts.learned_jumps += 1;
                self.regions.clear();
            }
        }
        let Some(function) = self.flow.function(pc) else {
            self.complain(pc, "has no function", String::new());
            return;
        };
        // A library that was not stepped through calls back.
        let begins = pc == function.entry();
        let called_back = begins && self.frames.last().is_some_and(|f| f.entry_rsp > rsp && !f.is_stub());
        match self.frames.last_mut() {
            Some(frame) if !called && !called_back => {
                // A tail call closes what was open; a graph that has grown does not.
                if function.entry() != frame.function.entry() {
                    frame.open.clear();
                    frame.entry_rsp = if begins { rsp } else { frame.entry_rsp };
                }
                frame.function = function;
            }
            _ => self.frames.push(Frame { function, entry_rsp: rsp, open: Vec::new(), last: None }),
        }
    }

    fn check_edge(&mut self, before: &Did, pc: u64) {
        let from = before.insn.ip();
        let plain = !matches!(
            before.insn.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return | FlowControl::IndirectBranch
        );
        let Some(function) = self.flow.function(from) else { return };
        let Some(block) = function.block(from).cloned() else {
            return self.complain(from, "is not in its function", String::new());
        };
        let allowed = match block.last == from {
            false => pc == before.insn.next_ip(),
            true => {
                block.exit == Exit::Returning
                    || block.successors.iter().any(|s| function.blocks()[*s as usize].start == pc)
            }
        };
        // A rep instruction is seen once per iteration.
        if plain && !allowed && pc != from {
            self.complain(from, "goes where the graph does not", format!("{pc:#x}, {:?}", block.ending));
        }
        if block.ending == Ending::NoReturnCall && before.insn.flow_control() == FlowControl::Return {
            self.complain(from, "returned", String::new());
        }
        if function.is_branch(from) && function.contains(pc) {
            self.open(&function, before, pc);
        }
    }

    fn open(&mut self, function: &Arc<Function>, before: &Did, pc: u64) {
        let from = before.insn.ip();
        let merge = function.merge(from);
        let flow = &mut self.flow;
        let region = self.regions.entry((from, pc)).or_insert_with(|| Arc::new(flow.may_define(from, pc, merge)));
        let predicted = region.clone();
        let lenient = function.merge_ignoring_noreturn(from);
        if let Some(frame) = self.frames.last_mut() {
            // Like the stack of control dependence: a branch with the same merge takes the place of the one before.
            frame.open.retain(|o| o.pc != from);
            frame.open.push(Open { pc: from, merge, lenient, gpr: before.gpr, predicted });
        }
    }

    fn merge(&mut self, pc: u64, now: &Did) {
        let Some(frame) = self.frames.last_mut() else { return };
        let mut wrong = Vec::new();
        let mut merged = 0;
        frame.open.retain_mut(|open| {
            if open.lenient == Merge::At(pc) {
                open.lenient = Merge::Exit;
            }
            if open.merge != Merge::At(pc) {
                return true;
            }
            merged += 1;
            let changed = (0..16).filter(|g| *g != 4 && open.gpr[*g] != now.gpr[*g]).fold(0u16, |m, g| m | 1 << g);
            if changed & !open.predicted.gprs != 0 {
                wrong.push((open.pc, changed & !open.predicted.gprs));
            }
            false
        });
        self.counts.merged += merged;
        for (branch, registers) in wrong {
            self.complain(branch, "changed registers that were not predicted", format!("{registers:#b} at {pc:#x}"));
        }
    }

    fn check_writes(&mut self, now: &Did) {
        let pc = now.insn.ip();
        if matches!(now.insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall) || now.writes.is_empty() {
            return;
        }
        self.check_place(now);
        let mut wrong = Vec::new();
        for (i, frame) in self.frames.iter().enumerate() {
            // What lies below the stack pointer of the frame's own code is dead when control is back in it.
            let dead_below = self.frames.get(i + 1).map_or(0, |callee| callee.entry_rsp);
            for write in now.writes.iter().filter(|w| !w.conditional && w.addr >= dead_below) {
                let (start, end) = (write.addr, write.addr + u64::from(write.size.max(1)));
                for open in &frame.open {
                    self.counts.region_writes += 1;
                    let p = &open.predicted;
                    if p.through_pointers || p.calls_unknown {
                        continue;
                    }
                    self.counts.region_writes_by_place += 1;
                    let in_frame = start.wrapping_sub(frame.entry_rsp) as i64..end.wrapping_sub(frame.entry_rsp) as i64;
                    let thread = start.wrapping_sub(now.fs_base) as i64;
                    let known = p.touches_absolute(start..end)
                        || p.touches_frame(in_frame.clone())
                        || p.unbounded_absolute.iter().any(|b| *b <= start)
                        || p.unbounded_frame.iter().any(|b| *b <= in_frame.start)
                        || p.thread.iter().any(|r| r.contains(&thread));
                    if !known {
                        wrong.push((open.pc, start, in_frame.start));
                    }
                }
            }
        }
        for (branch, addr, offset) in wrong {
            let details = format!("{addr:#x}, frame offset {offset}, by {pc:#x} {:?}", now.insn.mnemonic());
            self.complain(branch, "a write was not predicted", details);
        }
    }

    fn check_place(&mut self, now: &Did) {
        let pc = now.insn.ip();
        let flow = &mut self.flow;
        let places = self.places.entry(pc).or_insert_with(|| flow.store_places(pc));
        if places.is_empty() {
            return self.complain(pc, "stores", format!("{:?}", now.insn.mnemonic()));
        }
        let Some(frame) = self.frames.last().filter(|f| f.function.contains(pc)) else { return };
        if !places.iter().all(Place::is_constant) {
            return;
        }
        self.counts.constant_stores += 1;
        for write in &now.writes {
            let (offset, thread) =
                (write.addr.wrapping_sub(frame.entry_rsp) as i64, write.addr.wrapping_sub(now.fs_base) as i64);
            let there = places.iter().any(|place| match place {
                Place::Frame(r) => r.contains(&offset),
                Place::Absolute(r) => r.contains(&write.addr),
                Place::Thread(r) => r.contains(&thread),
                _ => false,
            });
            if !there {
                let details = format!("{:#x}, frame offset {offset}, not at {places:x?}", write.addr);
                return self.complain(pc, "stores elsewhere", details);
            }
        }
    }
}

/// Runs a program, which must lie at fixed addresses, and checks all of it but shared libraries.
#[track_caller]
fn check_run(language: &str, source: &str, flags: &[&str], hints: Hints) -> Counts {
    let (_scratch, path) = built(language, source, &[&["-no-pie"], flags].concat());
    let mut checker = Checker {
        flow: read(&path, hints).flow,
        frames: Vec::new(),
        before: None,
        regions: HashMap::new(),
        places: HashMap::new(),
        counts: Counts::default(),
        wrong: Vec::new(),
        said: HashSet::new(),
    };
    observe(&path, &[] as &[&str], 0, |raw: &Raw<'_>| {
        let writes = raw.accesses.iter().filter(|a| a.write).copied().collect();
        checker.see(Did { insn: *raw.insn, gpr: raw.machine.gpr, fs_base: raw.machine.fs_base, writes });
    });
    println!("{flags:?} {hints:?}: {:?}", checker.counts);
    let wrong = &checker.wrong;
    assert!(
        wrong.is_empty(),
        "{flags:?} {hints:?}: {} things are wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(30)].join("\n")
    );
    checker.counts
}

const WORK: &str = r#"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int table[16], total;
static jmp_buf back;
struct node { int key; struct node *left, *right; } nodes[32];
static int used;
__attribute__((noinline)) static struct node *insert(struct node *n, int key) {
    if (!n) { n = &nodes[used++]; n->key = key; return n; }
    if (key < n->key) n->left = insert(n->left, key); else n->right = insert(n->right, key);
    return n;
}
__attribute__((noinline)) static int classify(int c) {
    switch (c) {
    case 'a': total += 2; return 1;
    case 'b': table[3] = c; break;
    case 'c': case 'd': table[c & 15]++; return 2;
    case 'e': if (total > 50 && used < 13) { used = 13; longjmp(back, 3); } break;
    case 'f': total -= 1; break;
    case 'g': return total;
    case 'h': { char copy[40]; memset(copy, c, sizeof copy); total += copy[c % 40]; break; }
    default: if (c < 'A') abort();
    }
    return total & 7;
}
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int numbers[12];
    struct node *root = 0;
    for (int i = 0; i < 12; i++) { numbers[i] = (i * 37) % 41; root = insert(root, numbers[i]); }
    qsort(numbers, 12, sizeof *numbers, compare);
    int caught = setjmp(back);
    const char *text = "abcdefghzgfedcbahhehe";
    for (const char *p = text + caught; *p; p++) total += classify(*p);
    char line[64];
    snprintf(line, sizeof line, "%d %s %5.2f", total, text, total / 3.0);
    printf("%s %d %d %d\n", line, table[3], numbers[5], root->key);
    return strlen(line) > 70;
}
"#;

/// The same for a program of some length.
#[track_caller]
fn check_long_run(source: &str, flags: &[&str], hints: Hints) {
    let counts = check_run("gcc", source, flags, hints);
    assert!(counts.merged > 300 && counts.constant_stores > 1_000, "{counts:?}");
}

#[test]
fn unoptimised_code_runs_as_the_view_says() {
    check_long_run(WORK, &["-static", "-O0"], Hints::Symbols);
}

#[test]
fn optimised_code_runs_as_the_view_says() {
    check_long_run(WORK, &["-static", "-O2"], Hints::Symbols);
    check_long_run(WORK, &["-static", "-O3", "-fcf-protection=full"], Hints::Symbols);
}

#[test]
fn stripped_code_runs_as_the_view_says() {
    check_long_run(WORK, &["-static", "-O2"], Hints::UnwindTables);
}

const THROWS: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
struct Shape { virtual int area() const = 0; virtual ~Shape() {} };
struct Square : Shape { int a; Square(int a) : a(a) {} int area() const override { return a * a; } };
struct Line : Shape { int area() const override { throw std::runtime_error("a line"); } };
static int total;
struct Guard { int n; ~Guard() { total += n; } };
__attribute__((noinline)) int sum(const std::vector<Shape *> &all) {
    int s = 0;
    for (auto *shape : all) {
        Guard guard{3};
        try { s += shape->area(); }
        catch (const std::runtime_error &e) { s += e.what()[0] == 'a' ? 100 : 200; }
    }
    if (s > 1000) throw s;
    return s;
}
int main() {
    Square two(2), forty(40);
    Line line;
    int got = 0;
    try { got += sum({&two, &line}); got += sum({&line, &forty}); } catch (int n) { got += n; }
    std::string text = std::to_string(got);
    printf("%s %d\n", text.c_str(), total);
}
"#;

#[test]
fn exceptions_run_as_the_view_says() {
    // The unwinder of a static program sorts all its tables first: millions of instructions.
    for flags in ["-O0", "-O2"] {
        let counts = check_run("g++", THROWS, &[flags], Hints::Symbols);
        assert!(counts.landings > 0, "{counts:?}");
    }
}
