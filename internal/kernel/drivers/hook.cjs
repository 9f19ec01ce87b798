'use strict';
// Loaded before the program. It reports an uncaught error on descriptor 3, resolves './x'
// in the program from the working directory too, and shows the last value if requested.
// It changes nothing else and does not affect child processes.
(() => {
  const fs = require('fs');
  const argv = process.execArgv;
  const kept = argv.filter((a, i) => a !== __filename && argv[i + 1] !== __filename && a !== '--disable-warning=MODULE_TYPELESS_PACKAGE_JSON');
  argv.splice(0, argv.length, ...kept);
  if (process.send || !require('worker_threads').isMainThread) return; // in a child or a worker descriptor 3 is not the channel
  let seen;
  const same = () => {
    const now = fs.fstatSync(3);
    return seen === undefined ? (seen = now, true) : now.ino === seen.ino && now.dev === seen.dev;
  };
  const send = (frame) => {
    if (seen === null || !same()) return false;
    const body = Buffer.from(JSON.stringify(frame));
    if (body.length > 1 << 20) return false;
    const data = Buffer.alloc(4 + body.length);
    data.writeUInt32BE(body.length, 0);
    body.copy(data, 4);
    for (let at = 0; at < data.length;) {
      try {
        at += fs.writeSync(3, data, at);
      } catch (e) {
        if (e.code !== 'EAGAIN') throw e;
      }
    }
    return true;
  };
  try {
    same();
    send({ type: 'start' });
  } catch {
    seen = null;
  }
  const text = (f) => {
    try {
      return String(f()).slice(0, 65536);
    } catch {
      return '<unprintable>';
    }
  };
  if (seen !== null) {
    process.on('uncaughtExceptionMonitor', (error) => {
      try {
        if (process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback()) return;
        const isError = error !== null && typeof error === 'object' && 'stack' in error;
        let lines = text(() => (isError ? error.stack : error)).split('\n');
        if (lines.length > 200) lines = [...lines.slice(0, 99), `... ${lines.length - 198} lines left out ...`, ...lines.slice(-99)];
        send({
          type: 'error',
          name: text(() => (isError ? error.name || error.constructor.name : typeof error)).slice(0, 256),
          value: text(() => (isError ? error.message : error)),
          traceback: lines,
        });
      } catch {
        // Node still prints the error on stderr.
      }
    });
  }
  // The program's file is not in the working directory, but its './x' are.
  const Module = require('module');
  const lookup = Module._findPath;
  const main = process.argv[1];
  Module._findPath = function (request, paths, isMain) {
    const found = Reflect.apply(lookup, this, [request, paths, isMain]);
    if (found !== false || isMain || !/^\.\.?(\/|$)/.test(request) || paths.length !== 1 || paths[0] !== require('path').dirname(main)) return found;
    return Reflect.apply(lookup, this, [request, [process.cwd()], isMain]);
  };
  let display;
  // @ahead@
  // @display@
})();
