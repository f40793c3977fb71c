/* A disk that fails or forgets, for the processes that preload this and the files below one folder.
 *
 * STORAGE_FAULTS_FILE holds, as int32: the error of a sync, of a write, of a read (0 for none), and
 * how many syncs succeed before theirs begins. STORAGE_FAULTS_TRACE, where it is set, gets every
 * write, sync, change of size, removal and new name, in their order, as struct entry and what
 * follows it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC, SIZE, REMOVE, RENAME };

struct entry {
    uint32_t kind, path_bytes;
    int64_t offset, bytes;
};

struct orders {
    volatile int32_t sync_errno, write_errno, read_errno, syncs_left;
};

static struct orders none, *orders = &none;
static const char *folder;
static int trace = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STORAGE_FAULTS_FILE");
    int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
    folder = getenv("STORAGE_FAULTS_FOLDER");
    if (fd >= 0) {
        void *found = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found != MAP_FAILED)
            orders = found;
        close(fd);
    }
    if ((path = getenv("STORAGE_FAULTS_TRACE")))
        trace = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_ours(const char *path)
{
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_ours(path);
}

static void note(uint32_t kind, const char *path, int64_t offset, const void *data, int64_t bytes)
{
    struct entry head = {kind, (uint32_t)strlen(path), offset, bytes};
    struct iovec parts[] = {
        {&head, sizeof head}, {(void *)path, head.path_bytes}, {(void *)data, data ? bytes : 0}};
    if (trace >= 0)
        (void)!REAL(writev)(trace, parts, 3);
}

static int fails(int32_t number)
{
    errno = number;
    return number != 0;
}

static ssize_t put(int fd, const void *data, size_t bytes, off64_t offset, int is_at)
{
    char path[PATH_MAX];
    int kept = errno, ours = path_of(fd, path);
    ssize_t done;
    errno = kept;
    if (!ours)
        return is_at ? REAL(pwrite64)(fd, data, bytes, offset) : REAL(write)(fd, data, bytes);
    if (fails(orders->write_errno))
        return -1;
    pthread_mutex_lock(&order);
    if (!is_at)
        offset = lseek64(fd, 0, SEEK_CUR);
    done = is_at ? REAL(pwrite64)(fd, data, bytes, offset) : REAL(write)(fd, data, bytes);
    if (done > 0)
        note(WRITE, path, offset, data, done);
    pthread_mutex_unlock(&order);
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return put(fd, data, bytes, 0, 0);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return put(fd, data, bytes, offset, 1);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    return put(fd, data, bytes, offset, 1);
}

static ssize_t get(int fd, void *data, size_t bytes, off64_t offset)
{
    char path[PATH_MAX];
    int kept = errno, ours = path_of(fd, path);
    errno = kept;
    if (ours && fails(orders->read_errno))
        return -1;
    return REAL(pread64)(fd, data, bytes, offset);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    return get(fd, data, bytes, offset);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset)
{
    return get(fd, data, bytes, offset);
}

static int sync_file(int fd, int (*how)(int))
{
    char path[PATH_MAX];
    int kept = errno, ours = path_of(fd, path), done;
    errno = kept;
    if (!ours)
        return how(fd);
    if (orders->sync_errno && __atomic_sub_fetch(&orders->syncs_left, 1, __ATOMIC_SEQ_CST) < 0) {
        errno = orders->sync_errno;
        return -1;
    }
    pthread_mutex_lock(&order);
    done = trace >= 0 ? 0 : how(fd);
    if (done == 0)
        note(SYNC, path, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    return done;
}

int fsync(int fd)
{
    return sync_file(fd, REAL(fsync));
}

int fdatasync(int fd)
{
    return sync_file(fd, REAL(fdatasync));
}

static int resize(int fd, off64_t size)
{
    char path[PATH_MAX];
    int ours = path_of(fd, path), done;
    pthread_mutex_lock(&order);
    done = REAL(ftruncate64)(fd, size);
    if (ours && done == 0)
        note(SIZE, path, size, NULL, 0);
    pthread_mutex_unlock(&order);
    return done;
}

int ftruncate(int fd, off_t size)
{
    return resize(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return resize(fd, size);
}

int unlink(const char *path)
{
    int done = REAL(unlink)(path);
    if (done == 0 && is_ours(path))
        note(REMOVE, path, 0, NULL, 0);
    return done;
}

int rename(const char *path, const char *target)
{
    int done = REAL(rename)(path, target);
    if (done == 0 && is_ours(path))
        note(RENAME, path, 0, target, (int64_t)strlen(target));
    return done;
}
