// Shows the value of the last expression of a program that is run once.
//
// V8 returns the last value of a script but not of a function, and node wraps a CommonJS
// module in a function. A program that ends with an expression is therefore evaluated as
// a script, with a module's names as globals. Its text is not changed. Node runs every
// other program itself, and no value is shown: ES modules, and programs with an import
// or a top-level await.
const fs = require('fs');
const util = require('util');
const vm = require('vm');
const Module = require('module');
const path = require('path');

//@values.cjs

function show(value) {
  // Timers, servers and streams are return values for chaining and not worth showing.
  if (value === undefined || typeof value?.unref === 'function' || value instanceof require('events')) return;
  const own = ownForms(value);
  if (display === 'stdout') process.stdout.write(util.inspect(value) + '\n');
  if (display === 'stdout' && own === undefined) return;
  const data = forms(value, own);
  const frame = (data) => ({ type: 'display', data: { ...data, is_main_result: true } });
  if (!send(frame(data))) send(frame({ 'text/plain': data['text/plain'] }));
}

// script compiles a program as a script. It returns undefined if that has no value to show.
function script(code, filename) {
  try {
    const text = lastExpression(code);
    return text && { text, compiled: new vm.Script(code, { filename }) };
  } catch {
    return undefined;
  }
}

const filename = process.argv[1];
const found = script(fs.readFileSync(filename, 'utf8'), filename);
const compile = Module.prototype._compile;
if (found) Module.prototype._compile = function _compile() { // the first module that is compiled is the program
  Module.prototype._compile = compile;
  const module = this;
  const require = Object.assign((id) => module.require(id), Module.createRequire(filename));
  const names = { exports: module.exports, require, module, __filename: filename, __dirname: path.dirname(filename) };
  for (const [name, value] of Object.entries(names)) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const value = found.compiled.runInThisContext({ displayErrors: false });
  try {
    if (!util.types.isPromise(value)) show(value);
    else if (!/^[\w$.]+$/.test(found.text)) value.then(show); // a promise in a variable is not shown: the program waits for it itself
  } catch {
    // It cannot be shown.
  }
  return undefined;
};
