//! System calls 100 to 199. A row's form is explained at `rows!`.

use super::blocking;
use super::errno::{ENOSYS, EPERM};
use super::row::{Blocking::*, Class, Kind::*, Len::*, Param, Policy::*, Row, Timeout::*, rows};
use super::shape::{control, events, files, task};
use super::structs::*;

const REMOVED: &str = "the kernel no longer has this call, or never had it on x86-64";

rows! {
    100 times(buf: Write(TMS)) Time, Never, Engine;
    101 ptrace(request: Int, pid: Pid, addr: Shaped, data: Shaped) Process, Never,
        Refuse(EPERM, "a traced program would see the engine instead of itself, as under a hardened kernel"),
        control::ptrace;
    102 getuid() Identity, Never, Pass;
    103 syslog(action: Int, buf: Shaped, len: Int) Info, When(blocking::syslog), Pass, control::syslog;
    104 getgid() Identity, Never, Pass;
    105 setuid(user: Id) Identity, Never, Pass;
    106 setgid(group: Id) Identity, Never, Pass;
    107 geteuid() Identity, Never, Pass;
    108 getegid() Identity, Never, Pass;
    109 setpgid(pid: Pid, group: Pid) Process, Never, Pass;
    110 getppid() Process, Never, Pass;
    111 getpgrp() Process, Never, Pass;
    112 setsid() Process, Never, Pass;
    113 setreuid(real: Id, effective: Id) Identity, Never, Pass;
    114 setregid(real: Id, effective: Id) Identity, Never, Pass;
    115 getgroups(count: Int, list: Out(UptoItemsInt(0, 4))) Identity, Never, Pass;
    116 setgroups(count: Int, list: In(ItemsInt(0, 4))) Identity, Never, Pass;
    117 setresuid(real: Id, effective: Id, saved: Id) Identity, Never, Pass;
    118 getresuid(real: Write(INT), effective: Write(INT), saved: Write(INT)) Identity, Never, Pass;
    119 setresgid(real: Id, effective: Id, saved: Id) Identity, Never, Pass;
    120 getresgid(real: Write(INT), effective: Write(INT), saved: Write(INT)) Identity, Never, Pass;
    121 getpgid(pid: Pid) Process, Never, Pass;
    122 setfsuid(user: Id) Identity, Never, Pass;
    123 setfsgid(group: Id) Identity, Never, Pass;
    124 getsid(pid: Pid) Process, Never, Pass;
    125 capget(header: Shaped, data: Shaped) Identity, Never, Pass, task::capget;
    126 capset(header: Shaped, data: Shaped) Identity, Never, Pass, task::capset;
    127 rt_sigpending(set: Out(Arg(1)), size: Int) Signal, Never, Engine;
    128 rt_sigtimedwait(set: Read(SIGSET), info: Shaped, time: Read(TIMESPEC), size: Int)
        Signal, Timed(Timespec(2)), Engine, task::sigtimedwait;
    129 rt_sigqueueinfo(pid: Pid, sig: Sig, info: Read(SIGINFO)) Signal, Never, Pass;
    130 rt_sigsuspend(set: Read(SIGSET), size: Int) Signal, Always, Engine;
    131 sigaltstack(new: Read(SIGSTACK), old: Write(SIGSTACK)) Signal, Never, Engine;
    132 utime(path: Path, times: Read(UTIMBUF)) File, Never, Pass;
    133 mknod(path: Path, mode: Mode, device: Int) File, Never, Pass;
    134 uselib(path: Path) Memory, Never, Refuse(ENOSYS, REMOVED);
    // Address randomisation is the engine's business, and a 32-bit personality cannot be had.
    135 personality(persona: Flags) Process, Never, Engine;
    136 ustat(device: Int, buf: Write(USTAT)) File, Never, Pass;
    137 statfs(path: Path, buf: Write(STATFS)) File, Never, Pass;
    138 fstatfs(fd: Fd, buf: Write(STATFS)) File, Never, Pass;
    139 sysfs(option: Int, first: Shaped, second: Shaped) Info, Never, Pass, files::sysfs;
    140 getpriority(which: Int, who: Id) Process, Never, Pass;
    141 setpriority(which: Int, who: Id, priority: Int) Process, Never, Pass;
    142 sched_setparam(pid: Pid, param: Read(SCHED_PARAM)) Thread, Never, Pass;
    143 sched_getparam(pid: Pid, param: Write(SCHED_PARAM)) Thread, Never, Pass;
    144 sched_setscheduler(pid: Pid, policy: Int, param: Read(SCHED_PARAM)) Thread, Never, Pass;
    145 sched_getscheduler(pid: Pid) Thread, Never, Pass;
    146 sched_get_priority_max(policy: Int) Thread, Never, Pass;
    147 sched_get_priority_min(policy: Int) Thread, Never, Pass;
    148 sched_rr_get_interval(pid: Pid, interval: Write(TIMESPEC)) Thread, Never, Pass;
    149 mlock(addr: Range(1), len: Int) Memory, Never, Pass;
    150 munlock(addr: Range(1), len: Int) Memory, Never, Pass;
    // Locking everything to come would count the engine's mappings against the guest's limit.
    151 mlockall(flags: Flags) Memory, Never, Engine;
    152 munlockall() Memory, Never, Pass;
    153 vhangup() System, Never, Pass;
    154 modify_ldt(function: Int, descriptor: Unused, len: Int) Memory, Never,
        Refuse(ENOSYS, "segments of a local descriptor table cannot be translated");
    155 pivot_root(new: Path, old: Path) System, Never, Pass;
    156 _sysctl(args: Unused) Info, Never, Refuse(ENOSYS, REMOVED);
    157 prctl(option: Int, second: Shaped, third: Shaped, fourth: Shaped, fifth: Shaped)
        Process, Never, Engine, control::prctl;
    158 arch_prctl(option: Int, addr: Shaped) Thread, Never, Engine, control::arch_prctl;
    // The structure comes back even if setting the clock is not permitted.
    159 adjtimex(buf: Shaped) Time, Never, Pass, events::adjtimex;
    160 setrlimit(resource: Int, limit: Read(RLIMIT)) Process, Never, Engine;
    161 chroot(path: Path) File, Never, Pass;
    162 sync() File, Never, Pass;
    163 acct(path: Path) System, Never, Pass;
    164 settimeofday(time: Read(TIMEVAL), zone: Read(TIMEZONE)) Time, Never, Pass;
    165 mount(source: Path, target: Path, kind: Text, flags: Flags, data: Text) System, Never, Pass;
    166 umount2(target: Path, flags: Flags) System, Never, Pass;
    167 swapon(path: Path, flags: Flags) System, Never, Pass;
    168 swapoff(path: Path) System, Never, Pass;
    169 reboot(magic: Int, magic2: Int, command: Int, text: Shaped) System, Never, Pass, control::reboot;
    170 sethostname(name: In(ArgInt(1)), len: Int) System, Never, Pass;
    171 setdomainname(name: In(ArgInt(1)), len: Int) System, Never, Pass;
    172 iopl(level: Int) System, Never, Pass;
    173 ioperm(from: Int, count: Int, on: Int) System, Never, Pass;
    174 create_module(name: Unused, size: Int) System, Never, Refuse(ENOSYS, REMOVED);
    175 init_module(image: In(Arg(1)), len: Int, options: Text) System, Never, Pass;
    176 delete_module(name: Text, flags: Flags) System, Never, Pass;
    177 get_kernel_syms(table: Unused) System, Never, Refuse(ENOSYS, REMOVED);
    178 query_module(name: Unused, which: Int, buf: Unused, size: Int, ret: Unused)
        System, Never, Refuse(ENOSYS, REMOVED);
    179 quotactl(command: Int, device: Path, id: Id, buf: Shaped) System, Never, Pass, files::quotactl;
    180 nfsservctl(command: Int, arg: Unused, ret: Unused) System, Never, Refuse(ENOSYS, REMOVED);
    181 getpmsg() System, Never, Refuse(ENOSYS, REMOVED);
    182 putpmsg() System, Never, Refuse(ENOSYS, REMOVED);
    183 afs_syscall() System, Never, Refuse(ENOSYS, REMOVED);
    184 tuxcall() System, Never, Refuse(ENOSYS, REMOVED);
    185 security() System, Never, Refuse(ENOSYS, REMOVED);
    186 gettid() Thread, Never, Pass;
    187 readahead(fd: Fd, offset: Int, count: Int) File, Never, Pass;
    188 setxattr(path: Path, name: Text, value: In(Arg(3)), size: Int, flags: Flags) File, Never, Pass;
    189 lsetxattr(path: Path, name: Text, value: In(Arg(3)), size: Int, flags: Flags) File, Never, Pass;
    190 fsetxattr(fd: Fd, name: Text, value: In(Arg(3)), size: Int, flags: Flags) File, Never, Pass;
    191 getxattr(path: Path, name: Text, value: Out(Upto(3)), size: Int) File, Never, Pass;
    192 lgetxattr(path: Path, name: Text, value: Out(Upto(3)), size: Int) File, Never, Pass;
    193 fgetxattr(fd: Fd, name: Text, value: Out(Upto(3)), size: Int) File, Never, Pass;
    194 listxattr(path: Path, list: Out(Upto(2)), size: Int) File, Never, Pass;
    195 llistxattr(path: Path, list: Out(Upto(2)), size: Int) File, Never, Pass;
    196 flistxattr(fd: Fd, list: Out(Upto(2)), size: Int) File, Never, Pass;
    197 removexattr(path: Path, name: Text) File, Never, Pass;
    198 lremovexattr(path: Path, name: Text) File, Never, Pass;
    199 fremovexattr(fd: Fd, name: Text) File, Never, Pass;
}
