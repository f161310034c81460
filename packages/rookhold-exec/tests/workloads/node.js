// A bit of everything that an ordinary Node.js job does; fails loudly where the kernel refuses.
"use strict";
const assert = require("node:assert");
const child = require("node:child_process");
const crypto = require("node:crypto");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const zlib = require("node:zlib");
const { Worker } = require("node:worker_threads");
const { promisify } = require("node:util");
const { once } = require("node:events");

async function main(root) {
  fs.writeFileSync(path.join(root, "a"), "x");
  fs.copyFileSync(path.join(root, "a"), path.join(root, "b"));
  fs.cpSync(path.join(root, "a"), path.join(root, "c"));
  fs.symlinkSync("a", path.join(root, "l"));
  fs.renameSync(path.join(root, "b"), path.join(root, "d"));
  fs.utimesSync(path.join(root, "a"), 1, 1);
  fs.watchFile(path.join(root, "a"), () => {});  // by looking: the kernel's own notices are refused
  fs.unwatchFile(path.join(root, "a"));
  await fs.promises.rm(path.join(root, "d"));
  for await (const _ of fs.createReadStream("/etc/passwd"));

  const worker = new Worker("require('node:worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
  assert.deepEqual(await once(worker, "message"), [42]);

  assert.equal(child.execSync("echo hi | cat").toString(), "hi\n");
  const forked = path.join(root, "forked.js");
  fs.writeFileSync(forked, "process.send(1); process.disconnect();");
  assert.equal((await once(child.fork(forked), "message"))[0], 1);

  const server = net.createServer((socket) => socket.end("k")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const [data] = await once(net.connect(server.address().port, "127.0.0.1"), "data");
  assert.equal(data.toString(), "k");
  server.close();
  const unix = net.createServer().listen(path.join(root, "s"));
  await once(unix, "listening");
  unix.close();

  await promisify(crypto.pbkdf2)("a", "b", 1000, 32, "sha256");
  await promisify(zlib.gzip)("x");
  await promisify(setTimeout)(5);
  os.cpus();
  os.setPriority(1);
  const wasm = Buffer.from("0061736d01000000010401600000030201000a040102000b", "hex");
  await WebAssembly.compile(wasm);
  process.kill(process.pid, 0);
  console.log("all done");
}

main(process.argv[2]);
