//! The system call table: one row per x86-64 Linux call, and what a call does to memory.
//!
//! Guarantees: every call up to number 471 (newer than Linux 6.12) has a row with its arguments, whether it can sleep,
//! and what the engine does with it; [`row()`] finds it in constant time. [`memory`] lists all memory that a call reads
//! and writes, before it is made (what it may touch) or after (what it did touch); see [`call`] for how exact that is.
//! Pure data and pure functions: guest memory is reached only through the closure that the caller passes.
//! May miss: what [`misses`] names for a given call; calls of the x32 and 32-bit ABIs, which have no rows.
//! Source: the kernel's `syscall_64.tbl`, its `SYSCALL_DEFINE` prototypes and uapi headers.

pub mod blocking;
pub mod call;
pub mod errno;
pub mod ioctl;
mod ioctl_rows;
pub mod number;
pub mod row;
mod rows_000;
mod rows_100;
mod rows_200;
mod rows_300;
pub mod shape;
pub mod structs;
#[cfg(test)]
mod tests;

pub use blocking::Limit;
pub use call::{Call, Entry, MemoryUse};
pub use row::{Args, Blocking, Class, Kind, Len, Param, Policy, Row, Timeout};

/// The numbers go on here after a gap that was left for other architectures.
const RESUME: usize = 424;
/// The first number of the gap.
const GAP: usize = 337;
/// One more than the highest number.
const END: usize = 472;
const COUNT: usize = GAP + END - RESUME;

static ROWS: [Row; COUNT] = join([rows_000::ROWS, rows_100::ROWS, rows_200::ROWS, rows_300::ROWS]);

/// Puts the parts of the table together and makes sure, at compile time, that no number is missing or out of place.
const fn join(parts: [&[Row]; 4]) -> [Row; COUNT] {
    let mut rows = [parts[0][0]; COUNT];
    let mut filled = 0;
    let mut part = 0;
    while part < parts.len() {
        let mut i = 0;
        while i < parts[part].len() {
            let row = parts[part][i];
            assert!(row.nr as usize == if filled < GAP { filled } else { RESUME + filled - GAP });
            rows[filled] = row;
            filled += 1;
            i += 1;
        }
        part += 1;
    }
    assert!(filled == COUNT);
    rows
}

/// The row of a system call, or `None` where the kernel has no such call and answers `ENOSYS`.
/// Like the kernel, only the low half of the register counts.
pub fn row(nr: u64) -> Option<&'static Row> {
    match nr as u32 as usize {
        nr @ 0..GAP => Some(&ROWS[nr]),
        nr @ RESUME..END => Some(&ROWS[GAP + nr - RESUME]),
        _ => None,
    }
}

/// Every row, in order.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// Lists the memory that a call reads and writes: all it may touch if it has no `result` yet, else what it touched.
///
/// `read_word` answers the little-endian word of 1, 2, 4 or 8 bytes at an address, or `None` where there is no guest
/// memory. Uses come in argument order and may overlap; bytes that are read and written are listed twice.
pub fn memory(
    row: &Row,
    args: &Args,
    result: Option<i64>,
    read_word: &mut dyn FnMut(u64, u64) -> Option<u64>,
    sink: &mut dyn FnMut(MemoryUse),
) {
    memory_with(row, args, result, &mut Entry::new(), read_word, sink);
}

/// Like [`memory`], but exact also where a call overwrites the word that limited it: pass the same fresh `entry` before
/// the call and after it.
// Every call of a guest comes through here twice: passing both functions on the stack would make it wait for them.
#[inline(always)]
pub fn memory_with(
    row: &Row,
    args: &Args,
    result: Option<i64>,
    entry: &mut Entry,
    read_word: &mut dyn FnMut(u64, u64) -> Option<u64>,
    sink: &mut dyn FnMut(MemoryUse),
) {
    let mut call = Call { args, result, entry, read_word, sink };
    for i in row.pointers.iter() {
        call.argument(i, row.params[i].kind);
    }
    if let Some(shape) = row.shape {
        shape(&mut call);
    }
}

/// Lists the address ranges whose mapping a call changes or asks about: start and length in bytes, as given.
/// Addresses that are only a wish (mmap without `MAP_FIXED`) are left out, and so are empty ranges.
pub fn ranges(row: &Row, args: &Args, sink: &mut dyn FnMut(u64, u64)) {
    const MAP_FIXED: u64 = 0x10;
    const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
    const MREMAP_FIXED: u64 = 2;
    for (i, param) in row.params.iter().enumerate() {
        let Kind::Range(len) = param.kind else { continue };
        let wish = match u64::from(row.nr) {
            number::MMAP => args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0,
            number::MREMAP if i == 4 => args[3] & MREMAP_FIXED == 0,
            _ => false,
        };
        let len = args[len as usize];
        if !wish && len != 0 {
            sink(args[i], len);
        }
    }
}

/// What [`memory`] does not list of this call, in one sentence; `None` if it lists everything.
pub fn misses(row: &Row, args: &Args) -> Option<&'static str> {
    use shape::net::option;
    const ZEROCOPY: u64 = 0x400_0000;
    const LATER: &str = "a zero-copy send reads its buffers after the call";
    match u64::from(row.nr) {
        number::IOCTL if !ioctl::known(args[1] as u32) => {
            Some("of an ioctl request that is not in the table only the size in its number is known")
        }
        number::BPF => Some("pointers inside the attributes of bpf are not followed"),
        number::SEMCTL if matches!(args[2] & 0xffff_ffff, shape::ipc::GETALL | shape::ipc::SETALL) => {
            Some("only the kernel knows how many semaphores a set has")
        }
        number::SETSOCKOPT | number::GETSOCKOPT => match (args[1] as u32 as u64, args[2] as u32 as u64) {
            (option::SOL_IP | option::SOL_IPV6, option::TABLES..) => {
                Some("socket options of the packet filter tables hold further pointers")
            }
            (option::SOL_TCP, option::TCP_ZEROCOPY_RECEIVE) => Some("zero-copy receiving maps pages of the kernel"),
            _ => None,
        },
        number::SENDMSG if args[2] & ZEROCOPY != 0 => Some(LATER),
        number::SENDTO | number::SENDMMSG if args[3] & ZEROCOPY != 0 => Some(LATER),
        number::VMSPLICE => Some("pages given to a pipe can be read after the call"),
        number::PROCESS_VM_READV | number::PROCESS_VM_WRITEV => {
            Some("the remote ranges are memory of the caller too if it names its own process")
        }
        _ => None,
    }
}
