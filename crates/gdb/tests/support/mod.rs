//! A tiny machine with a past: what the tests of the protocol debug.
//!
//! Two threads take turns in a fixed way, so every moment is a number and can be computed again from the beginning. The
//! code is real machine code (gdb disassembles it) and a table says what each instruction does.

// Each test program uses another part of this.
#![allow(dead_code, reason = "shared by several test programs")]

pub mod client;

use gdb::{Console, CpuState, Debuggee, Direction, Error, HostFile, Moved, Resume, Stop, Thread, Watch, WatchKind};

pub const LOOP: u64 = 0x40_1000;
pub const STORE: u64 = 0x40_1003;
pub const LOAD: u64 = 0x40_100b;
pub const JUMP: u64 = 0x40_1013;
pub const DOUBLE: u64 = 0x40_1100;
pub const BUMP: u64 = 0x40_1110;
pub const QUIT: u64 = 0x40_1130;
pub const CALLER: u64 = 0x40_1140;
pub const WORKER: u64 = 0x40_1200;
pub const COUNTER: u64 = 0x40_4000;
pub const OTHER: u64 = 0x40_4008;
const STACK_TOP: u64 = 0x7fff_f000;
pub const MAIN: u32 = 4242;
pub const SECOND: u32 = 4243;
/// How many instructions were recorded.
pub const END: u64 = 100;
const RAX: usize = 0;
const RBX: usize = 3;
const RSP: usize = 4;
const RDI: usize = 7;

const CODE: &[(u64, &[u8])] = &[
    (LOOP, &[0x48, 0xff, 0xc0]),                                   // inc rax
    (STORE, &[0x48, 0x89, 0x04, 0x25, 0x00, 0x40, 0x40, 0x00]),    // mov [COUNTER], rax
    (LOAD, &[0x48, 0x8b, 0x1c, 0x25, 0x08, 0x40, 0x40, 0x00]),     // mov rbx, [OTHER]
    (JUMP, &[0xeb, 0xeb]),                                         // jmp LOOP
    (DOUBLE, &[0x48, 0x8d, 0x04, 0x3f, 0xc3]),                     // lea rax, [rdi+rdi]; ret
    (BUMP, &[0x48, 0xff, 0x04, 0x25, 0x00, 0x40, 0x40, 0x00]),     // inc [COUNTER]
    (BUMP + 8, &[0x48, 0x8b, 0x04, 0x25, 0x00, 0x40, 0x40, 0x00]), // mov rax, [COUNTER]
    (BUMP + 16, &[0xc3]),                                          // ret
    (QUIT, &[0x0f, 0x05]),                                         // syscall
    (CALLER, &[0xe8, 0xbb, 0xff, 0xff, 0xff, 0xeb, 0xf9]),         // call DOUBLE; jmp CALLER
    (WORKER, &[0x90, 0xeb, 0xfd]),                                 // nop; jmp WORKER
];

/// The machine at one moment.
#[derive(Clone)]
struct State {
    cpus: [CpuState; 2],
    code: Vec<u8>,
    data: Vec<u8>,
    stack: Vec<u8>,
    exited: bool,
}

/// A memory access: address and whether it was a write. All are of eight bytes.
type Access = Option<(u64, bool)>;

impl State {
    fn initial(entry: u64) -> State {
        let mut code = vec![0x90; 0x300];
        for (addr, bytes) in CODE {
            code[(addr - LOOP) as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let mut cpu = CpuState { rip: entry, rflags: 0x246, mxcsr: 0x1f80, orig_rax: u64::MAX, ..CpuState::default() };
        cpu.gpr[RSP] = STACK_TOP - 0x100;
        cpu.fs_base = 0x7f00_0000_1000;
        cpu.xmm[0] = std::array::from_fn(|n| n as u8);
        cpu.ymm_high[0] = std::array::from_fn(|n| 16 + n as u8);
        // 1.5 in st(0).
        cpu.x87.st[0] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0x3f];
        cpu.x87.control = 0x37f;
        cpu.x87.tags = 0xfffc;
        let mut worker = CpuState { rip: WORKER, ..cpu.clone() };
        worker.gpr[RSP] -= 0x800;
        let mut data = vec![0; 0x100];
        data[8] = 77;
        State { cpus: [cpu, worker], code, data, stack: vec![0; 0x1000], exited: false }
    }

    fn bytes(&mut self, addr: u64) -> Option<&mut [u8]> {
        let regions = [(LOOP, &mut self.code), (COUNTER, &mut self.data), (STACK_TOP - 0x1000, &mut self.stack)];
        regions.into_iter().find_map(|(start, bytes)| bytes.get_mut(usize::try_from(addr.checked_sub(start)?).ok()?..))
    }

    fn load(&mut self, addr: u64) -> u64 {
        let bytes = self.bytes(addr).and_then(|b| b.first_chunk::<8>().copied());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn store(&mut self, addr: u64, value: u64) {
        if let Some(bytes) = self.bytes(addr).and_then(|b| b.first_chunk_mut::<8>()) {
            *bytes = value.to_le_bytes();
        }
    }

    /// Executes one instruction.
    fn step(&mut self, cpu: usize) -> Access {
        let at = self.cpus[cpu].rip;
        let (next, access) = match at {
            LOOP => {
                self.cpus[cpu].gpr[RAX] += 1;
                (STORE, None)
            }
            STORE => {
                self.store(COUNTER, self.cpus[cpu].gpr[RAX]);
                (LOAD, Some((COUNTER, true)))
            }
            LOAD => {
                self.cpus[cpu].gpr[RBX] = self.load(OTHER);
                (JUMP, Some((OTHER, false)))
            }
            JUMP => (LOOP, None),
            DOUBLE => {
                self.cpus[cpu].gpr[RAX] = self.cpus[cpu].gpr[RDI] * 2;
                (DOUBLE + 4, None)
            }
            BUMP => {
                let value = self.load(COUNTER) + 1;
                self.store(COUNTER, value);
                (BUMP + 8, Some((COUNTER, true)))
            }
            0x40_1118 => {
                self.cpus[cpu].gpr[RAX] = self.load(COUNTER);
                (BUMP + 16, Some((COUNTER, false)))
            }
            0x40_1104 | 0x40_1120 => {
                let sp = self.cpus[cpu].gpr[RSP];
                self.cpus[cpu].gpr[RSP] = sp + 8;
                (self.load(sp), Some((sp, false)))
            }
            QUIT => {
                self.exited = true;
                (QUIT, None)
            }
            CALLER => {
                let sp = self.cpus[cpu].gpr[RSP] - 8;
                self.cpus[cpu].gpr[RSP] = sp;
                self.store(sp, CALLER + 5);
                (DOUBLE, Some((sp, true)))
            }
            0x40_1145 => (CALLER, None),
            WORKER => (WORKER + 1, None),
            _ => (WORKER, None),
        };
        self.cpus[cpu].rip = next;
        access
    }
}

/// A machine and its recording.
pub struct Machine {
    entry: u64,
    now: State,
    moment: u64,
    copy: Option<State>,
    stopped: u32,
    breakpoints: Vec<u64>,
    watches: Vec<Watch>,
    /// The recording never ends.
    pub endless: bool,
    /// A moment at which the first thread gets SIGUSR1.
    pub signal_at: Option<u64>,
    /// What is changed in a copy stays, as in a run that goes on by itself.
    pub keeps: bool,
    /// What is to be read at the next stop.
    pub remark: Option<String>,
    /// What was called, for tests that care.
    pub copies_made: u32,
    pub copies_ended: u32,
}

impl Machine {
    /// A machine whose first thread counts.
    pub fn new() -> Machine {
        Machine::starting_at(LOOP)
    }

    pub fn starting_at(entry: u64) -> Machine {
        Machine {
            entry,
            now: State::initial(entry),
            moment: 0,
            copy: None,
            stopped: MAIN,
            breakpoints: Vec::new(),
            watches: Vec::new(),
            endless: false,
            signal_at: None,
            keeps: false,
            remark: None,
            copies_made: 0,
            copies_ended: 0,
        }
    }

    pub fn points(&self) -> usize {
        self.breakpoints.len() + self.watches.len()
    }

    fn state(&mut self) -> &mut State {
        self.copy.as_mut().unwrap_or(&mut self.now)
    }

    /// Which cpu executes the instruction after `moment`.
    fn turn(&self, moment: u64) -> usize {
        usize::from(self.copy.is_none() && moment % 8 == 7)
    }

    fn go_to(&mut self, moment: u64) -> Access {
        self.now = State::initial(self.entry);
        let mut last = None;
        for past in 0..moment {
            last = self.now.step(self.turn(past));
        }
        self.moment = moment;
        last
    }

    /// Makes one step in time; the cpu that made it and its access.
    fn tick(&mut self, direction: Direction) -> (usize, Access) {
        if let Some(copy) = &mut self.copy {
            return (0, copy.step(0));
        }
        match direction {
            Direction::Forward => {
                let cpu = self.turn(self.moment);
                self.moment += 1;
                (cpu, self.now.step(cpu))
            }
            Direction::Backward => {
                let undone = self.go_to(self.moment);
                self.go_to(self.moment - 1);
                (self.turn(self.moment), undone)
            }
        }
    }

    fn edge(&self, direction: Direction) -> Option<Stop> {
        match direction {
            Direction::Backward if self.moment == 0 => Some(Stop::HistoryStart),
            Direction::Forward if self.copy.is_none() && self.moment == END && !self.endless => Some(Stop::HistoryEnd),
            _ => None,
        }
    }

    fn watched(&self, thread: u32, access: Access) -> Option<Stop> {
        let (addr, writes) = access?;
        let hit = |w: &&Watch| {
            let kind = matches!(
                (w.kind, writes),
                (WatchKind::Access, _) | (WatchKind::Write, true) | (WatchKind::Read, false)
            );
            kind && w.addr < addr + 8 && addr < w.addr + w.len
        };
        self.watches.iter().find(hit).map(|w| Stop::Watch { thread, addr: w.addr, kind: w.kind })
    }
}

fn thread_of(cpu: usize) -> u32 {
    [MAIN, SECOND][cpu]
}

fn cpu_of(thread: u32) -> Result<usize, Error> {
    [MAIN, SECOND].iter().position(|t| *t == thread).ok_or_else(|| Error::refused(format!("no thread {thread}")))
}

impl Debuggee for Machine {
    fn threads(&mut self) -> Result<Vec<Thread>, Error> {
        let thread = |id, name: &str| Thread { id, name: name.to_owned() };
        Ok(vec![thread(MAIN, "main"), thread(SECOND, "worker <2>")])
    }

    fn stopped_thread(&mut self) -> u32 {
        self.stopped
    }

    fn registers(&mut self, thread: u32) -> Result<CpuState, Error> {
        let cpu = cpu_of(thread)?;
        Ok(self.state().cpus[cpu].clone())
    }

    fn set_registers(&mut self, thread: u32, state: &CpuState) -> Result<(), Error> {
        let cpu = cpu_of(thread)?;
        let copy = self.copy.as_mut().expect("registers are only written in a copy");
        copy.cpus[cpu] = state.clone();
        Ok(())
    }

    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize, Error> {
        let bytes = self.state().bytes(addr).ok_or_else(|| Error::refused("not mapped"))?;
        let n = bytes.len().min(into.len());
        into[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Error> {
        let copy = self.copy.as_mut().expect("memory is only written in a copy");
        let at = copy.bytes(addr).and_then(|b| b.get_mut(..bytes.len()));
        at.ok_or_else(|| Error::refused("not mapped"))?.copy_from_slice(bytes);
        Ok(())
    }

    fn set_breakpoints(&mut self, addresses: &[u64]) -> Result<(), Error> {
        self.breakpoints = addresses.to_vec();
        Ok(())
    }

    fn set_watchpoints(&mut self, watches: &[Watch]) -> Result<(), Error> {
        self.watches = watches.to_vec();
        Ok(())
    }

    fn resume(
        &mut self,
        direction: Direction,
        how: Resume,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        loop {
            if let Some(edge) = self.edge(direction) {
                return Ok(edge);
            }
            let (cpu, access) = self.tick(direction);
            self.stopped = thread_of(cpu);
            if self.state().exited {
                return Ok(Stop::Exited(0));
            }
            if let Some(stop) = self.watched(self.stopped, access) {
                return Ok(stop);
            }
            if self.copy.is_none() && direction == Direction::Forward && self.signal_at == Some(self.moment) {
                self.stopped = MAIN;
                return Ok(Stop::Signal { thread: MAIN, signo: 10 });
            }
            let next = self.turn(self.moment);
            let at = self.state().cpus[next].rip;
            if self.breakpoints.contains(&at) {
                self.stopped = thread_of(next);
                return Ok(Stop::Breakpoint { thread: self.stopped });
            }
            let here = self.state().cpus[cpu].rip;
            match how {
                Resume::Step { thread } if thread == self.stopped => return Ok(Stop::Step),
                Resume::RangeStep { thread, start, end } if thread == self.stopped && !(start..end).contains(&here) => {
                    return Ok(Stop::Step);
                }
                _ => {}
            }
            if interrupted() {
                return Ok(Stop::Interrupted);
            }
        }
    }

    fn begin_copy(&mut self) -> Result<(), Error> {
        self.copies_made += 1;
        self.copy = Some(self.now.clone());
        Ok(())
    }

    fn keep_copy(&mut self) -> Result<bool, Error> {
        match self.copy.take().filter(|_| self.keeps) {
            Some(copy) => self.now = copy,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    fn end_copy(&mut self) -> Result<(), Error> {
        self.copies_ended += 1;
        self.copy = None;
        Ok(())
    }

    fn pid(&mut self) -> u32 {
        MAIN
    }

    fn exec_file(&mut self) -> Option<String> {
        None
    }

    fn auxv(&mut self) -> Result<Vec<u8>, Error> {
        Ok((0..64).collect())
    }

    fn file(&mut self, path: &str) -> Option<HostFile> {
        (path == "/recorded/text").then(|| HostFile::Bytes(b"as it was} then".to_vec()))
    }

    fn monitor(&mut self, command: &str, console: &mut dyn Console) -> Result<Moved, Error> {
        match command.split_whitespace().collect::<Vec<_>>()[..] {
            ["when"] => console.print(&format!("moment {}\n", self.moment)),
            ["seek", moment] => {
                let moment = moment.parse().map_err(|_| Error::refused(format!("{moment} is not a moment")))?;
                self.go_to(moment);
                self.stopped = thread_of(self.turn(moment));
                return Ok(Moved::Yes);
            }
            ["work"] => {
                console.print("working\n");
                while !console.interrupted() {
                    std::hint::spin_loop();
                }
                console.print("gave up\n");
            }
            ["lose"] => return Err(Error::Lost("the engine has died".to_owned())),
            _ => return Err(Error::refused(format!("unknown command `{command}`"))),
        }
        Ok(Moved::No)
    }
}
