//! System calls 200 to 299. A row's form is explained at `rows!`.

use super::blocking;
use super::errno::{ENOSYS, EPERM};
use super::row::{Blocking::*, Class, Kind::*, Len::*, Param, Policy::*, Row, Timeout::*, rows};
use super::shape::{control, events, ipc, memory, net, task};
use super::structs::*;

const REMOVED: &str = "the kernel no longer has this call, or never had it on x86-64";
const AIO: &str = "asynchronous I/O maps a ring and writes buffers behind the engine's back";

rows! {
    200 tkill(tid: Pid, sig: Sig) Signal, Never, Pass;
    201 time(time: Write(LONG)) Time, Never, Engine;
    202 futex(word: Shaped, operation: Int, value: Int, time: Shaped, second: Shaped, value3: Int)
        Thread, When(blocking::futex), Engine, events::futex;
    203 sched_setaffinity(pid: Pid, len: Int, mask: In(ArgInt(1))) Thread, Never, Pass;
    204 sched_getaffinity(pid: Pid, len: Int, mask: Out(UptoInt(1))) Thread, Never, Pass;
    205 set_thread_area(info: Unused) Thread, Never, Refuse(ENOSYS, REMOVED);
    206 io_setup(count: Int, context: Both(LONG)) File, Never, Refuse(ENOSYS, AIO);
    207 io_destroy(context: Cookie) File, Never, Refuse(ENOSYS, AIO);
    208 io_getevents(context: Cookie, min: Int, max: Int, events: Out(UptoItems(2, 32)), time: Read(TIMESPEC))
        File, Timed(Timespec(4)), Refuse(ENOSYS, AIO);
    209 io_submit(context: Cookie, count: Int, list: In(Items(1, 8))) File, Never, Refuse(ENOSYS, AIO);
    210 io_cancel(context: Cookie, control: Read(IOCB), event: Write(IO_EVENT)) File, Never, Refuse(ENOSYS, AIO);
    211 get_thread_area(info: Unused) Thread, Never, Refuse(ENOSYS, REMOVED);
    212 lookup_dcookie(cookie: Cookie, buf: Out(Upto(2)), len: Int) File, Never, Pass;
    213 epoll_create(size: Int) Event, Never, Pass;
    214 epoll_ctl_old() Event, Never, Refuse(ENOSYS, REMOVED);
    215 epoll_wait_old() Event, Never, Refuse(ENOSYS, REMOVED);
    216 remap_file_pages(addr: Range(1), len: Int, prot: Flags, page: Int, flags: Flags) Memory, Never, Engine;
    217 getdents64(fd: Fd, buf: Out(UptoInt(2)), count: Int) File, Never, Engine;
    218 set_tid_address(word: Kept) Thread, Never, Engine;
    // Restarting is the engine's, which knows what it interrupted.
    219 restart_syscall() Signal, Always, Engine;
    220 semtimedop(id: Id, ops: In(ItemsInt(2, SEMBUF)), count: Int, time: Read(TIMESPEC))
        Ipc, Timed(Timespec(3)), Pass;
    221 fadvise64(fd: Fd, offset: Int, len: Int, advice: Int) File, Never, Pass;
    222 timer_create(clock: Int, event: Read(SIGEVENT), timer: Write(INT)) Time, Never, Pass;
    223 timer_settime(timer: Id, flags: Flags, new: Read(ITIMERSPEC), old: Write(ITIMERSPEC)) Time, Never, Pass;
    224 timer_gettime(timer: Id, value: Write(ITIMERSPEC)) Time, Never, Pass;
    225 timer_getoverrun(timer: Id) Time, Never, Pass;
    226 timer_delete(timer: Id) Time, Never, Pass;
    227 clock_settime(clock: Int, time: Read(TIMESPEC)) Time, Never, Pass;
    228 clock_gettime(clock: Int, time: Write(TIMESPEC)) Time, Never, Engine;
    229 clock_getres(clock: Int, resolution: Write(TIMESPEC)) Time, Never, Pass;
    230 clock_nanosleep(clock: Int, flags: Flags, time: Read(TIMESPEC), rest: Shaped)
        Time, When(blocking::clock_nanosleep), Engine, events::clock_nanosleep;
    231 exit_group(status: Int) Process, Never, Engine;
    232 epoll_wait(epoll: Fd, events: Out(UptoItemsInt(2, 12)), count: Int, timeout: Int)
        Event, When(blocking::epoll_wait), Pass;
    233 epoll_ctl(epoll: Fd, operation: Int, fd: Fd, event: Shaped) Event, Never, Pass, events::epoll_ctl;
    234 tgkill(pid: Pid, tid: Pid, sig: Sig) Signal, Never, Pass;
    235 utimes(path: Path, times: Read(TIMEVAL2)) File, Never, Pass;
    236 vserver() System, Never, Refuse(ENOSYS, REMOVED);
    237 mbind(addr: Range(1), len: Int, mode: Int, mask: In(By(memory::mbind_mask)), bits: Int, flags: Flags)
        Memory, Never, Pass;
    238 set_mempolicy(mode: Int, mask: In(By(memory::mempolicy_mask)), bits: Int) Memory, Never, Pass;
    239 get_mempolicy(mode: Write(INT), mask: Out(By(memory::mempolicy_mask)), bits: Int, addr: Cookie, flags: Flags)
        Memory, Never, Pass;
    240 mq_open(name: Text, flags: Flags, mode: Mode, attr: Shaped) Ipc, Never, Pass, ipc::mq_open;
    241 mq_unlink(name: Text) Ipc, Never, Pass;
    242 mq_timedsend(queue: Fd, message: In(Arg(2)), len: Int, priority: Int, time: Read(TIMESPEC)) Ipc, OnFd(0), Pass;
    243 mq_timedreceive(queue: Fd, message: Out(Upto(2)), len: Int, priority: Write(INT), time: Read(TIMESPEC))
        Ipc, OnFd(0), Pass;
    244 mq_notify(queue: Fd, event: Shaped) Ipc, Never, Pass, ipc::mq_notify;
    245 mq_getsetattr(queue: Fd, new: Read(MQ_ATTR), old: Write(MQ_ATTR)) Ipc, Never, Pass;
    246 kexec_load(entry: Int, count: Int, segments: In(Items(1, 32)), flags: Flags) System, Never,
        Refuse(EPERM, "a program under test does not replace the kernel");
    247 waitid(what: Int, pid: Pid, info: Shaped, options: Flags, usage: Shaped)
        Process, When(blocking::waitid), Pass, task::waitid;
    248 add_key(kind: Text, description: Text, payload: In(Arg(3)), len: Int, ring: Id) Identity, Never, Pass;
    249 request_key(kind: Text, description: Text, info: Text, ring: Id) Identity, Always, Pass;
    250 keyctl(command: Int, second: Shaped, third: Shaped, fourth: Shaped, fifth: Shaped)
        Identity, When(blocking::keyctl), Pass, control::keyctl;
    251 ioprio_set(which: Int, who: Id, priority: Int) Thread, Never, Pass;
    252 ioprio_get(which: Int, who: Id) Thread, Never, Pass;
    253 inotify_init() Event, Never, Pass;
    254 inotify_add_watch(fd: Fd, path: Path, mask: Flags) Event, Never, Pass;
    255 inotify_rm_watch(fd: Fd, watch: Id) Event, Never, Pass;
    256 migrate_pages(pid: Pid, bits: Int, from: In(By(memory::migrate_mask)), to: In(By(memory::migrate_mask)))
        Memory, Never, Pass;
    257 openat(dir: DirFd, path: Path, flags: Flags, mode: Mode) File, When(blocking::openat), Engine;
    258 mkdirat(dir: DirFd, path: Path, mode: Mode) File, Never, Pass;
    259 mknodat(dir: DirFd, path: Path, mode: Mode, device: Int) File, Never, Pass;
    260 fchownat(dir: DirFd, path: Path, user: Id, group: Id, flags: Flags) File, Never, Pass;
    261 futimesat(dir: DirFd, path: Path, times: Read(TIMEVAL2)) File, Never, Pass;
    262 newfstatat(dir: DirFd, path: Path, buf: Write(STAT), flags: Flags) File, Never, Engine;
    263 unlinkat(dir: DirFd, path: Path, flags: Flags) File, Never, Pass;
    264 renameat(old_dir: DirFd, old: Path, new_dir: DirFd, new: Path) File, Never, Pass;
    265 linkat(old_dir: DirFd, old: Path, new_dir: DirFd, new: Path, flags: Flags) File, Never, Pass;
    266 symlinkat(target: Path, dir: DirFd, path: Path) File, Never, Pass;
    267 readlinkat(dir: DirFd, path: Path, buf: Out(UptoInt(3)), size: Int) File, Never, Engine;
    268 fchmodat(dir: DirFd, path: Path, mode: Mode) File, Never, Pass;
    269 faccessat(dir: DirFd, path: Path, mode: Mode) File, Never, Engine;
    270 pselect6(count: Int, read: Shaped, write: Shaped, except: Shaped, time: Shaped, mask: Shaped)
        Event, Timed(Timespec(4)), Engine, events::pselect6;
    // A call that swaps the signal mask for its duration meets the virtual mask.
    271 ppoll(fds: Shaped, count: Int, time: Shaped, mask: Read(SIGSET), size: Int)
        Event, Timed(Timespec(2)), Engine, events::ppoll;
    272 unshare(flags: Flags) Process, Never, Pass;
    273 set_robust_list(head: Kept, len: Int) Thread, Never, Engine;
    274 get_robust_list(tid: Pid, head: Write(LONG), len: Write(LONG)) Thread, Never, Engine;
    275 splice(input: Fd, in_offset: Both(OFFSET), out: Fd, out_offset: Both(OFFSET), len: Int, flags: Flags)
        File, OnFds(0, 2), Pass;
    276 tee(input: Fd, out: Fd, len: Int, flags: Flags) File, OnFds(0, 1), Pass;
    277 sync_file_range(fd: Fd, offset: Int, len: Int, flags: Flags) File, Never, Pass;
    278 vmsplice(pipe: Fd, iov: Shaped, count: Int, flags: Flags) File, OnFd(0), Pass, memory::vmsplice;
    279 move_pages(pid: Pid, count: Int, pages: In(Items(1, 8)), nodes: In(Items(1, 4)), status: Shaped, flags: Flags)
        Memory, Never, Pass, memory::move_pages;
    280 utimensat(dir: DirFd, path: Path, times: Read(TIMESPEC2), flags: Flags) File, Never, Pass;
    281 epoll_pwait(epoll: Fd, events: Out(UptoItemsInt(2, 12)), count: Int, timeout: Int, mask: Read(SIGSET),
        size: Int) Event, When(blocking::epoll_wait), Engine;
    // Signals that the guest blocks virtually must reach its signal descriptors.
    282 signalfd(fd: Fd, mask: Read(SIGSET), size: Int) Signal, Never, Engine;
    283 timerfd_create(clock: Int, flags: Flags) Time, Never, Pass;
    284 eventfd(initial: Int) Event, Never, Pass;
    285 fallocate(fd: Fd, mode: Flags, offset: Int, len: Int) File, Never, Pass;
    286 timerfd_settime(fd: Fd, flags: Flags, new: Read(ITIMERSPEC), old: Write(ITIMERSPEC)) Time, Never, Pass;
    287 timerfd_gettime(fd: Fd, value: Write(ITIMERSPEC)) Time, Never, Pass;
    288 accept4(fd: Fd, addr: Out(Sock(2)), len: SockLen(1), flags: Flags) Network, OnFd(0), Pass;
    289 signalfd4(fd: Fd, mask: Read(SIGSET), size: Int, flags: Flags) Signal, Never, Engine;
    290 eventfd2(initial: Int, flags: Flags) Event, Never, Pass;
    291 epoll_create1(flags: Flags) Event, Never, Pass;
    292 dup3(old: Fd, new: Fd, flags: Flags) Descriptor, Never, Engine;
    293 pipe2(fds: Write(PAIR), flags: Flags) Descriptor, Never, Pass;
    294 inotify_init1(flags: Flags) Event, Never, Pass;
    295 preadv(fd: Fd, iov: IovecOut(2), count: Int, low: Int, high: Int) File, OnFd(0), Pass;
    296 pwritev(fd: Fd, iov: IovecIn(2), count: Int, low: Int, high: Int) File, OnFd(0), Pass;
    297 rt_tgsigqueueinfo(pid: Pid, tid: Pid, sig: Sig, info: Read(SIGINFO)) Signal, Never, Pass;
    298 perf_event_open(attr: Shaped, pid: Pid, cpu: Int, group: Fd, flags: Flags)
        Info, Never, Pass, task::perf_event_open;
    299 recvmmsg(fd: Fd, messages: Shaped, count: Int, flags: Flags, time: Shaped)
        Network, When(blocking::datagram), Pass, net::recvmmsg;
}
