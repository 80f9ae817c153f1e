/* Two bytes that leave the program's memory and come back, or go to another process; the second one is written out. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char out[2];
static char in[2];

__attribute__((noinline)) static void make(int seed) {
    out[0] = (char)('a' + seed); /* first */
    out[1] = (char)('k' + seed); /* second */
}

static int file(const char *name) {
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

/* Bytes go into one descriptor and come out of another. */
static void relay(int mode, const char *name, const char *other) {
    int p[2], q[2];
    long n = 0;
    switch (mode) {
    case 'p': /* a pipe */
        n = pipe(p) || write(p[1], (char *)out, 2) != 2 || read(p[0], in, 2) != 2;
        break;
    case 'l': /* a pipe, with work in between */
        n = pipe(p) || write(p[1], (char *)out, 2) != 2;
        for (volatile int i = 0; i < 500000; i++)
            ;
        n = n || read(p[0], in, 2) != 2;
        break;
    case 'u': /* a pair of sockets, with lists of pieces */
        n = socketpair(AF_UNIX, SOCK_STREAM, 0, p);
        struct iovec pieces[2] = {{(char *)out, 1}, {(char *)out + 1, 1}}, back[2] = {{in, 1}, {in + 1, 1}};
        n = n || writev(p[1], pieces, 2) != 2 || readv(p[0], back, 2) != 2;
        break;
    case 'f': /* a file */
        p[0] = file(name);
        n = write(p[0], (char *)out, 2) != 2 || lseek(p[0], 0, SEEK_SET) != 0 || read(p[0], in, 2) != 2;
        break;
    case 's': /* from pipe to pipe by the kernel */
        n = pipe(p) || pipe(q) || write(p[1], (char *)out, 2) != 2;
        n = n || splice(p[0], 0, q[1], 0, 2, 0) != 2 || read(q[0], in, 2) != 2;
        break;
    case 'c': { /* from file to file by the kernel */
        loff_t from = 0, to = 5;
        p[0] = file(name);
        p[1] = file(other);
        n = write(p[0], (char *)out, 2) != 2 || copy_file_range(p[0], &from, p[1], &to, 2, 0) != 2;
        n = n || pread(p[1], in, 2, 5) != 2;
        break;
    }
    case 'm': { /* from file to pipe by the kernel */
        off_t from = 0;
        p[0] = file(name);
        n = pipe(q) || write(p[0], (char *)out, 2) != 2 || sendfile(q[1], p[0], &from, 2) != 2;
        n = n || read(q[0], in, 2) != 2;
        break;
    }
    case 'k': /* from a child */
        n = pipe(p);
        if (fork() == 0) {
            make(1);
            _exit(write(p[1], (char *)out, 2) != 2);
        }
        n = n || read(p[0], in, 2) != 2;
        wait(0);
    }
    if (n)
        _exit(1);
}

int main(int argc, char **argv) {
    int mode = argv[1][0];
    if (mode != 'r')
        make(argc); /* call */
    if (mode == 'w')
        return write(1, (char *)out, 2) != 2;
    if (mode == 'r')
        return read(0, in, 2) != 2 || write(1, in + 1, 1) != 1; /* passed on */
    relay(mode, argv[2], argv[3]);
    return write(1, in + 1, 1) != 1; /* written */
}
