//! A replay that begins in the middle of a run: the address space and the threads are made from the records behind the
//! start, instead of loading a program.
//!
//! Mappings are made writable, filled, and then given their rights. Kept files are mapped; shared memory becomes files in
//! memory, as everywhere in a replay.

use super::memory::{self, SharedFile};
use super::source::{Source, open_kept};
use super::threads::Context;
use super::{calls, replay};
use crate::gate::{self, Gate};
use crate::load::{LoadError, Loaded, stack::StackImage};
use crate::memory::{Memory, Vma, kernel_prot, object_of};
use crate::signals::{Action, xstate};
use crate::start::Made;
use crate::state::Engine;
use crate::sys::{self, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, nr};
use crate::threads::Thread;
use crate::threads::record::AltStack;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use model::log::{self, Bytes, FileRecord, Kind};
use model::region::{MapRecord, ProcessRecord, ThreadRecord};

/// What a replay goes on with once there is an engine.
pub struct Region {
    tick: u64,
    process: ProcessRecord,
    threads: Vec<ThreadRecord>,
    pub shared: Vec<SharedFile>,
}

/// The address space while it is being made.
struct Making<'a> {
    folder: i32,
    memory: &'a mut Memory,
    /// Keys of kept files by number.
    files: Vec<(u32, String)>,
    shared: Vec<SharedFile>,
    /// Which of them an object has become.
    objects: Vec<([u64; 2], usize)>,
    rights: Vec<(u64, u64, u8)>,
}

impl Source {
    /// Makes the guest as it was when the region at `tick` began.
    pub fn load_region(&mut self, tick: u64, memory: &mut Memory) -> Result<Made, LoadError> {
        let mut making = Making {
            folder: self.config.files_fd,
            memory,
            files: Vec::new(),
            shared: Vec::new(),
            objects: Vec::new(),
            rights: Vec::new(),
        };
        let log = self.logs[0];
        let (mut process, mut threads) = (None, Vec::new());
        let mut at = log::record(log).map_or(0, |raw| raw.len);
        while let Ok(raw) = log::record(&log[at..]) {
            match raw.kind {
                Kind::Process => process = ProcessRecord::decode(raw.payload),
                Kind::File => making.files.extend(FileRecord::decode(raw.payload).map(|f| (f.id, f.key))),
                Kind::Map => making.map(&MapRecord::decode(raw.payload).ok_or_else(damaged)?)?,
                Kind::Memory => {
                    let b = Bytes::decode(raw.payload).ok_or_else(damaged)?;
                    sys::write_guest(b.addr, b.bytes);
                }
                Kind::Thread => threads.push(ThreadRecord::decode(raw.payload).ok_or_else(damaged)?),
                Kind::Content | Kind::Descriptor | Kind::Inexact | Kind::Feature => {}
                _ => break,
            }
            at += raw.len;
        }
        making.give_rights();
        let shared = making.shared;
        let (Some(process), Some(first)) = (process, threads.first()) else { return Err(damaged()) };
        [memory.brk, memory.brk_start] = process.brk;
        memory.stack = process.stack[0]..process.stack[1];
        let sp = first.gpr[4];
        let (bias, entry, program) = (process.bias, process.entry, process.program);
        let loaded = Loaded { bias, entry, program, sp, xstate: xstate::Layout::detect() };
        let auxv = process.auxv[0]..process.auxv[1];
        self.region = Some(Region { tick, process, threads, shared });
        Ok(Made {
            loaded,
            image: StackImage { bytes: Vec::new(), start: sp, args: 0..0, env: 0..0, auxv },
            exe: self.start.exe.clone(),
            program: None,
            interpreter: None,
            execfn: self.start.execfn.clone(),
            stack_limit: self.start.stack_limit,
        })
    }
}

fn damaged() -> LoadError {
    LoadError { errno: sys::err::EINVAL, message: "the state at the beginning of the region is damaged".into() }
}

impl Making<'_> {
    fn map(&mut self, m: &MapRecord) -> Result<(), LoadError> {
        let len = m.end.saturating_sub(m.start);
        if len == 0 || model::layout::touches_engine(m.start, len) {
            return Err(damaged());
        }
        let key = self.files.iter().find(|(id, _)| m.kept != 0 && *id == m.kept).map(|(_, key)| key.clone());
        let mut vma = Vma { shared: m.shared, file: m.file, offset: m.offset, ..Vma::anonymous(m.prot.into()) };
        let rights = PROT_READ | PROT_WRITE;
        let mapped = if m.shared {
            let index = self.shared_object(m, key);
            vma.object = Some(memory::shared_object(index));
            map(m.start, len, rights, MAP_SHARED, self.shared[index].fd() as u64, m.offset)
        } else if let Some(key) = key {
            let fd = open_kept(self.folder, &key);
            vma.object = object_of(fd as u64);
            let mapped = map(m.start, len, rights, MAP_PRIVATE, fd as u64, m.offset);
            // SAFETY: our own descriptor.
            unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
            mapped
        } else {
            map(m.start, len, rights, MAP_PRIVATE | MAP_NORESERVE | sys::MAP_ANONYMOUS, u64::MAX, 0)
        };
        if sys::is_err(mapped) {
            let message = alloc::format!("memory at {:#x} cannot be mapped as it was (error {})", m.start, -mapped);
            return Err(LoadError { errno: -mapped, message });
        }
        self.rights.push((m.start, len, m.prot));
        self.memory.insert(m.start..m.end, vma);
        Ok(())
    }

    /// The file in memory behind a shared mapping.
    fn shared_object(&mut self, m: &MapRecord, key: Option<String>) -> usize {
        if let Some(key) = key {
            return memory::shared_file(&mut self.shared, self.folder, &key);
        }
        let size = m.offset + (m.end - m.start);
        let known = m.object.and_then(|o| self.objects.iter().find(|(known, _)| *known == o));
        if let Some((_, index)) = known {
            memory::grow(&mut self.shared[*index], size);
            return *index;
        }
        // Named as kept files are, so that a later mapping of the file finds it.
        let name = m.object.filter(|_| m.file).map(|[dev, ino]| alloc::format!("{dev:x}-{ino:x}"));
        let index = memory::shared_memory(&mut self.shared, name, size);
        self.objects.extend(m.object.map(|o| (o, index)));
        index
    }

    fn give_rights(&self) {
        for (start, len, prot) in &self.rights {
            // SAFETY: guest memory just mapped.
            unsafe { sys::raw3(nr::MPROTECT, *start, *len, kernel_prot(u64::from(*prot))) };
        }
    }
}

fn map(at: u64, len: u64, prot: u64, kind: u64, fd: u64, offset: u64) -> i64 {
    // SAFETY: guest memory at its recorded place; nothing else has been mapped there yet.
    unsafe { sys::raw(nr::MMAP, [at, len, prot, kind | MAP_FIXED, fd, offset]) }
}

/// The engine goes on where the recording began.
pub fn restore(e: &mut Engine, t: &mut Thread, region: Region) {
    // SAFETY: the baton is held.
    let g = unsafe { gate::gate() };
    e.clock.begin_at(region.tick);
    e.stats.threads = region.process.threads;
    for (signal, [handler, flags, restorer, mask]) in region.process.actions {
        if (1..=64).contains(&signal) {
            e.actions.set(signal, Action { handler, flags, restorer, mask });
        }
    }
    let layout = e.loaded.xstate;
    let mut threads = region.threads.into_iter();
    let running = threads.next();
    for record in threads {
        let mut context = Box::new(Context {
            thread: t.copy(),
            in_call: record.call.map(calls::InCall::waiting),
            fs: record.fs,
            area: area(&record),
            left: None,
        });
        fill(&mut context.thread, &record);
        replay(e).threads.insert(record.serial, context);
    }
    if let Some(record) = running {
        fill(t, &record);
        resume(layout, t, g, &record);
    }
}

fn resume(layout: xstate::Layout, t: &mut Thread, g: &mut Gate, record: &ThreadRecord) {
    gate::set_fs_base(record.fs);
    crate::threads::load(t);
    xstate::restore(layout, g, &mut area(record));
}

fn area(record: &ThreadRecord) -> xstate::Area {
    let mut area = xstate::Area([0; xstate::MAX + 64]);
    let n = record.extended.len().min(xstate::MAX);
    area.0[..n].copy_from_slice(&record.extended[..n]);
    area
}

fn fill(t: &mut Thread, record: &ThreadRecord) {
    (t.serial, t.tid) = (record.serial, record.tid);
    let s = &mut t.saved;
    (s.gpr, s.pc, s.rflags) = (record.gpr, record.pc, record.rflags);
    (s.hidden_flags, s.guest_gs) = (record.hidden_flags, record.gs);
    (t.mask, t.restore_mask, t.held) = (record.mask, record.restore_mask, record.held);
    let [sp, flags, size] = record.alt_stack;
    t.alt_stack = AltStack { sp, flags: flags as u32, size };
    t.clear_tid = record.clear_tid;
    [t.robust_list, t.robust_len] = record.robust;
}
