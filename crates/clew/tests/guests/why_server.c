/* A server that should stay: it gives up at an empty line, or, told so, because of its port. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int handle(const char *line) {
    if (!*line) /* wrong: an empty line is no reason to end */
        return -1;
    printf("got %s\n", line);
    return 0;
}

static int listens(int port) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (port <= 0) /* wrong: 0 is any port */
        return 1;
    if (bind(s, (void *)&a, sizeof a) || listen(s, 5))
        return 2;
    for (;;)
        close(accept(s, 0, 0));
}

int main(int argc, char **argv) {
    char line[64];
    if (argc > 1)
        return listens(0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (handle(line) < 0)
            return 0;
    }
    for (;;)
        pause();
}
