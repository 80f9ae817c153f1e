//! The words of the system call table: what a row, an argument and a length are.
//!
//! Guarantees: plain constant data; nothing here looks at memory. The meaning of each word for memory is given by
//! [`super::call::Call`], which is the only interpreter of these types.
//! Source: the x86-64 system call ABI and the `SYSCALL_DEFINE` prototypes of Linux.

use super::call::Call;
use super::structs::Struct;

/// The six argument registers: rdi, rsi, rdx, r10, r8, r9.
pub type Args = [u64; 6];

/// One system call.
#[derive(Clone, Copy)]
pub struct Row {
    pub nr: u16,
    pub name: &'static str,
    pub params: &'static [Param],
    pub class: Class,
    pub policy: Policy,
    pub(super) blocking: Blocking,
    /// Lists the memory behind every [`Kind::Shaped`] argument.
    pub(super) shape: Option<fn(&mut Call<'_>)>,
    /// Which of the parameters are descriptors, and which are pointers.
    pub(super) descriptors: Set,
    pub(super) pointers: Set,
}

/// Some of the parameters of a call, made once so that calls need not look at each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set(u8);

impl Set {
    pub(super) const fn of_descriptors(params: &[Param]) -> Set {
        let (mut set, mut i) = (0, 0);
        while i < params.len() {
            set |= (params[i].kind.is_descriptor() as u8) << i;
            i += 1;
        }
        Set(set)
    }

    pub(super) const fn of_pointers(params: &[Param]) -> Set {
        let (mut set, mut i) = (0, 0);
        while i < params.len() {
            set |= (params[i].kind.is_pointer() as u8) << i;
            i += 1;
        }
        Set(set)
    }

    /// The numbers of these parameters, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let next = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                next
            })
        })
    }
}

/// One argument of a system call.
#[derive(Clone, Copy)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
}

/// What an argument is. Pointers may be null; a null pointer stands for no memory.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A plain number: a size, an offset, a command, an option.
    Int,
    /// A file descriptor.
    Fd,
    /// A file descriptor of a folder to start from, or `AT_FDCWD`.
    DirFd,
    /// A set of flag bits.
    Flags,
    /// A file mode.
    Mode,
    /// A process, thread or process group.
    Pid,
    /// A signal number.
    Sig,
    /// A user, group, key, queue or timer.
    Id,
    /// A word that the kernel hands back later without looking behind it, or compares only.
    Cookie,
    /// Start of an address range whose mapping or residence changes; its length is in argument `.0`.
    /// The bytes themselves are neither read nor written.
    Range(u8),
    /// An address that the kernel remembers and uses after the call (thread id word, robust list, stack).
    Kept,
    /// A file name.
    Path,
    /// Any other string that ends with a zero byte.
    Text,
    /// A null-terminated array of strings.
    Argv,
    /// Memory that the call reads.
    In(Len),
    /// Memory that the call writes.
    Out(Len),
    /// Memory that the call reads, then writes.
    InOut(Len),
    /// A structure that the call reads.
    Read(Struct),
    /// A structure that the call writes.
    Write(Struct),
    /// A structure that the call reads, then writes.
    Both(Struct),
    /// The 32-bit length of the buffer in argument `.0`: room before, needed size after. Untouched where that is null.
    SockLen(u8),
    /// An array of `iovec`, its count in argument `.0`, whose buffers the call reads.
    IovecIn(u8),
    /// An array of `iovec`, its count in argument `.0`, whose buffers the call writes.
    IovecOut(u8),
    /// A pointer or a number, depending on other arguments: the row's shape function knows.
    Shaped,
    /// Passed, but ignored by the kernel.
    Unused,
}

/// How many bytes a pointer argument stands for. Argument numbers count from 0.
///
/// `Int` forms take the low half of the argument as a signed number (negative: no memory), as the kernel does.
/// `Upto` forms are a limit before the call; afterwards the result says how many bytes or items it was.
#[derive(Clone, Copy)]
pub enum Len {
    /// So many bytes, always.
    Bytes(u32),
    /// The value of an argument.
    Arg(u8),
    ArgInt(u8),
    /// The value of an argument; once the result is known, that many bytes.
    Upto(u8),
    UptoInt(u8),
    /// The value of an argument, times a size.
    Items(u8, u32),
    ItemsInt(u8, u32),
    /// The same; once the result is known, that many items.
    UptoItems(u8, u32),
    UptoItemsInt(u8, u32),
    /// What the 32-bit word at the argument's address says: room before, needed size after.
    Sock(u8),
    /// What the 32-bit word at this offset in the memory itself says; `zero` bytes where it says 0.
    Own {
        at: u8,
        zero: u32,
    },
    /// What a named function says.
    By(fn(&mut Call<'_>) -> u64),
}

/// What a call is about, for reports and for choosing what to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// File names and contents.
    File,
    /// Descriptors as such: dup, close, pipe, memfd.
    Descriptor,
    /// The address space.
    Memory,
    /// Processes: creation, end, groups, limits.
    Process,
    /// Threads and their scheduling.
    Thread,
    Signal,
    /// Clocks, sleeping, timers.
    Time,
    Network,
    /// System V and POSIX queues, semaphores, shared memory.
    Ipc,
    /// Waiting for several things: poll, epoll, inotify.
    Event,
    /// Users, groups, capabilities, keys, security modules.
    Identity,
    /// Questions about the system.
    Info,
    /// Administration: mounts, modules, reboot, quotas.
    System,
}

/// What the engine does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Made as it is.
    Pass,
    /// Implemented or wrapped by the engine.
    Engine,
    /// Not made; answered with this error, for this reason.
    Refuse(i32, &'static str),
}

/// Whether a call can sleep for as long as something outside pleases. Waiting for a disk does not count.
#[derive(Clone, Copy)]
pub enum Blocking {
    Never,
    /// While the descriptor in this argument has nothing to give or no room.
    OnFd(u8),
    /// While one of these two descriptors makes it wait.
    OnFds(u8, u8),
    /// While nobody opens the other end, if the name is that of a FIFO or a device that waits.
    Open,
    /// Until something happens, without limit.
    Always,
    /// Until something happens or this time has passed.
    Timed(Timeout),
    /// As this function of the arguments says; [`Row::blocking`] resolves it.
    When(fn(&Args) -> Blocking),
}

/// Where a call keeps its time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// An `int` of milliseconds; negative means no limit.
    Millis(u8),
    /// A pointer to seconds and microseconds; null means no limit.
    Timeval(u8),
    /// A pointer to seconds and nanoseconds; null means no limit.
    Timespec(u8),
    /// The same, but a point on the call's clock instead of a duration.
    Deadline(u8),
}

impl Kind {
    /// Whether the argument is a descriptor, so that the engine can hide its own.
    pub const fn is_descriptor(&self) -> bool {
        matches!(self, Kind::Fd | Kind::DirFd)
    }

    /// Whether the kernel follows the argument as an address during the call. `Shaped` ones may be.
    pub const fn is_pointer(&self) -> bool {
        !matches!(
            self,
            Kind::Int
                | Kind::Fd
                | Kind::DirFd
                | Kind::Flags
                | Kind::Mode
                | Kind::Pid
                | Kind::Sig
                | Kind::Id
                | Kind::Cookie
                | Kind::Range(_)
                | Kind::Kept
                | Kind::Unused
        )
    }
}

impl Row {
    /// The descriptors among the arguments, with their argument number. Negative ones (`AT_FDCWD`, none) are left out.
    pub fn descriptors<'a>(&'a self, args: &'a Args) -> impl Iterator<Item = (usize, i32)> + 'a {
        self.descriptors.iter().map(|i| (i, args[i] as i32)).filter(|(_, fd)| *fd >= 0)
    }

    /// The arguments that are addresses whatever the others say.
    pub fn pointers<'a>(&'a self, args: &'a Args) -> impl Iterator<Item = u64> + 'a {
        self.pointers.iter().filter(|i| !matches!(self.params[*i].kind, Kind::Shaped)).map(|i| args[i])
    }

    /// Whether this call can sleep, with what its arguments already tell taken into account.
    /// Never answers [`Blocking::When`].
    pub fn blocking(&self, args: &Args) -> Blocking {
        match self.blocking {
            Blocking::When(decide) => decide(args),
            fixed => fixed,
        }
    }
}

/// Writes rows as `number name(argument: kind, ...) class, blocking, policy[, shape];`.
macro_rules! rows {
    (@shape) => { None };
    (@shape $shape:path) => { Some($shape) };
    ($( $nr:literal $name:ident ( $( $arg:ident : $kind:expr ),* )
        $class:ident, $blocking:expr, $policy:expr $(, $shape:path)? ; )*) => {
        pub(super) const ROWS: &[Row] = &[ $( Row {
            nr: $nr,
            name: stringify!($name),
            params: &[ $( Param { name: stringify!($arg), kind: $kind } ),* ],
            class: Class::$class,
            policy: $policy,
            blocking: $blocking,
            shape: rows!(@shape $($shape)?),
            descriptors: super::row::Set::of_descriptors(&[ $( Param { name: stringify!($arg), kind: $kind } ),* ]),
            pointers: super::row::Set::of_pointers(&[ $( Param { name: stringify!($arg), kind: $kind } ),* ]),
        } ),* ];
    };
}
pub(super) use rows;
