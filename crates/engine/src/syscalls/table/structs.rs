//! Names and sizes of the structures that system calls read and write through pointers.
//!
//! Guarantees: the sizes are those of the x86-64 kernel ABI, which differ from libc's for a few (signal sets are
//! 8 bytes, `sigaction` is 32). Source: the kernel's uapi headers.

/// A structure behind a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Struct {
    pub name: &'static str,
    pub size: u32,
}

macro_rules! structs {
    ($( $constant:ident $name:literal $size:literal ; )*) => {
        $( pub const $constant: Struct = Struct { name: $name, size: $size }; )*
        #[cfg(test)]
        pub(super) const ALL: &[Struct] = &[$( $constant ),*];
    };
}

structs! {
    INT "int" 4;
    PAIR "int[2]" 8;
    LONG "long" 8;
    OFFSET "loff_t" 8;
    TIMESPEC "timespec" 16;
    TIMESPEC2 "timespec[2]" 32;
    TIMEVAL "timeval" 16;
    TIMEVAL2 "timeval[2]" 32;
    TIMEZONE "timezone" 8;
    ITIMERVAL "itimerval" 32;
    ITIMERSPEC "itimerspec" 32;
    UTIMBUF "utimbuf" 16;
    TIMEX "timex" 208;
    TMS "tms" 32;
    STAT "stat" 144;
    STATX "statx" 256;
    STATFS "statfs" 120;
    USTAT "ustat" 32;
    UTSNAME "utsname" 390;
    SYSINFO "sysinfo" 112;
    RLIMIT "rlimit" 16;
    RUSAGE "rusage" 144;
    SIGSET "sigset_t" 8;
    SIGACTION "sigaction" 32;
    SIGSTACK "stack_t" 24;
    SIGINFO "siginfo_t" 128;
    SIGEVENT "sigevent" 64;
    SCHED_PARAM "sched_param" 4;
    EPOLL_EVENT "epoll_event" 12;
    MQ_ATTR "mq_attr" 64;
    FLOCK "flock" 32;
    OWNER "f_owner_ex" 8;
    SHMID "shmid_ds" 112;
    SHMINFO "shminfo" 72;
    SHM_INFO "shm_info" 48;
    SEMID "semid_ds" 104;
    SEMINFO "seminfo" 40;
    MSQID "msqid_ds" 120;
    MSGINFO "msginfo" 32;
    CACHESTAT_RANGE "cachestat_range" 16;
    CACHESTAT "cachestat" 40;
    IO_EVENT "io_event" 32;
    IOCB "iocb" 64;
}

// Sizes that only length expressions and shape functions use.
pub const IOVEC: u32 = 16;
pub const POLLFD: u32 = 8;
pub const SEMBUF: u32 = 6;
pub const MSGHDR: u64 = 56;
pub const MMSGHDR: u64 = 64;
pub const SOCK_FPROG: u64 = 16;
pub const SOCK_FILTER: u64 = 8;
