// Runs npm in this process. The order on standard input has its arguments, its environment, and
// files that it needs in the working directory.
'use strict';
const fs = require('fs');
const path = require('path');

const order = JSON.parse(fs.readFileSync(0, 'utf8'));
const own = path.join(path.dirname(process.execPath), '..');
const found = [path.join(own, 'lib/node_modules/npm'), path.join(own, 'node_modules/npm'), '/usr/local/lib/node_modules/npm', '/usr/lib/node_modules/npm', '/usr/share/nodejs/npm', '/usr/share/npm']
  .map((dir) => path.join(dir, 'bin/npm-cli.js'))
  .find((file) => fs.existsSync(file));
if (!found) {
  process.stderr.write('npm is not here');
  process.exit(127);
}
for (const [name, text] of Object.entries(order.files)) fs.writeFileSync(name, text);
for (const name of Object.keys(process.env)) {
  if (/^npm_config_/i.test(name)) delete process.env[name];
}
Object.assign(process.env, order.env);
process.argv = [process.execPath, found, ...order.args];
require(found);
