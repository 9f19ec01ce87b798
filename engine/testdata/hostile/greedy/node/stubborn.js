// tries: to compute without end, and to ignore signals and exceptions
// wall: the timeout, which ends with SIGKILL
// expect: the run ends as timed_out, and its session serves on
process.on('SIGINT', () => {}); process.on('SIGTERM', () => {}); for (;;) try { for (;;); } catch {}
