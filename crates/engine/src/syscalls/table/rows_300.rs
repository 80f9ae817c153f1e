//! System calls 300 to 336 and, after the gap in the numbering, 424 and up. A row's form is explained at `rows!`.

use super::blocking;
use super::errno::{EINVAL, ENOSPC, ENOSYS, EPERM};
use super::row::{Blocking::*, Class, Kind::*, Len::*, Param, Policy::*, Row, Timeout::*, rows};
use super::shape::{control, files, net, task};
use super::structs::*;

const RING: &str = "io_uring does system calls behind the engine's back";
const FUTEX2: &str = "futexes are the engine's own, and programs fall back to futex";
const PROBE: &str = "only code that the kernel places may make this call";

rows! {
    300 fanotify_init(flags: Flags, event_flags: Flags) Event, Never, Pass;
    301 fanotify_mark(fd: Fd, flags: Flags, mask: Flags, dir: DirFd, path: Path) Event, Never, Pass;
    302 prlimit64(pid: Pid, resource: Int, new: Read(RLIMIT), old: Write(RLIMIT)) Process, Never, Engine;
    303 name_to_handle_at(dir: DirFd, path: Path, handle: Shaped, mount_id: Shaped, flags: Flags)
        File, Never, Pass, files::name_to_handle_at;
    304 open_by_handle_at(mount: DirFd, handle: In(By(files::handle_length)), flags: Flags) File, Open, Pass;
    305 clock_adjtime(clock: Int, buf: Both(TIMEX)) Time, Never, Pass;
    306 syncfs(fd: Fd) File, Never, Pass;
    307 sendmmsg(fd: Fd, messages: Shaped, count: Int, flags: Flags)
        Network, When(blocking::datagram), Pass, net::sendmmsg;
    308 setns(fd: Fd, kind: Flags) Process, Never, Pass;
    // The processor number would make seeded runs differ.
    309 getcpu(cpu: Write(INT), node: Write(INT), cache: Unused) Info, Never, Engine;
    // Of the other side only the list of ranges is read here; in the caller's own process it is memory too.
    310 process_vm_readv(pid: Pid, here: IovecOut(2), count: Int, there: In(Items(4, IOVEC)), there_count: Int,
        flags: Flags) Process, Never, Engine;
    311 process_vm_writev(pid: Pid, here: IovecIn(2), count: Int, there: In(Items(4, IOVEC)), there_count: Int,
        flags: Flags) Process, Never, Engine;
    312 kcmp(pid: Pid, pid2: Pid, kind: Int, first: Int, second: Shaped) Process, Never, Pass, control::kcmp;
    313 finit_module(fd: Fd, options: Text, flags: Flags) System, Never, Pass;
    314 sched_setattr(pid: Pid, attr: Shaped, flags: Flags) Thread, Never, Pass, task::sched_setattr;
    315 sched_getattr(pid: Pid, attr: Out(ArgInt(2)), size: Int, flags: Flags) Thread, Never, Pass;
    316 renameat2(old_dir: DirFd, old: Path, new_dir: DirFd, new: Path, flags: Flags) File, Never, Pass;
    317 seccomp(operation: Int, flags: Flags, arg: Shaped) Process, Never, Engine, control::seccomp;
    318 getrandom(buf: Out(Upto(1)), count: Int, flags: Flags) Info, Never, Engine;
    319 memfd_create(name: Text, flags: Flags) Descriptor, Never, Pass;
    320 kexec_file_load(kernel: Fd, initrd: Fd, len: Int, command_line: In(Arg(2)), flags: Flags) System, Never,
        Refuse(EPERM, "a program under test does not replace the kernel");
    321 bpf(command: Int, attr: InOut(ArgInt(2)), size: Int) System, Never, Pass;
    322 execveat(dir: DirFd, path: Path, argv: Argv, env: Argv, flags: Flags) Process, Never, Engine;
    323 userfaultfd(flags: Flags) Memory, Never,
        Refuse(ENOSYS, "faults answered by another thread cannot be told from the engine's own");
    324 membarrier(command: Int, flags: Flags, cpu: Int) Thread, Never, Engine;
    325 mlock2(addr: Range(1), len: Int, flags: Flags) Memory, Never, Pass;
    326 copy_file_range(input: Fd, in_offset: Both(OFFSET), out: Fd, out_offset: Both(OFFSET), len: Int, flags: Flags)
        File, Never, Pass;
    327 preadv2(fd: Fd, iov: IovecOut(2), count: Int, low: Int, high: Int, flags: Flags)
        File, When(blocking::vector_flags), Pass;
    328 pwritev2(fd: Fd, iov: IovecIn(2), count: Int, low: Int, high: Int, flags: Flags)
        File, When(blocking::vector_flags), Pass;
    // With key -1 this is mprotect; no other key exists for the guest.
    329 pkey_mprotect(addr: Range(1), len: Int, prot: Flags, key: Int) Memory, Never, Engine;
    330 pkey_alloc(flags: Flags, rights: Flags) Memory, Never,
        Refuse(ENOSPC, "protection keys are not shown to programs");
    331 pkey_free(key: Int) Memory, Never, Refuse(EINVAL, "no protection key was ever given to the guest");
    332 statx(dir: DirFd, path: Path, flags: Flags, mask: Flags, buf: Write(STATX)) File, Never, Engine;
    333 io_pgetevents(context: Cookie, min: Int, max: Int, events: Out(UptoItems(2, 32)), time: Read(TIMESPEC),
        mask: Unused) File, Timed(Timespec(4)), Refuse(ENOSYS, "there is no asynchronous I/O context to wait for");
    334 rseq(area: Kept, len: Int, flags: Flags, signature: Int) Thread, Never,
        Refuse(ENOSYS, "a restartable sequence cannot be recognised inside translated code");
    335 uretprobe() System, Never, Refuse(ENOSYS, PROBE);
    336 uprobe() System, Never, Refuse(ENOSYS, PROBE);

    424 pidfd_send_signal(pidfd: Fd, sig: Sig, info: Read(SIGINFO), flags: Flags) Signal, Never, Pass;
    425 io_uring_setup(entries: Int, params: Unused) File, Never, Refuse(ENOSYS, RING);
    426 io_uring_enter(fd: Fd, submit: Int, min: Int, flags: Flags, arg: Unused, size: Int)
        File, Always, Refuse(ENOSYS, RING);
    427 io_uring_register(fd: Fd, operation: Int, arg: Unused, count: Int) File, Never, Refuse(ENOSYS, RING);
    428 open_tree(dir: DirFd, path: Path, flags: Flags) System, Never, Pass;
    429 move_mount(from_dir: DirFd, from: Path, to_dir: DirFd, to: Path, flags: Flags) System, Never, Pass;
    430 fsopen(kind: Text, flags: Flags) System, Never, Pass;
    431 fsconfig(fd: Fd, command: Int, key: Text, value: Shaped, number: Int) System, Never, Pass, files::fsconfig;
    432 fsmount(fd: Fd, flags: Flags, attributes: Flags) System, Never, Pass;
    433 fspick(dir: DirFd, path: Path, flags: Flags) System, Never, Pass;
    434 pidfd_open(pid: Pid, flags: Flags) Process, Never, Pass;
    435 clone3(args: Shaped, size: Int) Process, Never,
        Refuse(ENOSYS, "C libraries fall back to clone, which is the one way to make threads here"), task::clone3;
    436 close_range(first: Int, last: Int, flags: Flags) Descriptor, Never, Engine;
    437 openat2(dir: DirFd, path: Path, how: In(Arg(3)), size: Int) File, Open, Engine;
    438 pidfd_getfd(pidfd: Fd, fd: Int, flags: Flags) Descriptor, Never, Pass;
    439 faccessat2(dir: DirFd, path: Path, mode: Mode, flags: Flags) File, Never, Engine;
    440 process_madvise(pidfd: Fd, ranges: In(Items(2, IOVEC)), count: Int, advice: Int, flags: Flags)
        Memory, Never, Engine;
    441 epoll_pwait2(epoll: Fd, events: Out(UptoItemsInt(2, 12)), count: Int, time: Read(TIMESPEC),
        mask: Read(SIGSET), size: Int) Event, Timed(Timespec(3)), Engine;
    442 mount_setattr(dir: DirFd, path: Path, flags: Flags, attr: In(Arg(4)), size: Int) System, Never, Pass;
    443 quotactl_fd(fd: Fd, command: Int, id: Id, buf: Shaped) System, Never, Pass, files::quotactl_fd;
    444 landlock_create_ruleset(attr: In(Arg(1)), size: Int, flags: Flags) Identity, Never, Pass;
    445 landlock_add_rule(ruleset: Fd, kind: Int, rule: In(By(control::landlock_rule)), flags: Flags)
        Identity, Never, Pass;
    446 landlock_restrict_self(ruleset: Fd, flags: Flags) Identity, Never, Pass;
    447 memfd_secret(flags: Flags) Descriptor, Never, Pass;
    448 process_mrelease(pidfd: Fd, flags: Flags) Memory, Never, Pass;
    449 futex_waitv(waiters: In(ItemsInt(1, 24)), count: Int, flags: Flags, time: Read(TIMESPEC), clock: Int)
        Thread, Timed(Deadline(3)), Refuse(ENOSYS, FUTEX2);
    450 set_mempolicy_home_node(addr: Range(1), len: Int, node: Int, flags: Flags) Memory, Never, Pass;
    451 cachestat(fd: Fd, range: Read(CACHESTAT_RANGE), stat: Write(CACHESTAT), flags: Flags) File, Never, Pass;
    452 fchmodat2(dir: DirFd, path: Path, mode: Mode, flags: Flags) File, Never, Pass;
    453 map_shadow_stack(addr: Kept, len: Int, flags: Flags) Memory, Never,
        Refuse(ENOSYS, "translated code returns to other addresses than a shadow stack holds");
    454 futex_wake(word: Kept, mask: Int, count: Int, flags: Flags) Thread, Never, Refuse(ENOSYS, FUTEX2);
    455 futex_wait(word: Read(INT), value: Int, mask: Int, flags: Flags, time: Read(TIMESPEC), clock: Int)
        Thread, Timed(Deadline(4)), Refuse(ENOSYS, FUTEX2);
    456 futex_requeue(waiters: In(Bytes(48)), flags: Flags, wake: Int, requeue: Int)
        Thread, Never, Refuse(ENOSYS, FUTEX2);
    457 statmount(request: In(Own { at: 0, zero: 0 }), buf: Out(By(files::statmount_length)), size: Int, flags: Flags)
        System, Never, Pass;
    458 listmount(request: In(Own { at: 0, zero: 0 }), ids: Out(UptoItems(2, 8)), count: Int, flags: Flags)
        System, Never, Pass;
    459 lsm_get_self_attr(attr: Int, context: Out(Sock(2)), size: Shaped, flags: Flags)
        Identity, Never, Pass, task::lsm_get_self_attr;
    460 lsm_set_self_attr(attr: Int, context: In(ArgInt(2)), size: Int, flags: Flags) Identity, Never, Pass;
    461 lsm_list_modules(ids: Out(Sock(1)), size: Shaped, flags: Flags) Identity, Never, Pass, task::lsm_list_modules;
    462 mseal(addr: Range(1), len: Int, flags: Flags) Memory, Never, Engine;
    463 setxattrat(dir: DirFd, path: Path, flags: Flags, name: Text, args: Shaped, size: Int)
        File, Never, Pass, files::setxattrat;
    464 getxattrat(dir: DirFd, path: Path, flags: Flags, name: Text, args: Shaped, size: Int)
        File, Never, Pass, files::getxattrat;
    465 listxattrat(dir: DirFd, path: Path, flags: Flags, list: Out(Upto(4)), size: Int) File, Never, Pass;
    466 removexattrat(dir: DirFd, path: Path, flags: Flags, name: Text) File, Never, Pass;
    467 open_tree_attr(dir: DirFd, path: Path, flags: Flags, attr: In(Arg(4)), size: Int) System, Never, Pass;
    468 file_getattr(dir: DirFd, path: Path, attr: Out(Arg(3)), size: Int, flags: Flags) File, Never, Pass;
    469 file_setattr(dir: DirFd, path: Path, attr: In(Arg(3)), size: Int, flags: Flags) File, Never, Pass;
    470 listns(request: In(Own { at: 0, zero: 0 }), ids: Out(UptoItems(2, 8)), count: Int, flags: Flags)
        System, Never, Pass;
    471 rseq_slice_yield() Thread, Never, Refuse(ENOSYS, "there is no restartable sequence to yield from");
}
