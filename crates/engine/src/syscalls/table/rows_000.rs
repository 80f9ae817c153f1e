//! System calls 0 to 99. A row's form is explained at `rows!`.

use super::blocking;
use super::row::{Blocking::*, Class, Kind::*, Len::*, Param, Policy::*, Row, Timeout::*, rows};
use super::shape::{events, files, ipc, memory, net, task};
use super::structs::*;

rows! {
    0 read(fd: Fd, buf: Out(Upto(2)), count: Int) File, OnFd(0), Pass;
    1 write(fd: Fd, buf: In(Upto(2)), count: Int) File, OnFd(0), Pass;
    // Names under /proc/self must show the guest, not the engine: every call that looks a name up is the engine's.
    2 open(path: Path, flags: Flags, mode: Mode) File, When(blocking::open), Engine;
    // The engine's own descriptors are hidden from calls that close or replace descriptors.
    3 close(fd: Fd) Descriptor, Never, Engine;
    4 stat(path: Path, buf: Write(STAT)) File, Never, Engine;
    5 fstat(fd: Fd, buf: Write(STAT)) File, Never, Pass;
    6 lstat(path: Path, buf: Write(STAT)) File, Never, Engine;
    7 poll(fds: Shaped, count: Int, timeout: Int) Event, When(blocking::poll), Pass, events::poll;
    8 lseek(fd: Fd, offset: Int, whence: Int) File, Never, Pass;
    // Mappings are the engine's: it keeps the map, places them, and drops translations of what changes.
    9 mmap(addr: Range(1), len: Int, prot: Flags, flags: Flags, fd: Fd, offset: Int) Memory, Never, Engine;
    10 mprotect(addr: Range(1), len: Int, prot: Flags) Memory, Never, Engine;
    11 munmap(addr: Range(1), len: Int) Memory, Never, Engine;
    12 brk(addr: Int) Memory, Never, Engine;
    // Signal masks, handlers and frames are virtual.
    13 rt_sigaction(sig: Sig, new: Read(SIGACTION), old: Write(SIGACTION), size: Int) Signal, Never, Engine;
    14 rt_sigprocmask(how: Int, new: Read(SIGSET), old: Write(SIGSET), size: Int) Signal, Never, Engine;
    15 rt_sigreturn() Signal, Never, Engine;
    16 ioctl(fd: Fd, request: Int, arg: Shaped) File, When(blocking::ioctl), Pass, super::ioctl::ioctl;
    17 pread64(fd: Fd, buf: Out(Upto(2)), count: Int, offset: Int) File, OnFd(0), Pass;
    18 pwrite64(fd: Fd, buf: In(Upto(2)), count: Int, offset: Int) File, OnFd(0), Pass;
    19 readv(fd: Fd, iov: IovecOut(2), count: Int) File, OnFd(0), Pass;
    20 writev(fd: Fd, iov: IovecIn(2), count: Int) File, OnFd(0), Pass;
    21 access(path: Path, mode: Mode) File, Never, Engine;
    22 pipe(fds: Write(PAIR)) Descriptor, Never, Pass;
    23 select(count: Int, read: Shaped, write: Shaped, except: Shaped, timeout: Shaped)
        Event, Timed(Timeval(4)), Pass, events::select;
    // The scheduler is the engine's.
    24 sched_yield() Thread, Never, Engine;
    25 mremap(old: Range(1), old_len: Int, new_len: Int, flags: Flags, new: Range(2)) Memory, Never, Engine;
    26 msync(addr: Range(1), len: Int, flags: Flags) Memory, Never, Pass;
    // Engine memory must look unmapped.
    27 mincore(addr: Range(1), len: Int, answers: Shaped) Memory, Never, Engine, memory::mincore;
    28 madvise(addr: Range(1), len: Int, advice: Int) Memory, Never, Engine;
    29 shmget(key: Int, size: Int, flags: Flags) Ipc, Never, Pass;
    30 shmat(id: Id, addr: Kept, flags: Flags) Memory, Never, Engine;
    31 shmctl(id: Id, command: Int, buf: Shaped) Ipc, Never, Pass, ipc::shmctl;
    32 dup(fd: Fd) Descriptor, Never, Pass;
    33 dup2(old: Fd, new: Fd) Descriptor, Never, Engine;
    34 pause() Signal, Always, Engine;
    // Time is virtual when a seed is given.
    35 nanosleep(time: Read(TIMESPEC), rest: Shaped) Time, Timed(Timespec(0)), Engine, events::nanosleep;
    36 getitimer(which: Int, value: Write(ITIMERVAL)) Time, Never, Pass;
    37 alarm(seconds: Int) Time, Never, Pass;
    38 setitimer(which: Int, new: Read(ITIMERVAL), old: Write(ITIMERVAL)) Time, Never, Pass;
    39 getpid() Process, Never, Pass;
    40 sendfile(out: Fd, input: Fd, offset: Both(OFFSET), count: Int) File, OnFds(0, 1), Pass;
    41 socket(domain: Int, kind: Int, protocol: Int) Network, Never, Pass;
    42 connect(fd: Fd, addr: In(ArgInt(2)), len: Int) Network, OnFd(0), Pass;
    43 accept(fd: Fd, addr: Out(Sock(2)), len: SockLen(1)) Network, OnFd(0), Pass;
    44 sendto(fd: Fd, buf: In(Upto(2)), count: Int, flags: Flags, addr: In(ArgInt(5)), addr_len: Int)
        Network, When(blocking::datagram), Pass;
    45 recvfrom(fd: Fd, buf: Out(Upto(2)), count: Int, flags: Flags, addr: Out(Sock(5)), addr_len: SockLen(4))
        Network, When(blocking::datagram), Pass;
    46 sendmsg(fd: Fd, message: Shaped, flags: Flags) Network, When(blocking::message), Pass, net::sendmsg;
    47 recvmsg(fd: Fd, message: Shaped, flags: Flags) Network, When(blocking::message), Pass, net::recvmsg;
    48 shutdown(fd: Fd, how: Int) Network, Never, Pass;
    49 bind(fd: Fd, addr: In(ArgInt(2)), len: Int) Network, Never, Pass;
    50 listen(fd: Fd, backlog: Int) Network, Never, Pass;
    51 getsockname(fd: Fd, addr: Out(Sock(2)), len: Both(INT)) Network, Never, Pass;
    52 getpeername(fd: Fd, addr: Out(Sock(2)), len: Both(INT)) Network, Never, Pass;
    53 socketpair(domain: Int, kind: Int, protocol: Int, fds: Write(PAIR)) Network, Never, Pass;
    54 setsockopt(fd: Fd, level: Int, name: Int, value: Shaped, len: Int) Network, Never, Pass, net::setsockopt;
    55 getsockopt(fd: Fd, level: Int, name: Int, value: Shaped, len: Both(INT)) Network, Never, Pass, net::getsockopt;
    56 clone(flags: Flags, stack: Kept, parent_tid: Shaped, child_tid: Shaped, tls: Kept)
        Process, Never, Engine, task::clone;
    57 fork() Process, Never, Engine;
    58 vfork() Process, Always, Engine;
    59 execve(path: Path, argv: Argv, env: Argv) Process, Never, Engine;
    60 exit(status: Int) Thread, Never, Engine;
    61 wait4(pid: Pid, status: Shaped, options: Flags, usage: Shaped)
        Process, When(blocking::wait4), Pass, task::wait4;
    62 kill(pid: Pid, sig: Sig) Signal, Never, Pass;
    63 uname(buf: Write(UTSNAME)) Info, Never, Pass;
    64 semget(key: Int, count: Int, flags: Flags) Ipc, Never, Pass;
    65 semop(id: Id, ops: In(ItemsInt(2, SEMBUF)), count: Int) Ipc, Always, Pass;
    66 semctl(id: Id, index: Int, command: Int, arg: Shaped) Ipc, Never, Pass, ipc::semctl;
    67 shmdt(addr: Kept) Memory, Never, Engine;
    68 msgget(key: Int, flags: Flags) Ipc, Never, Pass;
    69 msgsnd(id: Id, message: In(By(ipc::msgsnd)), size: Int, flags: Flags) Ipc, When(blocking::msgsnd), Pass;
    70 msgrcv(id: Id, message: Out(By(ipc::msgrcv)), size: Int, kind: Int, flags: Flags)
        Ipc, When(blocking::msgrcv), Pass;
    71 msgctl(id: Id, command: Int, buf: Shaped) Ipc, Never, Pass, ipc::msgctl;
    72 fcntl(fd: Fd, command: Int, arg: Shaped) Descriptor, When(blocking::fcntl), Engine, files::fcntl;
    73 flock(fd: Fd, operation: Flags) File, When(blocking::flock), Pass;
    74 fsync(fd: Fd) File, Never, Pass;
    75 fdatasync(fd: Fd) File, Never, Pass;
    76 truncate(path: Path, len: Int) File, Never, Pass;
    77 ftruncate(fd: Fd, len: Int) File, Never, Pass;
    // /proc/self/fd and /proc/self/task must not list what is the engine's.
    78 getdents(fd: Fd, buf: Out(UptoInt(2)), count: Int) File, Never, Engine;
    79 getcwd(buf: Out(Upto(1)), size: Int) File, Never, Pass;
    80 chdir(path: Path) File, Never, Pass;
    81 fchdir(fd: Fd) File, Never, Pass;
    82 rename(old: Path, new: Path) File, Never, Pass;
    83 mkdir(path: Path, mode: Mode) File, Never, Pass;
    84 rmdir(path: Path) File, Never, Pass;
    85 creat(path: Path, mode: Mode) File, Open, Engine;
    86 link(old: Path, new: Path) File, Never, Pass;
    87 unlink(path: Path) File, Never, Pass;
    88 symlink(target: Path, path: Path) File, Never, Pass;
    89 readlink(path: Path, buf: Out(UptoInt(2)), size: Int) File, Never, Engine;
    90 chmod(path: Path, mode: Mode) File, Never, Pass;
    91 fchmod(fd: Fd, mode: Mode) File, Never, Pass;
    92 chown(path: Path, user: Id, group: Id) File, Never, Pass;
    93 fchown(fd: Fd, user: Id, group: Id) File, Never, Pass;
    94 lchown(path: Path, user: Id, group: Id) File, Never, Pass;
    95 umask(mask: Mode) File, Never, Pass;
    96 gettimeofday(time: Write(TIMEVAL), zone: Write(TIMEZONE)) Time, Never, Engine;
    // The descriptor and stack limits that the guest sees are its own, not those the engine lives under.
    97 getrlimit(resource: Int, limit: Write(RLIMIT)) Process, Never, Engine;
    98 getrusage(who: Int, usage: Write(RUSAGE)) Process, Never, Pass;
    99 sysinfo(info: Write(SYSINFO)) Info, Never, Pass;
}
