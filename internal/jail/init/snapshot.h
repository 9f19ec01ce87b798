// Numbers of the system calls that snapshot.c and fork.c make beyond those of init.c, and the signature of restartable sequences.
#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
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
#define SYS_faccessat 269
#define SYS_getpid 39
#define SYS_sched_yield 24
#define SYS_getdents64 217
#define SYS_rseq 334
#define SYS_pidfd_open 434
#define SYS_process_madvise 440
#define SYS_seccomp 317
#else
#define RSEQ_SIGNATURE 0xd428bc00
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
#define SYS_faccessat 48
#define SYS_getpid 172
#define SYS_sched_yield 124
#define SYS_getdents64 61
#define SYS_rseq 293
#define SYS_pidfd_open 434
#define SYS_process_madvise 440
#define SYS_seccomp 277
#endif
