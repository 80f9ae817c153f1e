//! From the kernel's first instruction to the guest's first instruction.
//!
//! The engine copies what the kernel left on the stack, moves to a stack of its own, unmaps the kernel's stack and vDSO (so
//! that the guest's addresses are always free), loads the program and enters it.

use crate::address_map::AddressMap;
use crate::cache::Cache;
use crate::code_pages::CodePages;
use crate::files::HiddenFds;
use crate::gate::{self, GATE_BYTES};
use crate::load::{self, Inherited, LoadError};
use crate::memory::{Memory, page_down};
use crate::probes::{self, Probes};
use crate::procfs::read_file;
use crate::record::unit::Sources;
use crate::report::Control;
use crate::shared_page::{self, Words};
use crate::signals::{Actions, FAULTS, apply_mask};
use crate::state::{self, Clock, Engine};
use crate::sys::{self, PROT_READ, PROT_WRITE, nr};
use crate::threads::{Thread, sched};
use crate::tracer::{Position, Tracer};
use crate::translate::{Decoded, Emitter, Translation};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use model::Mode;
use model::layout::{self, COUNTERS, GATE, SHARED, STACK_TOP};
use model::wire::{Config, Report, Stats};

/// The engine's name when the host starts it, and when an engine starts it for an `execve` of its guest.
pub const FIRST: &[u8] = b"clew-engine";
pub const LATER: &[u8] = b"clew-image\0";

/// What the kernel handed over.
struct Handed {
    argv: Vec<Vec<u8>>,
    inherited: Inherited,
}

/// The engine's entry, on the kernel's stack.
///
/// # Safety
/// `sp` is the stack pointer the kernel started the process with.
pub unsafe fn enter(sp: *const u64) -> ! {
    // SAFETY: by the caller.
    let handed = Box::new(unsafe { read_initial_stack(sp) });
    for (at, len) in [(GATE, GATE_BYTES + probes::COUNTER_BYTES), (SHARED, 4096)] {
        if sys::map_engine(at, len.next_multiple_of(4096), PROT_READ | PROT_WRITE).is_err() {
            give_up(NO_TABLES);
        }
    }
    let Ok(t) = Thread::create(0, true) else { give_up(NO_TABLES) };
    // SAFETY: asks for our id.
    t.tid = unsafe { sys::raw3(nr::GETTID, 0, 0, 0) } as u32;
    t.task = 1;
    let top = t.engine_stack();
    let arg = Box::into_raw(handed);
    // SAFETY: goes to a fresh stack and never comes back.
    unsafe {
        core::arch::asm!("mov rsp, {top}", "xor ebp, ebp", "call {next}", "ud2", top = in(reg) top, next = sym on_own_stack,
            in("rdi") arg, options(noreturn))
    }
}

extern "C" fn on_own_stack(handed: *mut Handed) -> ! {
    // SAFETY: made by `enter`.
    let mut handed = unsafe { Box::from_raw(handed) };
    let t = Thread::current();
    leave_kernel_mappings();
    let config = read_config(&handed.argv);
    let first = handed.argv[0] == FIRST;
    prepare_task(t, &handed.inherited, &config);
    let hidden = HiddenFds::settle(&config);
    let control = Control { fd: hidden.control };
    if first {
        leave_host(&config, &control);
    }
    // SAFETY: asks for our id.
    let pid = unsafe { sys::raw3(nr::GETPID, 0, 0, 0) } as u32;
    let refuse = |e: LoadError| -> ! {
        let status = if e.errno == sys::err::ENOENT { 127 } else { 126 };
        control.send(pid, Report::NotLoaded { status, message: e.message });
        sys::exit_group(status as u64)
    };
    let mut memory = Memory::default();
    let mut recording = crate::replay::Source::open(&config, hidden.folder).unwrap_or_else(|why| give_up(&why));
    let made = match &mut recording {
        Some(source) => source.load(&mut handed.inherited, &config, &mut memory),
        None => load_program(&mut handed, &config, &mut memory),
    };
    let Made { loaded, image, exe, program, interpreter, execfn, stack_limit } = made.unwrap_or_else(|e| refuse(e));
    set_identity(&exe, &image);
    // An image that another one became starts with everything blocked: no signal may come to it in between.
    let mask = if first { kernel_mask() } else { config.inherited_blocked };
    let mask = recording.as_ref().map_or(mask, |source| source.start.blocked);
    t.mask = mask & !crate::signals::NEVER_BLOCKED | config.inherited_blocked & FAULTS;

    let e = make_engine(config, memory, loaded, exe, hidden, pid);
    e.auxv = image.auxv.clone();
    e.first = first;
    let probes = e.config.probes.clone();
    e.probes.arm(&probes, loaded.bias);
    state::install(e);
    // SAFETY: just installed; this is the only thread.
    let e = unsafe { state::engine() };
    e.clock.refill(e.seeded());
    e.chaos.on = e.config.record.as_ref().is_some_and(|r| r.chaos.is_some());
    if let Some(program) = &program {
        let (interpreter, inherited) = (interpreter.as_ref(), &handed.inherited);
        e.begin_recording(t, &Sources { program, interpreter, inherited, execfn: &execfn, stack_limit });
    }
    let identity = crate::pool::identity(program.as_ref(), interpreter.as_ref());
    drop((program, interpreter));
    e.adopt_translations(identity);
    e.control.send(pid, Report::Started { exe: e.exe.clone(), bias: loaded.bias });
    if e.mode == Mode::Trace && e.open_trace().is_err() {
        give_up(NO_TRACE);
    }
    // SAFETY: the gate has been mapped; the baton is held.
    let g = unsafe { gate::gate() };
    g.gpr = [0; 16];
    g.gpr[4] = loaded.sp;
    g.pc = loaded.entry;
    if let Some(source) = recording {
        crate::replay::begin(e, t, source);
    }
    apply_mask(t);
    crate::vault::begin();
    crate::run::run(t)
}

/// Segment bases, signal stack, baton: what a kernel task needs to run guest code.
fn prepare_task(t: &mut Thread, inherited: &Inherited, config: &Config) {
    const AT_HWCAP2: u64 = 26;
    const HWCAP2_FSGSBASE: u64 = 2;
    if !inherited.auxv.iter().any(|(key, value)| *key == AT_HWCAP2 && value & HWCAP2_FSGSBASE != 0) {
        give_up("the FSGSBASE instructions are not enabled; Linux 5.9 or later is needed");
    }
    gate::attach();
    gate::set_fs_base(0);
    t.install_signal_stack();
    // SAFETY: the gate has been mapped.
    let g = unsafe { gate::gate() };
    g.exit_code = gate::code().exit;
    g.rflags = 0x202;
    sched().begin(t);
    let chaos = config.record.as_ref().and_then(|r| r.chaos);
    sched().rng.store(config.seed.or(chaos).map_or(0, |s| Clock::seeded(s).random() | 1), Relaxed);
    let clocked = config.seed.is_some() || config.record.is_some() || config.replay.is_some();
    sched().ticking.store(state::ticks(config.mode, clocked) as u32, Relaxed);
}

/// Undoes what being started by the host has done to the process, and ties it to the host if that is wanted.
fn leave_host(config: &Config, control: &Control) {
    // The host's C library leaves its two internal signals ignored in a process it spawns.
    for signal in [32, 33] {
        crate::signals::actions::tell_kernel(signal, crate::signals::actions::SIG_DFL, 0);
    }
    if config.dies_with_host {
        die_with_parent(control);
    }
}

/// This process is killed when its parent ends. The kernel forgets that at a fork, so each copy asks for itself.
pub fn die_with_parent(control: &Control) {
    // SAFETY: asks to be killed (9) when the parent ends (PR_SET_PDEATHSIG, 1).
    unsafe { sys::raw3(nr::PRCTL, 1, 9, 0) };
    // It may have ended before it was asked for.
    if control.host_is_gone() {
        sys::exit_group(125);
    }
}

/// A program in memory, and what it was made from.
pub struct Made {
    pub loaded: load::Loaded,
    pub image: load::stack::StackImage,
    pub exe: String,
    /// Nothing for a replay that begins in the middle of a run.
    pub program: Option<load::Program>,
    pub interpreter: Option<load::Program>,
    pub execfn: Vec<u8>,
    pub stack_limit: u64,
}

/// Brings the program into memory.
fn load_program(handed: &mut Handed, config: &Config, memory: &mut Memory) -> Result<Made, LoadError> {
    if handed.argv.len() < 4 {
        give_up("started without a program");
    }
    let path = handed.argv[2].clone();
    let guest_argv = handed.argv.split_off(3);
    if let Some(seed) = config.seed {
        let mut c = Clock::seeded(seed);
        for b in &mut handed.inherited.random {
            *b = c.random() as u8;
        }
    }
    let program = load::open(-100i64 as u64, &path, &guest_argv)?;
    let interpreter = load::interpreter_of(&program)?;
    let stack_limit = load::stack_limit();
    let (loaded, image) =
        load::load(&program, &path, &handed.inherited, config, memory, interpreter.as_ref(), stack_limit)?;
    let exe = absolute(&program.path);
    Ok(Made { loaded, image, exe, program: Some(program), interpreter, execfn: path, stack_limit })
}

/// The engine of this process, before its guest has run.
fn make_engine(
    config: Config,
    memory: Memory,
    loaded: load::Loaded,
    exe: String,
    hidden: HiddenFds,
    pid: u32,
) -> &'static mut Engine {
    let cache = Cache::new().unwrap_or_else(|_| give_up(NO_CACHE));
    let counting = config.mode == Mode::Count || config.coverage;
    if counting && map_counters().is_err() {
        give_up(NO_COUNTERS);
    }
    // SAFETY: the page is mapped; this is called once.
    let words = unsafe {
        shared_page::put(Words {
            stats: Stats { threads: 1, ..Stats::default() },
            clock: Clock::seeded(config.seed.or(config.record.as_ref().and_then(|r| r.chaos)).unwrap_or(1)),
            stopped: None,
            missed_at: None,
            trace: Position::default(),
            log: Default::default(),
            elsewhere: Default::default(),
        })
    };
    let dies_quietly = config.mode != Mode::Trace && !config.stats && !config.coverage && config.record.is_none();
    Box::leak(Box::new(Engine {
        mode: config.mode,
        memory,
        cache,
        emitter: Emitter::default(),
        decoded: Decoded::default(),
        translation: Translation::default(),
        pages: CodePages::default(),
        actions: Actions::start(config.inherited_ignored, !dies_quietly),
        control: Control { fd: hidden.control },
        hidden,
        probes: Probes::default(),
        tracer: Tracer::new(config.sink, &mut words.trace),
        stats: &mut words.stats,
        clock: &mut words.clock,
        stopped: &mut words.stopped,
        missed_at: &mut words.missed_at,
        checked_sites: AddressMap::default(),
        checked_only: false,
        count_correction: 0,
        exe,
        pid,
        thread_regions: 1,
        free_regions: Vec::new(),
        vfork: None,
        packet: Vec::new(),
        belted: false,
        filters: Default::default(),
        notes: Vec::new(),
        loaded,
        readable: [0; 4],
        counters_mapped: counting,
        coverage: Vec::new(),
        auxv: 0..0,
        kept: Vec::new(),
        copies: 0,
        opened: Default::default(),
        chaos: Default::default(),
        region: Default::default(),
        features: [0; 4],
        feature_records: Vec::new(),
        first: false,
        identity: None,
        inexact: Vec::new(),
        shares_memory: false,
        replay: None,
        trial: None,
        prepared: Default::default(),
        looks: Default::default(),
        config,
    }))
}

/// Maps the counters of blocks and taken branches.
pub fn map_counters() -> Result<(), i64> {
    sys::map_engine(COUNTERS.start, COUNTERS.end - COUNTERS.start, PROT_READ | PROT_WRITE)
}

const NO_TABLES: &str = "no memory for the engine's tables; is there a limit on virtual memory (ulimit -v)?";
const NO_CACHE: &str = "no memory for the code cache; is there a limit on virtual memory (ulimit -v)?";
const NO_COUNTERS: &str = "no memory for block counters; is there a limit on virtual memory (ulimit -v)?";
const NO_TRACE: &str = "no memory for trace buffers; is there a limit on virtual memory (ulimit -v)?";

/// There is no way on, and nobody to report to yet: says so on the standard error stream.
fn give_up(what: &str) -> ! {
    let text = alloc::format!("clew: {what}\n");
    // SAFETY: writes our own text.
    unsafe { sys::raw3(nr::WRITE, 2, text.as_ptr() as u64, text.len() as u64) };
    sys::exit_group(125)
}

/// # Safety
/// `sp` points at argc as the kernel left it.
unsafe fn read_initial_stack(sp: *const u64) -> Handed {
    let word = |n: usize| {
        // SAFETY: within the block the kernel wrote, which ends with AT_NULL.
        unsafe { *sp.add(n) }
    };
    let string = |p: u64| {
        let mut v = Vec::new();
        let mut at = p as *const u8;
        // SAFETY: the kernel's strings end in zero.
        unsafe {
            while *at != 0 {
                v.push(*at);
                at = at.add(1);
            }
        }
        v
    };
    let argc = word(0) as usize;
    let argv = (0..argc).map(|n| string(word(1 + n))).collect();
    let mut n = argc + 2;
    let mut envp = Vec::new();
    while word(n) != 0 {
        envp.push(string(word(n)));
        n += 1;
    }
    n += 1;
    let mut auxv = Vec::new();
    let mut random = [0; 16];
    while word(n) != 0 {
        let (key, value) = (word(n), word(n + 1));
        if key == 25 {
            // SAFETY: AT_RANDOM points at sixteen bytes.
            random = unsafe { *(value as *const [u8; 16]) };
        }
        auxv.push((key, value));
        n += 2;
    }
    Handed { argv, inherited: Inherited { envp, auxv, random } }
}

/// Unmaps everything the kernel mapped that is not the engine: its stack, vDSO, vvar.
fn leave_kernel_mappings() {
    let maps = read_file(b"/proc/self/maps\0");
    if maps.is_empty() {
        // Without /proc the guest's stack goes below the kernel's.
        return;
    }
    for line in maps.split(|b| *b == b'\n') {
        let Ok(line) = core::str::from_utf8(line) else { continue };
        let Some((lo, hi)) = line.split(' ').next().and_then(|r| r.split_once('-')) else { continue };
        let (Ok(lo), Ok(hi)) = (u64::from_str_radix(lo, 16), u64::from_str_radix(hi, 16)) else { continue };
        if !layout::touches_engine(lo, hi - lo) && hi <= STACK_TOP + 4096 {
            // SAFETY: nothing of the engine lies there; the stack in use is its own.
            unsafe { sys::raw3(nr::MUNMAP, page_down(lo), hi - lo, 0) };
        }
    }
}

fn read_config(argv: &[Vec<u8>]) -> Config {
    let number = argv.get(1).and_then(|a| core::str::from_utf8(a).ok()).and_then(|s| s.parse::<u64>().ok());
    let Some(fd) = number else { give_up("started without a configuration") };
    let mut bytes = alloc::vec![0u8; 1 << 16];
    let mut len = 0;
    loop {
        // SAFETY: reads into our own buffer.
        let n = unsafe {
            let rest = &mut bytes[len..];
            sys::raw(nr::PREAD64, [fd, rest.as_mut_ptr() as u64, rest.len() as u64, len as u64, 0, 0])
        };
        if n <= 0 {
            break;
        }
        len += n as usize;
        if len == bytes.len() {
            bytes.resize(len * 2, 0);
        }
    }
    // SAFETY: our own descriptor, read.
    unsafe { sys::raw3(nr::CLOSE, fd, 0, 0) };
    Config::decode(&bytes[..len]).unwrap_or_else(|| give_up("started with a configuration it does not understand"))
}

/// The path that `/proc/self/exe` would show.
fn absolute(path: &[u8]) -> String {
    let mut name = path.to_vec();
    name.push(0);
    // SAFETY: opens a path only to learn its canonical name (O_PATH | O_CLOEXEC).
    let fd = unsafe { sys::raw3(nr::OPEN, name.as_ptr() as u64, 0o10000000 | 0x8_0000, 0) };
    if sys::is_err(fd) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let link = crate::procfs::link_of(fd as u64);
    // SAFETY: our own descriptor.
    unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
    String::from_utf8_lossy(&link.unwrap_or_else(|| path.to_vec())).into_owned()
}

/// Makes the process look like the guest from outside: name, command line, environment.
fn set_identity(exe: &str, image: &load::stack::StackImage) {
    let base = exe.rsplit('/').next().unwrap_or(exe);
    let mut name = [0u8; 16];
    let n = base.len().min(15);
    name[..n].copy_from_slice(&base.as_bytes()[..n]);
    // struct prctl_mm_map; code, data and brk ranges must be valid user addresses in order.
    let map: [u64; 13] = [
        layout::PIE_BASE,
        layout::PIE_BASE + 1,
        layout::PIE_BASE,
        layout::PIE_BASE + 1,
        layout::BRK.start,
        layout::BRK.start,
        image.start,
        image.args.start,
        image.args.end,
        image.env.start,
        image.env.end,
        image.auxv.start,
        (image.auxv.end - image.auxv.start) | (u32::MAX as u64) << 32,
    ];
    // SAFETY: descriptive only; refused harmlessly where the kernel does not allow it.
    unsafe {
        sys::raw3(nr::PRCTL, 15, name.as_ptr() as u64, 0);
        sys::raw(nr::PRCTL, [35, 14, map.as_ptr() as u64, size_of_val(&map) as u64, 0, 0]);
    }
}

fn kernel_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, [0, 0, &raw mut mask as u64, 8, 0, 0]) };
    mask
}
