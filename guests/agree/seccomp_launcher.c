// Runs a program under a filter like the default one of container engines.
//
// Refused with EPERM: ptrace, perf_event_open, userfaultfd, bpf, process_vm_readv/writev, kcmp, keyctl, mount, unshare,
// setns, namespace flags of clone, io_uring and the other calls on the documented list; personality except for its
// harmless values. clone3 and calls newer than the filter give ENOSYS.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NAMESPACES = 0x7e020000, NEWEST = 462 };

static const int refused[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_adjtime, SYS_clock_settime, SYS_create_module, SYS_delete_module,
    SYS_finit_module, SYS_get_kernel_syms, SYS_get_mempolicy, SYS_init_module, SYS_ioperm, SYS_iopl, SYS_kcmp,
    SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_lookup_dcookie, SYS_mbind, SYS_mount, SYS_move_pages,
    SYS_name_to_handle_at, SYS_nfsservctl, SYS_open_by_handle_at, SYS_perf_event_open, SYS_pivot_root,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_query_module, SYS_quotactl, SYS_reboot,
    SYS_request_key, SYS_set_mempolicy, SYS_setns, SYS_settimeofday, SYS_swapon, SYS_swapoff, SYS_sysfs, SYS__sysctl,
    SYS_umount2, SYS_unshare, SYS_uselib, SYS_userfaultfd, SYS_ustat, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_pidfd_getfd, SYS_fsopen, SYS_fsmount, SYS_open_tree, SYS_move_mount,
};
static const unsigned personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0xffffffff};

static struct sock_filter filter[256];
static unsigned short length;

static void statement(unsigned short op, unsigned k) { filter[length++] = (struct sock_filter)BPF_STMT(op, k); }
static void jump(unsigned short op, unsigned k, unsigned char yes, unsigned char no) {
    filter[length++] = (struct sock_filter)BPF_JUMP(op, k, yes, no);
}
static void load(size_t offset) { statement(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset); }
static void answer(unsigned action) { statement(BPF_RET | BPF_K, action); }

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: seccomp-launcher PROGRAM ARGS...\n"), 2;
    load(offsetof(struct seccomp_data, arch));
    jump(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        jump(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1);
        answer(SECCOMP_RET_ERRNO | EPERM);
    }
    jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    jump(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1);
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    load(offsetof(struct seccomp_data, args[0]));
    jump(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);
    jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 1, 0);
    answer(SECCOMP_RET_ALLOW);
    load(offsetof(struct seccomp_data, args[0]));
    for (size_t i = 0; i < sizeof personalities / sizeof *personalities; i++) {
        jump(BPF_JMP | BPF_JEQ | BPF_K, personalities[i], 0, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return perror("seccomp-launcher: cannot install the filter"), 2;
    execvp(argv[1], argv + 1);
    fprintf(stderr, "seccomp-launcher: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
