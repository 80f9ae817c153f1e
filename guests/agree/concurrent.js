// Node: promises, timers, worker threads, child processes, a local HTTP server, WebAssembly, the optimising compiler.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { spawnSync, execFile } = require('child_process');
const http = require('http');
const fs = require('fs');
const crypto = require('crypto');
const zlib = require('zlib');

function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

if (!isMainThread) {
  parentPort.postMessage(fib(workerData));
} else {
  (async () => {
    const values = await Promise.all([20, 21, 22].map(n => new Promise((resolve, reject) => {
      const w = new Worker(__filename, { workerData: n });
      w.on('message', resolve);
      w.on('error', reject);
    })));
    console.log(values);
    let total = 0;
    for (let i = 0; i < 300000; i++) total = (total * 31 + i) % 1000003;
    console.log(total);
    console.log(spawnSync('sh', ['-c', 'echo child; exit 3']).status);
    console.log(await new Promise(r => execFile('/no/such/program', e => r(e.code))));
    const code = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3,
      97, 100, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11]);
    console.log((await WebAssembly.instantiate(code)).instance.exports.add(40, 2));
    const server = http.createServer((q, s) => s.end('path ' + q.url)).listen(0, '127.0.0.1', () => {
      http.get({ port: server.address().port, host: '127.0.0.1', path: '/x' }, r => {
        r.on('data', d => console.log(d.toString()));
        r.on('end', () => server.close(() => setTimeout(() => console.log('timer'), 10)));
      });
    });
    fs.writeFileSync('out.json', JSON.stringify({ a: [1, 2, 3], b: null }));
    console.log(crypto.createHash('sha256').update('abc').digest('hex'));
    console.log(zlib.gunzipSync(zlib.gzipSync('x'.repeat(10000))).length);
    process.on('exit', c => console.log('exit', c));
    process.exitCode = 6;
  })();
}
