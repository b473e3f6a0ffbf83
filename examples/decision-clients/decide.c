/* How long must a client wait for what it used? Asked of a running daemon in the binary form, all in one message.
 *
 *     cc -o decide decide.c && ./decide SOCKET USER CLIENT_ID TYPE AMOUNT...
 *
 * TYPE: 1 produce, 2 fetch, 3 request, 4 controller mutation, 5 request rate. Every amount is charged.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_ASKED = 1000, RECORD = 1, NO_BROKER = -1, FAILED = 2 };
static const unsigned char MAGIC[4] = {0, 'K', 'Q', 1};

static unsigned char *put(unsigned char *to, uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) *to++ = (unsigned char)(value >> shift);
    return to;
}

static unsigned char *put_double(unsigned char *to, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put(to, bits, 8);
}

static uint64_t get(const unsigned char **from, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *(*from)++;
    return value;
}

static void read_all(int fd, unsigned char *to, size_t count) {
    while (count > 0) {
        ssize_t got = read(fd, to, count);
        if (got <= 0) {
            fprintf(stderr, "the daemon closed the connection\n");
            exit(1);
        }
        to += got;
        count -= (size_t)got;
    }
}

static void write_all(int fd, const unsigned char *from, size_t count) {
    while (count > 0) {
        ssize_t put_now = write(fd, from, count);
        if (put_now <= 0) {
            perror("write");
            exit(1);
        }
        from += put_now;
        count -= (size_t)put_now;
    }
}

static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned char greeting[sizeof MAGIC];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(path);
        exit(1);
    }
    write_all(fd, MAGIC, sizeof MAGIC);
    read_all(fd, greeting, sizeof greeting);
    if (memcmp(greeting, MAGIC, sizeof MAGIC) != 0) {
        fprintf(stderr, "%s speaks another version, or does not let you ask\n", path);
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    int asked = argc - 5;
    if (asked < 1 || asked > MAX_ASKED) {
        fprintf(stderr, "usage: decide SOCKET USER CLIENT_ID TYPE AMOUNT...\n");
        return 2;
    }
    size_t user = strlen(argv[2]), client_id = strlen(argv[3]);
    unsigned char *frame = malloc(10 + (size_t)asked * (21 + user + client_id));
    if (frame == NULL || user > 0xFFFF || client_id > 0xFFFF) return 1;
    unsigned char *to = put(put(frame + 4, 7, 4), (uint64_t)asked, 2); /* 7: any number, the answer repeats it */
    for (int i = 0; i < asked; i++) {
        to = put(put(to, RECORD, 1), (uint64_t)atoi(argv[4]), 1);
        to = put(to, (uint32_t)NO_BROKER, 4);
        to = put_double(to, atof(argv[5 + i]));
        to = put(put(put(put(to, user, 2), client_id, 2), 0, 1), 0, 2); /* no ip, no topic */
        memcpy(to, argv[2], user);
        memcpy(to + user, argv[3], client_id);
        to += user + client_id;
    }
    put(frame, (uint64_t)(to - frame - 4), 4);

    int fd = connected(argv[1]), failures = 0;
    write_all(fd, frame, (size_t)(to - frame));
    unsigned char head[4];
    read_all(fd, head, sizeof head);
    const unsigned char *from = head;
    size_t length = (size_t)get(&from, 4);
    unsigned char *answer = malloc(length + 1);
    if (answer == NULL) return 1;
    read_all(fd, answer, length);
    from = answer + 6; /* number and count */
    for (int i = 0; i < asked; i++) {
        unsigned status = (unsigned)get(&from, 1);
        int delay_ms = (int)get(&from, 4);
        from += 16; /* limit and observed rate, two doubles */
        int quota = (int)get(&from, 2), entity = (int)get(&from, 2);
        if (status == FAILED) {
            fprintf(stderr, "%.*s\n", quota, (const char *)from);
            failures = 1;
        } else {
            printf("%s: wait %d ms (", argv[5 + i], delay_ms);
            if (entity > 0) printf("%.*s of %.*s)\n", quota, (const char *)from, entity, (const char *)from + quota);
            else printf("no limit)\n");
        }
        from += quota + entity;
    }
    free(answer);
    free(frame);
    close(fd);
    return failures;
}
