/* Does harm in every way it can, unless one branch keeps it from that. Run in a folder of its own:
 *
 *     harmful FOLDER PORT KIND     FOLDER holds input.txt, keep.txt, shared.bin; a server listens at PORT
 *
 * KIND: shared names truncate connect datagram parent children execute
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *shared;

static void harm_names(void) {
    unlink("keep.txt");
    int fd = open("input.txt", O_WRONLY | O_TRUNC | O_CREAT, 0600);
    if (fd < 0 || write(fd, "harm", 4) != 4) puts("no write");
    close(fd);
    rename("input.txt", "moved.txt");
    mkdir("made", 0700);
    symlink("input.txt", "linked");
    link("shared.bin", "hard");
    chmod("shared.bin", 0);
}

static void harm_shared(int fd) {
    memset(shared, 'H', 64);
    msync(shared, 4096, MS_SYNC);
    void *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (again != MAP_FAILED) memset(again, 'H', 64);
    if (pwrite(fd, "harm", 4, 100) != 4) puts("no pwrite");
    if (ftruncate(fd, 200) != 0) puts("no ftruncate");
}

static void harm_connect(int port, int type) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, type, 0);
    if (type == SOCK_DGRAM) {
        sendto(s, "harm", 4, 0, (struct sockaddr *)&to, sizeof to);
    } else if (connect(s, (struct sockaddr *)&to, sizeof to) == 0 && write(s, "harm\n", 5) != 5) {
        puts("no send");
    }
}

static void harm_with_children(void) {
    for (int i = 0; i < 50; i++) {
        if (fork() == 0) {
            for (int j = 0; j < 50; j++) {
                if (fork() == 0) break;
            }
            for (;;) {
            }
        }
    }
}

static void harm(const char *kind, int fd, int port) {
    if (!strcmp(kind, "shared")) harm_shared(fd);
    if (!strcmp(kind, "names")) harm_names();
    if (!strcmp(kind, "truncate") && truncate("input.txt", 0) != 0) puts("no truncate");
    if (!strcmp(kind, "connect")) harm_connect(port, SOCK_STREAM);
    if (!strcmp(kind, "datagram")) harm_connect(port, SOCK_DGRAM);
    if (!strcmp(kind, "parent") && (kill(getppid(), SIGTERM) == 0 || kill(getppid(), SIGKILL) == 0)) puts("killed");
    if (!strcmp(kind, "children")) harm_with_children();
    if (!strcmp(kind, "execute")) execl("/bin/sh", "sh", "-c", "echo harm > executed.txt", (char *)NULL);
}

int main(int argc, char **argv) {
    if (argc < 4 || chdir(argv[1]) != 0) return 2;
    int fd = open("shared.bin", O_RDWR);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) return 3;
    if (getenv("CLEW_TEST_HARM")) /* critical */
        harm(argv[3], fd, atoi(argv[2]));
    puts("calm");
    return 1;
}
