  // This node was started ahead of a request. It loads modules that programs often need,
  // and then waits on descriptor 4 for the start message with the program's variables.
  for (const name of ['net', 'tty', 'stream', 'vm']) require(name);
  // A line to nowhere compiles what console.log needs. Its stream never finishes the write, so
  // that no callback is left for later.
  new console.Console(new (require('stream').Writable)({ write() {} })).log('%s', 1, { a: ['b'] });
  try {
    const Warm = require('module');
    Warm._findPath('/', [''], true);
    new Warm('/')._compile('', '/');
  } catch {
    // This only warms up the loader.
  }
  const take = (length) => {
    const data = Buffer.alloc(length);
    for (let at = 0, n; at < length; at += n) {
      n = fs.readSync(4, data, at, length - at, null);
      if (n === 0) process.reallyExit(0); // the server has ended or does not need this node
    }
    return data;
  };
  let env;
  ({ env, display } = JSON.parse(take(take(4).readUInt32BE(0)).toString()));
  fs.closeSync(4);
  if (env !== undefined) {
    for (const name of Object.keys(process.env)) delete process.env[name];
    for (const entry of env) process.env[entry.slice(0, entry.indexOf('='))] = entry.slice(entry.indexOf('=') + 1);
  }
