'use strict';
// The driver of Node.js sessions. It reads cells as frames from descriptor 4 and answers
// on descriptor 3.
//
// V8's inspector evaluates a cell in REPL mode: a later cell may declare const, let and
// class again, top-level await works, and the last expression has a value. The text is
// changed only for imports, which the inspector does not allow: import() gets another name
// of the same length, and a static import becomes a dynamic one.
//
// The end of a cell. If the value is a promise, the driver awaits it. Then, as at the end
// of a program, it waits for everything that ends by itself: timeouts, files, lookups,
// requests, child processes, workers. It does not wait for what has no end of its own:
// servers, the connections that they accepted, intervals, watchers, and handles that the
// cell has unref()'d. These go on. It waits at most LINGER for a connection that the cell
// made and that is not an HTTP request, such as one to a database. "beforeExit" reports
// that the event loop is empty: during a cell the channel does not keep the loop alive,
// and handles that are not waited for are unref()'d.
//
// SIGINT ends the current cell. The main thread handles it only in its event loop, so a
// second thread handles it, too, and makes V8 terminate the running code. The cell's
// timers are cleared. Other things that it has started go on, but are not waited for.
const fs = require('fs');
const os = require('os');
const net = require('net');
const path = require('path');
const util = require('util');
const Module = require('module');
const { pathToFileURL } = require('url');
const { Session } = require('inspector');
const { Worker } = require('worker_threads');
const timers = require('timers');
const vm = require('vm');
const { promiseHooks } = require('v8');
const sleeps = require('timers/promises');

const LINGER = 1000; // ms
const MAX_FRAME = 1 << 20;
const MAX_SHOWN = 8 << 20; // bytes of a cell's displays
const MAX_VALUES = 256; // displays of a cell that count
// Programs may replace these, for example in tests.
const really = { exit: process.reallyExit.bind(process), write: fs.writeSync, setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, now: performance.now.bind(performance) };
const EXIT = Symbol('exit');
process.execArgv.length = 0;

let cell = null; // the current cell
let cells = 0; // number of cells so far
let showable = MAX_SHOWN; // bytes that the cell may still display
let displays = 0; // displays of the cell
let last = 0; // id of the latest cell

// The channel.

function send(frame) {
  const body = Buffer.from(JSON.stringify(frame));
  if (body.length > MAX_FRAME) return false;
  if (frame.type === 'display') {
    if (showable < 0 || displays > MAX_VALUES) return true; // the last frame was too much: the server has left it out, and says so
    showable -= body.length;
    displays++;
  }
  const data = Buffer.alloc(4 + body.length);
  data.writeUInt32BE(body.length, 0);
  body.copy(data, 4);
  for (let at = 0; at < data.length;) {
    try {
      at += really.write(3, data, at);
    } catch (e) {
      if (e.code !== 'EAGAIN') return false;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
  return true;
}

const channel = new net.Socket({ fd: 4, readable: true, writable: false });
let input = Buffer.alloc(0);
const waiting = [];
channel.on('data', (data) => {
  input = input.length ? Buffer.concat([input, data]) : data;
  while (input.length >= 4 && input.length >= 4 + input.readUInt32BE(0)) {
    const size = 4 + input.readUInt32BE(0);
    waiting.push(JSON.parse(input.subarray(4, size)));
    input = input.subarray(size);
  }
  really.setImmediate(next); // after a signal that came before the cell: the event loop handles signals last
});
for (const event of ['close', 'error']) {
  channel.on(event, () => {
    session.disconnect();
    really.exit(0);
  });
}

function next() {
  while (!cell && waiting.length) {
    const m = waiting.shift();
    if (m.type === 'execute') begin(m);
  }
}

// The module that cells run in.

let home; // a module in the working directory; its file need not exist
function base() {
  const dir = process.cwd();
  if (!home || home.dir !== dir) {
    const filename = path.join(dir, 'cell.js');
    home = { dir, filename, require: Module.createRequire(filename), import: importer(filename) };
  }
  return home;
}

const main = new Module(base().filename, null);
main.filename = home.filename;
main.paths = Module._nodeModulePaths(home.dir);
main.id = '.';
main.loaded = true;
process.mainModule = main;
process.argv = [process.execPath, home.filename];

function cellRequire(name) {
  return base().require(name);
}
cellRequire.resolve = Object.assign((name, options) => base().require.resolve(name, options), { paths: (name) => base().require.resolve.paths(name) });
Object.assign(cellRequire, { main, cache: home.require.cache, extensions: home.require.extensions });
main.require = cellRequire;

function cellImport(name, options) {
  if (name === 'sandbox') return Promise.resolve({ default: sandbox, ...sandbox });
  return elsewhere.reduce(
    (found, from) => found.catch((e) => (e?.code === 'ERR_MODULE_NOT_FOUND' && /^[^./]/.test(name) && e.message.includes(`'${name.split('/')[0]}`) ? from(name, options) : Promise.reject(e))),
    base().import(name, options),
  );
}

// Directories of packages that cells have brought. require finds them by NODE_PATH, and import as
// a module beside them does.
let brought = '';
let elsewhere = []; // import functions of these modules
function seePackages(places) {
  if (places.join() === brought) return;
  brought = places.join();
  Module._initPaths();
  elsewhere = places.map((place) => importer(path.join(path.dirname(place), 'cell.js')));
}

// importer returns the import function of a module; its file need not exist.
function importer(filename) {
  const m = new Module(filename, null);
  m.filename = filename;
  m.paths = Module._nodeModulePaths(path.dirname(filename));
  try {
    m._compile('module.exports = (name, options) => import(name, options)', filename);
  } catch {
    m._compile('module.exports = (name) => import(name)', filename);
  }
  return m.exports;
}
cellImport.meta = {
  get dirname() { return base().dir; },
  get filename() { return base().filename; },
  get url() { return pathToFileURL(base().filename).href; },
  resolve: (name) => (/^\.{0,2}\//.test(name) ? new URL(name, cellImport.meta.url).href : pathToFileURL(base().require.resolve(name)).href),
};

for (const [name, value] of Object.entries({ require: cellRequire, module: main, exports: main.exports, $mport: cellImport })) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
for (const [name, get] of [['__dirname', () => base().dir], ['__filename', () => base().filename]]) {
  Object.defineProperty(globalThis, name, { get, set(value) { Object.defineProperty(globalThis, name, { value, writable: true, configurable: true }); }, configurable: true });
}

//@session_sandbox.cjs

// Errors.

// withoutOurs removes the frames of this driver from the stacks of an error and of its causes.
function withoutOurs(error, depth = 0) {
  if (!util.types.isNativeError(error) || depth > 8) return;
  try {
    if (typeof error.stack === 'string') {
      const lines = error.stack.split('\n');
      const at = lines.findIndex((l) => /^ +at /.test(l) && (l.includes('(node:inspector:') || l.includes(__filename)));
      if (at >= 0) error.stack = lines.filter((l, i) => i < at || !/^ +at /.test(l)).join('\n');
    }
    withoutOurs(error.cause, depth + 1);
    if (Array.isArray(error.errors)) error.errors.slice(0, 20).forEach((e) => withoutOurs(e, depth + 1));
  } catch {
    // leave the error unchanged
  }
}

function text(f, limit = 65536) {
  try {
    return String(f()).slice(0, limit);
  } catch {
    return '<unprintable>';
  }
}

function complain(words) {
  try {
    really.write(2, words);
  } catch {
    process.stderr.write(words);
  }
}

function report(error) {
  withoutOurs(error);
  const isError = util.types.isNativeError(error) || (error !== null && typeof error === 'object' && 'stack' in error);
  complain((isError ? '' : 'Uncaught ') + text(() => util.inspect(error), MAX_TEXT) + '\n');
  if (!cell) return;
  let lines = text(() => (isError ? error.stack : util.inspect(error))).split('\n');
  if (lines.length > 200) lines = [...lines.slice(0, 99), `... ${lines.length - 198} lines left out ...`, ...lines.slice(-99)];
  send({
    type: 'error',
    id: cell.id,
    name: text(() => (isError ? error.name || error.constructor.name : typeof error), 256),
    value: text(() => (isError ? error.message : util.inspect(error))),
    traceback: lines,
  });
}

for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, (error) => {
    if (error === EXIT) return void (cell?.exit !== undefined && finish(0));
    if (error?.cause === EXIT) return; // a sleep of an interrupted cell
    if (process.listenerCount(event) > 1) return; // the program handles it
    report(error);
    if (cell) finish(1);
  });
}

process.exit = (code = process.exitCode) => {
  if (cell) cell.exit ??= Number(code ?? 0) & 255;
  throw EXIT;
};

//@session_imports.cjs

// Timers are tracked by cell, so that those of an interrupted cell can be cleared and
// intervals can be unref()'d.

const alive = new Map(); // timer → cell
let room = 256;
function track(timer) {
  alive.set(timer, cell);
  if (alive.size > room) {
    for (const t of alive.keys()) if (t._destroyed) alive.delete(t);
    room = Math.max(256, 2 * alive.size);
  }
  return timer;
}

const tracked = {
  apply: (f, self, args) => track(Reflect.apply(f, self, args)),
  get: (f, name) => (f === really.setTimeout && name === util.promisify.custom ? sleeps.setTimeout : f[name]),
};
for (const name of ['setTimeout', 'setInterval']) globalThis[name] = timers[name] = new Proxy(really[name], tracked);
const sleep = sleeps.setTimeout;
sleeps.setTimeout = new Proxy(sleep, {
  apply(f, self, [ms, value, options]) {
    if (!cell || options?.signal) return Reflect.apply(f, self, [ms, value, options]);
    const end = new AbortController();
    const mine = cell;
    mine.sleeps.add(end);
    return Reflect.apply(f, self, [ms, value, { ...options, signal: end.signal }]).finally(() => mine.sleeps.delete(end));
  },
});
Module.syncBuiltinESMExports();

// parked are handles without an end of their own, which were unref()'d so that a cell can end.
const parked = new Set();

function unpark() {
  for (const h of parked) h.ref();
  parked.clear();
}

function park(everything) {
  const lingered = cell && really.now() - cell.since > LINGER;
  for (const h of process._getActiveHandles()) {
    if (typeof h.unref !== 'function' || h === channel) continue;
    const isConnection = h instanceof net.Socket && h.remotePort !== undefined;
    const isEndless = h instanceof net.Server || h.constructor?.name === 'FSWatcher' || h.constructor?.name === 'StatWatcher' || (h.constructor?.name === 'Socket' && typeof h.bind === 'function') || (isConnection && (h.server || (lingered && !h._httpMessage)));
    if (everything || isEndless) h.unref();
    if (isEndless) parked.add(h);
  }
  for (const t of alive.keys()) {
    if (t._destroyed || !t._repeat || !t.hasRef()) continue;
    t.unref();
    parked.add(t);
  }
}

function counts() {
  const n = {};
  for (const kind of process.getActiveResourcesInfo()) n[kind] = (n[kind] ?? 0) + 1;
  return n;
}

// Evaluation.

let session = new Session();
session.connect();
const running = new Set(); // pending promises of cells

// evaluate starts a cell. The inspector answers when the cell's promise is settled, or at
// once if the cell cannot start. The cell's promise is the first promise that is created
// during the call. It is kept in running, because the inspector ends the process if a
// pending one is garbage-collected. The cell's value is read from it, because the
// inspector's answer has only descriptions of values.
function evaluate(code, name) {
  let answer;
  let promise;
  const unhook = promiseHooks.onInit((p) => {
    promise = p;
    unhook();
  });
  const forget = () => session.post('Runtime.releaseObjectGroup', { objectGroup: name });
  session.post('Runtime.evaluate', { expression: `${code}\n//# sourceURL=${name}`, replMode: true, objectGroup: name, silent: true }, (error, result) => {
    answer = { error, wrong: result?.exceptionDetails };
    if (promise && !error) forget();
  });
  unhook();
  if (promise && !answer) {
    running.add(promise);
    return { promise: promise.finally(() => running.delete(promise)) };
  }
  if (answer?.error) return { isInterrupted: true };
  const { wrong } = answer;
  forget();
  const lines = code.split('\n');
  const isInside = wrong.lineNumber < lines.length;
  return {
    wrong: {
      name: wrong.exception?.className ?? 'SyntaxError',
      message: (wrong.exception?.description ?? wrong.text).split('\n    at ')[0].replace(/^\w+: /, ''),
      line: isInside ? wrong.lineNumber + 1 : lines.length,
      col: isInside ? wrong.columnNumber + 1 : lines[lines.length - 1].length + 1,
    },
  };
}

// Interrupts. The second thread counts signals. The main thread counts the handled signals
// in shared[0] and sets shared[1] while a cell runs. The thread that is first sets shared[2]
// of a cell: the second one to 1 before it terminates the running code, the main one to 2
// before it ends the cell. Otherwise the code that ends the cell could be terminated, too.

const shared = new Int32Array(new SharedArrayBuffer(12));

function watch() {
  const emit = process.emitWarning;
  process.emitWarning = () => {};
  const { Signal } = require('internal/test/binding').internalBinding('signal_wrap');
  process.emitWarning = emit;
  const { workerData: shared } = require('worker_threads');
  const fs = require('fs');
  const session = new (require('inspector').Session)();
  session.connectToMainThread();
  let seen = 0;
  const handled = (ms) => {
    for (const end = performance.now() + ms; Atomics.load(shared, 0) < seen;) {
      const left = end - performance.now();
      if (left <= 0) return false;
      Atomics.wait(shared, 0, Atomics.load(shared, 0), left);
    }
    return true;
  };
  const tell = (parent) => {
    for (const pid of fs.readdirSync('/proc')) {
      try {
        if (!/^\d+$/.test(pid) || Number(/\) \S (\d+)/.exec(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'))[1]) !== parent) continue;
        tell(Number(pid));
        process.kill(Number(pid), 'SIGINT');
      } catch {
        // the process has ended or is not visible
      }
    }
  };
  const signal = new Signal();
  signal.onsignal = () => {
    seen++;
    if (handled(50) || Atomics.load(shared, 1) === 0 || Atomics.compareExchange(shared, 2, 0, 1) === 2) return;
    session.post('Runtime.terminateExecution');
    // The main thread may wait for a child, or start to. A terminal would also send SIGINT to the children.
    for (let i = 0; i < 50 && !handled(100); i++) tell(process.pid);
  };
  signal.start(2);
}

process.on('SIGINT', () => {
  if (cell) {
    Atomics.compareExchange(shared, 2, 0, 2);
    interrupted();
  }
  Atomics.add(shared, 0, 1);
  Atomics.notify(shared, 0);
});
try {
  const watcher = new Worker(`(${watch})()`, { eval: true, workerData: shared, execArgv: ['--expose-internals'], stdout: true, stderr: true });
  watcher.on('error', () => {}); // without the thread a busy loop cannot be interrupted
  watcher.unref();
} catch {
  // without the thread a busy loop cannot be interrupted
}

let wasInterrupted = false;
let stale = false; // an interrupted cell has left handles that keep the loop alive

function interrupted() {
  for (const [t, owner] of alive) if (owner === cell) really.clearTimeout(t);
  const left = [...cell.sleeps];
  if (Atomics.load(shared, 2) === 1) {
    // The terminated code may have been about to settle the cell's promise. The inspector
    // would end the process when it collects that promise, so start a new session.
    session.disconnect();
    session = new Session();
    session.connect();
  }
  complain('Interrupted\n');
  send({ type: 'error', id: cell.id, name: 'Interrupted', value: 'the cell was interrupted', traceback: ['Interrupted: the cell was interrupted'] });
  park(true);
  stale = wasInterrupted = true;
  finish(130);
  left.forEach((end) => end.abort(EXIT));
}

// The cell.

function begin(m) {
  cell = { id: m.id, display: m.display, exit: undefined, settled: false, since: 0, env: [], sleeps: new Set() };
  last = m.id;
  showable = MAX_SHOWN;
  displays = 0;
  Atomics.store(shared, 2, 0);
  Atomics.store(shared, 1, 1);
  unpark();
  channel.unref();
  cell.before = stale ? counts() : null;
  process.exitCode = undefined;
  for (const [name, value] of Object.entries(m.env ?? {})) {
    cell.env.push([name, process.env[name]]);
    process.env[name] = value;
  }
  seePackages(m.modules ?? []);
  setInput(m.stdin);
  const name = `cell-${++cells}.js`;
  const text = adapt(m.code);
  const mine = cell;
  send({ type: text.parses ? 'start' : 'try', id: m.id });
  cell.isShown = cell.display !== 'none' && lastExpression(text.code) !== undefined; // the inspector also returns values of other statements
  const { promise, wrong, isInterrupted } = evaluate(text.code, name);
  if (isInterrupted) return Atomics.load(shared, 2) === 1 ? channel.ref() : interrupted();
  if (wrong) return refuse(wrong, m.code, name, text.parses);
  if (!text.parses) send({ type: 'start', id: m.id });
  promise.then(async (value) => {
    value = value['.repl_result'];
    if (util.types.isPromise(value)) value = await value;
    if (cell === mine) settle(value);
  }).catch((error) => {
    if (cell !== mine) return;
    if (error !== EXIT) report(error);
    finish(1);
  });
}

// refuse reports that the cell was not compiled.
function refuse({ name, message, line, col }, code, file, isLate) {
  if (!isLate) send({ type: 'syntax', id: cell.id, name, message, line, col });
  const shown = code.split('\n')[line - 1] ?? '';
  const place = [`${file}:${line}`, ...(shown.length < 2000 ? [shown, ' '.repeat(col - 1) + '^'] : []), ''];
  const lines = [...place, ...`${name}: ${message}`.split('\n')];
  complain(lines.join('\n') + '\n');
  send({ type: 'error', id: cell.id, name, value: message, traceback: lines });
  finish(1);
}

// settle shows the value of a cell. The cell ends when the event loop is empty.
function settle(value) {
  cell.settled = true;
  cell.since = really.now();
  if (value !== undefined && cell.isShown) {
    if (cell.display === 'results') show(value, true);
    else if (cell.display === 'stdout') console.log(util.inspect(value));
  }
  park(false);
  cell.poll = really.setInterval(() => {
    park(false);
    if (!cell.before) return;
    const now = counts();
    if (Object.keys(now).every((kind) => now[kind] <= (cell.before[kind] ?? 0))) finish(0);
  }, 20).unref();
}

process.on('beforeExit', () => {
  if (!cell) return void channel.ref();
  if (Atomics.load(shared, 2) === 1) return void channel.ref(); // the main thread has not handled the signal yet
  stale = false;
  if (cell.settled) return finish(0);
  if (wasInterrupted) return void channel.ref(); // the cell may await something that an interrupted cell has started
  complain('Warning: Detected unsettled top-level await\n');
  finish(13);
});

// finish ends the cell. The code of process.exit comes before exit, and exit before process.exitCode.
function finish(exit) {
  const { id, env, poll, exit: wanted } = cell;
  exit = wanted ?? (exit || (Number(process.exitCode ?? 0) & 255));
  really.clearInterval(poll);
  park(false);
  for (const [name, value] of env) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  setInput();
  process.exitCode = undefined;
  session.post('Runtime.discardConsoleEntries');
  cell = null;
  Atomics.store(shared, 1, 0);
  channel.ref();
  send({ type: 'done', id, ok: exit === 0, exit });
  really.setImmediate(next);
}

// Standard input: descriptor 0 is opened again for each cell that has input.

let stdin; // the stream of descriptor 0, once the cell has used it
let hasInput = false;
function setInput(data) {
  stdin?.destroy();
  stdin = undefined;
  if (data === undefined && !hasInput) return;
  hasInput = data !== undefined;
  let name = os.devNull;
  if (hasInput) {
    name = path.join(os.tmpdir(), `.stdin.${process.pid}.${last}`);
    fs.writeFileSync(name, Buffer.from(data, 'base64'), { mode: 0o600 });
  }
  try {
    fs.closeSync(0);
  } catch {
    // the program has closed it
  }
  fs.openSync(name, 'r'); // gets the lowest free descriptor, 0
  if (hasInput) fs.unlinkSync(name);
}
Object.defineProperty(process, 'stdin', {
  get: () => (stdin ??= Object.assign(new fs.ReadStream(null, { fd: 0, autoClose: false }), { fd: 0 })),
  configurable: true,
  enumerable: true,
});

for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
send({ type: 'ready' });
