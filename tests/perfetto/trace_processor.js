// Runs the trace processor of Perfetto's UI outside a browser: `node trace_processor.js UI_FOLDER REQUESTS REPLIES`.
// REQUESTS holds messages for it, each behind its length (32 bits, little-endian); REPLIES gets what it answers.
'use strict';
const fs = require('fs');
const path = require('path');

const [, , folder, requests, replies] = process.argv;
const node = process;
const asset = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
const fail = (error) => {
  node.stderr.write(`${String(error).slice(0, 2000)}\n`);
  node.exit(1);
};
node.on('uncaughtException', fail);

// what a worker of a browser has
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.location = {href: 'http://ui/engine_bundle.js'};
globalThis.fetch = async (url) => new Response(asset(url), {headers: {'Content-Type': 'application/wasm'}});
globalThis.XMLHttpRequest = class {
  open(_method, url) {
    this.url = url;
  }
  send() {
    this.status = 200;
    const bytes = asset(this.url);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    if (this.onload) this.onload();
  }
};
const program = asset('engine_bundle.js').toString();
// else it takes this for Node.js and not for a worker
globalThis.process = undefined;
(0, eval)(program);

const answers = [];
const port = {postMessage: (bytes) => answers.push(Buffer.from(bytes))};
globalThis.onmessage({data: port});
const input = fs.readFileSync(requests);

const attempt = () => {
  try {
    let at = 0;
    while (at < input.length) {
      const length = input.readUInt32LE(at);
      port.onmessage({data: new Uint8Array(input.subarray(at + 4, at + 4 + length))});
      at += 4 + length;
    }
    fs.writeFileSync(replies, Buffer.concat(answers));
    node.exit(0);
  } catch (error) {
    fail(error);
  }
};
// it makes itself ready within the first turns of the event loop, and does not say when that is done
setTimeout(attempt, 1000);
