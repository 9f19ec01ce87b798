// tries: to fill its heap without end
// wall: the limit on memory
// expect: the run ends as out_of_memory or signalled or failed, and its session serves on
const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)
