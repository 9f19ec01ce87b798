// id: C02
// tries: every way of Node to the network
// expect tcp: ENETUNREACH
// expect[L1] tcp: EAFNOSUPPORT
// expect[told] tcp: ECONNREFUSED
// expect udp: refused
// expect[told] udp: ok
// expect fetch: refused
// expect lookup: refused
// expect child: refused
// expect worker: refused
// expect binding: refused
// expect canary: refused
const net = require("net"), dgram = require("dgram"), dns = require("dns"), fs = require("fs"), path = require("path");
const { spawnSync } = require("child_process");
const say = (n, o) => console.log(`${n}: ${o}`);
const host = "192.0.2.1";
const tcp = () => new Promise((r) => {
  const s = net.connect(80, host);
  s.on("connect", () => r("ok")).on("error", (e) => r(e.code)).setTimeout(3000, () => r("timeout"));
});
const udp = () => new Promise((r) => {
  try {
    const s = dgram.createSocket("udp4");
    s.on("error", () => r("refused"));
    s.send("x", 53, host, (e) => { r(e ? "refused" : "ok"); try { s.close(); } catch {} });
  } catch { r("refused"); }
});
const late = (p) => Promise.race([p, new Promise((r) => setTimeout(() => r("timeout"), 4000).unref())]);
(async () => {
  say("tcp", await late(tcp()));
  say("udp", await late(udp()));
  say("fetch", await late(typeof fetch === "undefined" ? "refused" : fetch(`http://${host}/`).then(() => "ok", () => "refused")));
  say("lookup", await late(new Promise((r) => dns.lookup("example.com", (e) => r(e ? "refused" : "ok")))));
  const c = spawnSync(process.execPath, ["-e", `require("net").connect(80,"${host}").on("error",()=>console.log("refused")).on("connect",()=>{console.log("ok");process.exit()})`], { encoding: "utf8", timeout: 8000 });
  say("child", c.stdout.trim() || "refused");
  say("worker", await late(new Promise((r) => {
    const { Worker } = require("worker_threads");
    const w = new Worker(`const {parentPort}=require("worker_threads");require("net").connect(80,"${host}").on("error",()=>parentPort.postMessage("refused")).on("connect",()=>parentPort.postMessage("ok"))`, { eval: true });
    w.on("message", r).on("error", () => r("refused"));
  })));
  let b = "refused";
  try { const { TCP, constants, TCPConnectWrap } = process.binding("tcp_wrap"); const t = new TCP(constants.SOCKET); b = t.connect(new TCPConnectWrap(), host, 80) === 0 ? "ok" : "refused"; } catch {}
  say("binding", b);
  let n = 0;
  for (const p of fs.readFileSync(path.join(__dirname, "canary"), "utf8").split("\n")) { try { n += fs.readFileSync(p).length; } catch {} }
  say("canary", n ? "read" : "refused");
  process.exit(0);
})();
