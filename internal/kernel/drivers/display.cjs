// Shows the value of the last expression of a program that is run once.
//
// V8 tells what a script ends with, but not what a function does, and node makes a
// function of a CommonJS module. So a program that ends with an expression is
// evaluated as a script, with a module's names beside it; its text stays as it is.
// Every other one is left to node and shows nothing: an ES module, one that imports
// at all, one that awaits at its top.
const fs = require('fs');
const util = require('util');
const vm = require('vm');
const Module = require('module');
const path = require('path');

//@values.cjs

function show(value) {
  // What is given back for chaining is nobody's answer: timers, servers, streams.
  if (value === undefined || typeof value?.unref === 'function' || value instanceof require('events')) return;
  const own = ownForms(value);
  if (display === 'stdout') process.stdout.write(util.inspect(value) + '\n');
  if (display === 'stdout' && own === undefined) return;
  const data = forms(value, own);
  const frame = (data) => ({ type: 'display', data: { ...data, is_main_result: true } });
  if (!send(frame(data))) send(frame({ 'text/plain': data['text/plain'] }));
}

// script is a program as a script; undefined: it is none with a value.
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
if (found) Module.prototype._compile = function _compile() { // the first one that is asked for is the program
  Module.prototype._compile = compile;
  const module = this;
  const require = Object.assign((id) => module.require(id), Module.createRequire(filename));
  const names = { exports: module.exports, require, module, __filename: filename, __dirname: path.dirname(filename) };
  for (const [name, value] of Object.entries(names)) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const value = found.compiled.runInThisContext({ displayErrors: false });
  try {
    if (!util.types.isPromise(value)) show(value);
    else if (!/^[\w$.]+$/.test(found.text)) value.then(show); // one that has a name is waited for by whom it concerns
  } catch {
    // It cannot be shown.
  }
  return undefined;
};
