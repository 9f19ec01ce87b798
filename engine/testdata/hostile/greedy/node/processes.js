// tries: to start processes until it is refused, and again
// wall: the limit on tasks, and the timeout
// expect: the run ends as timed_out, and its session serves on
const { spawn } = require('child_process');
for (;;) {
  try { spawn('/bin/sleep', ['600']).on('error', () => {}) } catch {}
}
