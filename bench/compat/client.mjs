// Asks by node:https and by node:http2: node client.mjs URL CERT SITE
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import https from "node:https";

const [url, cert, site] = process.argv.slice(2);
const ca = readFileSync(cert);
const wanted = { "/": readFileSync(`${site}/index.html`), "/large": readFileSync(`${site}/large`) };
const paths = [...Array(50).fill("/"), "/large"];

function same(path, status, body) {
  if (status !== 200 || !wanted[path].equals(body)) {
    console.error(`${path}: ${status}, ${body.length} bytes`);
    process.exit(1);
  }
}

const agent = new https.Agent({ ca, keepAlive: true, maxSockets: 4 });
await Promise.all(paths.map((path) => new Promise((resolve, reject) => {
  https.get(url + path, { agent }, async (answer) => {
    const pieces = [];
    for await (const piece of answer) pieces.push(piece);
    same(path, answer.statusCode, Buffer.concat(pieces));
    resolve();
  }).on("error", reject);
})));
agent.destroy();

const session = http2.connect(url, { ca });
await Promise.all(paths.map(async (path) => {
  const stream = session.request({ ":path": path });
  const [headers] = await once(stream, "response");
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  same(path, headers[":status"], Buffer.concat(pieces));
}));
session.close();
console.log(`Node ${process.version}: node:https kept alive, node:http2, 100 pages and two megabytes`);
