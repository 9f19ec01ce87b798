// tries: to find a socket among its descriptors, over which others could be sent
// wall: every stream to the server is a pipe
// expect: it prints "took []"
const fs = require('fs');
const took = [];
for (let fd = 0; fd < 5; fd++) {
  try { if (fs.fstatSync(fd).isSocket()) took.push(fd); } catch {}
}
console.log('took', JSON.stringify(took));
