'use strict';
// Loaded before the program. It reports an uncaught error on descriptor 3, resolves './x'
// in the program from the working directory too, gives ES modules in .js files the variables
// of CommonJS, and shows the last value if requested.
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
  // Directories of packages: require finds them by NODE_PATH, and import as a module beside them does.
  const places = (process.env.NODE_PATH || '').split(':').slice(1);
  if (places.length) {
    const beside = places.map((place) => require('url').pathToFileURL(require('path').join(place, '../main.js')).href);
    const elsewhere = (e, name) => e?.code === 'ERR_MODULE_NOT_FOUND' && !/^([./#]|[a-z]+:)/.test(name);
    if (Module.registerHooks) {
      Module.registerHooks({
        resolve(name, context, next) {
          try {
            return next(name, context);
          } catch (e) {
            if (!elsewhere(e, name)) throw e;
            for (const parentURL of beside) {
              try {
                return next(name, { ...context, parentURL });
              } catch {
                // The next directory may have it.
              }
            }
            throw e;
          }
        },
      });
    } else if (Module.register) {
      const text = `const beside = ${JSON.stringify(beside)}, elsewhere = ${elsewhere};
        export const resolve = (name, context, next) => beside.reduce(
          (found, parentURL) => found.catch((e) => (elsewhere(e, name) ? next(name, { ...context, parentURL }).catch(() => Promise.reject(e)) : Promise.reject(e))),
          new Promise((done) => done(next(name, context))));`;
      Module.register('data:text/javascript,' + encodeURIComponent(text));
    }
  }
  // What CommonJS programs have, for a .js file that node takes for an ES module: one with import
  // or a top-level await. In CommonJS the module's own variables of these names come first.
  if (main && main.endsWith('.js')) {
    let own;
    const parts = () => {
      if (own) return own;
      const module = Object.assign(new Module(main), { filename: main, paths: Module._nodeModulePaths(require('path').dirname(main)) });
      const load = Object.assign(Module.createRequire(main), { main: module });
      return (own = { require: load, module, __filename: main, __dirname: require('path').dirname(main) });
    };
    for (const name of ['require', 'module', '__filename', '__dirname']) {
      Object.defineProperty(globalThis, name, {
        configurable: true, enumerable: false, get: () => parts()[name],
        set: (value) => Object.defineProperty(globalThis, name, { configurable: true, enumerable: true, writable: true, value }),
      });
    }
  }
  // Node destroys its heap before it ends, which takes a twentieth of a small run. No program sees that if it has ended well and has no exit
  // handlers and no addons. Node looks up process.emit when it ends. The getter below is on the prototype, so it is neither among the program's handlers
  // nor on its stack.
  const events = require('events').prototype;
  const { emit, listenerCount } = events;
  const exit = process.reallyExit;
  let asked = false;
  const nothingLeft = () => {
    try {
      if (asked || !process._exiting) return false;
      asked = true; // later, exit handlers may be running
      return !process.exitCode && events.emit === emit && process.reallyExit === exit &&
        Reflect.apply(listenerCount, process, ['exit']) === 0 && !Object.keys(Module._cache).some((name) => name.endsWith('.node'));
    } catch {
      return false;
    }
  };
  const early = parseInt(process.versions.node, 10) >= 20 && !kept.length && !process.env.NODE_OPTIONS && !process.env.NODE_V8_COVERAGE;
  if (early) Object.defineProperty(Object.getPrototypeOf(process), 'emit', {
    configurable: true, enumerable: false,
    get() {
      if (this === process && nothingLeft()) Reflect.apply(exit, process, [0]);
      return events.emit;
    },
    set(value) {
      Object.defineProperty(this, 'emit', { configurable: true, enumerable: true, writable: true, value });
    },
  });
  let display;
  // @ahead@
  // @display@
})();
