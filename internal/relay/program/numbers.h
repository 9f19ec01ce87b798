// Numbers of the system calls that relay.c makes besides those of init.c.
#if defined(__x86_64__)
#define SYS_signalfd4 289
#define SYS_writev 20
#else
#define SYS_signalfd4 74
#define SYS_writev 66
#endif
