// What a program made with the TypeScript SDK asks of a server: it lists the
// tools, runs code, meets a failure, hears of progress, cancels, and closes.
//
//   node typescript.mjs v1|v2|v2-pinned COMMAND…   over stdio
//   node typescript.mjs v1|v2|v2-pinned URL        over HTTP; URL ends with /sse for the transport of 2024
import process from 'node:process';

const [version, command, ...args] = process.argv.slice(2);
const first = version === 'v1';
const { Client } = await import(first ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');

const options = version === 'v2-pinned' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {};
const client = new Client({ name: 'trial', version: '1' }, options);
const call = (name, input, more) => {
  const params = { name, arguments: input };
  return first ? client.callTool(params, undefined, more) : client.callTool(params, more);
};

async function transport() {
  if (!command.startsWith('http:')) {
    const { StdioClientTransport } = await import(first ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
    return new StdioClientTransport({ command, args, env: process.env });
  }
  const sse = command.endsWith('/sse');
  const all = await import(first ? `@modelcontextprotocol/sdk/client/${sse ? 'sse' : 'streamableHttp'}.js` : '@modelcontextprotocol/client');
  return new (sse ? all.SSEClientTransport : all.StreamableHTTPClientTransport)(new URL(command));
}

await client.connect(await transport());
const seen = {};
seen.tools = (await client.listTools()).tools.map((t) => t.name);
seen.answer = await call('execute_code', { code: 'print(6 * 7)' });
seen.failure = await call('sandbox_list_artifacts', { session_id: 'nobody' });

const stop = new AbortController();
seen.progress = 0;
try {
  await call('execute_code', { code: 'import time\nwhile True: time.sleep(1)' }, {
    signal: stop.signal,
    onprogress: () => { seen.progress++; stop.abort(); },
  });
  seen.cancelled = false;
} catch (e) {
  seen.cancelled = stop.signal.aborted;
}
for (let i = 0; i < 600; i++) {
  seen.active = (await call('sandbox_stats', {})).structuredContent.queue.active;
  if (seen.active === 0) break;
  await new Promise((done) => setTimeout(done, 50));
}
await client.close();
console.log(JSON.stringify(seen));
