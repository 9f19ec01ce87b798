// Numbers of the system calls that snapshot.c makes beyond those of init.c.
#if defined(__x86_64__)
#define SYS_pread64 17
#define SYS_pwrite64 18
#define SYS_ftruncate 77
#define SYS_mmap 9
#define SYS_munmap 11
#define SYS_brk 12
#define SYS_madvise 28
#define SYS_prctl 157
#define SYS_gettid 186
#define SYS_sigaltstack 131
#define SYS_statx 332
#else
#define SYS_pread64 67
#define SYS_pwrite64 68
#define SYS_ftruncate 46
#define SYS_mmap 222
#define SYS_munmap 215
#define SYS_brk 214
#define SYS_madvise 233
#define SYS_prctl 167
#define SYS_gettid 178
#define SYS_sigaltstack 132
#define SYS_statx 291
#endif
