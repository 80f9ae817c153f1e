// A stand-in for the engine: speaks its side of the protocol and runs the program natively, or acts a scene by name.
// It lets the host side be tested by itself: what the guest inherits, what is told and in which order.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int control;
static unsigned char packet[65536];
static size_t length;

static void put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) packet[length++] = value >> (8 * i);
}

static void put_string(const char *s) {
    put(strlen(s), 4);
    memcpy(packet + length, s, strlen(s));
    length += strlen(s);
}

static void begin(int kind) {
    length = 0;
    put(getpid(), 4);
    put(kind, 1);
}

static void finish(int fd) {
    struct iovec part = {packet, length};
    union { char space[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } u;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&u, 0, sizeof u);
        message.msg_control = u.space;
        message.msg_controllen = sizeof u.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (sendmsg(control, &message, MSG_NOSIGNAL) < 0) _exit(99);
}

static void note(const char *text) {
    begin(9);
    put_string(text);
    put(0, 8);
    finish(-1);
}

static void started(const char *exe) {
    begin(0);
    put_string(exe);
    put(0x555555554000, 8);
    finish(-1);
}

static void not_loaded(int status, const char *text) {
    begin(10);
    put(status, 1);
    put_string(text);
    finish(-1);
    _exit(status);
}

// One ring of two buffers; the block is `mov rax,[rdi]; ret` at 0x1000, run `times` times, `per_buffer` in each.
static void ring_scene(uint32_t times, uint32_t per_buffer, int orderly) {
    enum { PAGE = 4096, SIZE = 4096, BUFFERS = 2 };
    int fd = memfd_create("ring", 0);
    size_t total = PAGE + BUFFERS * (SIZE + PAGE);
    if (ftruncate(fd, total)) _exit(98);
    char *ring = mmap(0, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint32_t header[4] = {0x434c5752, 1, BUFFERS, SIZE};
    memcpy(ring, header, sizeof header);
    volatile uint32_t *produced = (void *)(ring + 64), *consumed = (void *)(ring + 128), *closed = (void *)(ring + 192);
    uint32_t *used = (void *)(ring + 256);
    begin(2);
    put(BUFFERS, 4);
    put(SIZE, 4);
    finish(fd);
    begin(1);
    put(1, 4);
    put(0, 4);
    put(0x1000, 8);
    put(4, 4);
    put(0xc3078b48, 4);
    finish(-1);
    for (uint32_t done = 0; done < times;) {
        while (*produced - *consumed == BUFFERS) usleep(100);
        char *buffer = ring + PAGE + (*produced % BUFFERS) * (SIZE + PAGE), *at = buffer;
        for (uint32_t i = 0; i < per_buffer && done < times; i++, done++) {
            uint32_t id = 0;
            uint64_t rdi = 0x2000 + 8 * done, rsp = 0x70000;
            memcpy(at, &id, 4), at += 4;
            memcpy(at, &rdi, 8), at += 8;
            memcpy(at, &rsp, 8), at += 8;
        }
        used[*produced % BUFFERS] = at - buffer;
        __sync_synchronize();
        ++*produced;
    }
    if (orderly) *closed = 1;
}

static void scene(const char *name) {
    if (!strcmp(name, "reports")) {
        begin(3);
        put(5, 4), put(6, 4), put(77, 8);
        for (int i = 0; i < 18; i++) put(i, 8);
        finish(-1);
        note("something is not supported");
        exit(0);
    }
    if (!strcmp(name, "garbage")) {
        length = 0;
        put_string("this is no packet");
        finish(-1);
        exit(0);
    }
    if (!strcmp(name, "fault")) {
        begin(7);
        put_string("the cache is inconsistent");
        put(0x1234, 8);
        finish(-1);
        abort();
    }
    if (!strcmp(name, "late")) {
        char byte;
        if (fork()) exit(4);
        if (read(0, &byte, 1) < 0) _exit(97);
        note("late");
        exit(0);
    }
    if (!strcmp(name, "ring")) {
        ring_scene(1000, 100, 1);
        exit(0);
    }
    if (!strcmp(name, "torn-ring")) {
        ring_scene(1000, 100, 0);
        raise(SIGKILL);
    }
    not_loaded(127, "no such scene");
}

// Found by what they are rather than by decoding the configuration, whose encoding is not this program's business.
static void take_descriptors(int config_fd) {
    struct stat self, other;
    stat("/proc/self/exe", &self);
    close(config_fd);
    for (int fd = 3; fd < 64; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET) {
            control = fcntl(fd, F_DUPFD_CLOEXEC, 100);
            close(fd);
        } else if (!fstat(fd, &other) && other.st_ino == self.st_ino && other.st_dev == self.st_dev) {
            close(fd);
        } else {
            // The pool of translations, which this engine has no use for.
            char link[32], name[64] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "memfd:clew-translations")) close(fd);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 125;
    take_descriptors(atoi(argv[1]));
    if (!strncmp(argv[2], "scene:", 6)) scene(argv[2] + 6);
    started(argv[2]);
    execve(argv[2], argv + 3, environ);
    not_loaded(errno == ENOENT ? 127 : 126, "cannot be executed");
}
