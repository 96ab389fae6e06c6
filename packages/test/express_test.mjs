// The nucleus inside of Express, over a real socket.

import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { Readable } from 'node:stream';
import express from 'express';
import { tidegateNucleus } from 'tidegate-nucleus';

const SERVICE = 'tidegate-service-ms';
let server;

before(async () => {
  const app = express();
  app.use(tidegateNucleus());
  app.get('/', (req, res) => res.json({ optional: req.optionalContent }));
  app.get('/slow', (req, res) => setTimeout(() => res.send('slow'), 50));
  app.get('/parts', (req, res) => Readable.from(['one ', 'two']).pipe(res));
  app.get('/sized', (req, res) => {
    res.set('content-length', '4');
    res.write('si');
    res.end('ze');
  });
  app.get('/early', (req, res) => {
    res.writeHead(204);
    res.end();
  });
  app.get('/broken', () => {
    throw Object.assign(new Error('broken'), { expose: false });
  });
  app.set('env', 'test'); // no stack traces on the terminal
  await new Promise((listening) => (server = app.listen(0, '127.0.0.1', listening)));
});

after(() => server.close());

function get(path, headers = {}, method = 'GET') {
  const { port } = server.address();
  return new Promise((resolve, reject) => {
    const request = http.request({ port, path, method, headers, agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (part) => (body += part));
      response.on('end', () => resolve({ response, body }));
    });
    request.on('error', reject).end();
  });
}

test('the application learns whether to include optional content', async () => {
  for (const [headers, optional] of [
    [{}, true],
    [{ 'tidegate-optional': '1' }, true],
    [{ 'tidegate-optional': '0' }, false],
  ]) {
    assert.deepEqual(JSON.parse((await get('/', headers)).body), { optional });
  }
});

test('an answer says how long it took', async () => {
  const { response } = await get('/slow');
  assert.ok(Number(response.headers[SERVICE]) >= 49, response.headers[SERVICE]);
  for (const [path, method] of [['/', 'HEAD'], ['/nowhere', 'GET'], ['/broken', 'GET']]) {
    assert.ok((await get(path, {}, method)).response.headers[SERVICE], path);
  }
});

test('an answer in parts says so in a trailer, to those who take trailers', async () => {
  const told = await get('/parts', { te: 'trailers' });
  assert.equal(told.body, 'one two');
  assert.equal(told.response.headers.trailer, SERVICE);
  assert.ok(Number(told.response.trailers[SERVICE]) > 0);
  assert.equal(told.response.headers['tidegate-optional'], undefined);

  const untold = await get('/parts', { 'tidegate-optional': '0' });
  assert.equal(untold.body, 'one two');
  assert.equal(untold.response.headers['tidegate-optional'], '0');
  assert.equal(untold.response.headers.trailer, undefined);
  assert.deepEqual(untold.response.trailers, {});
});

test('answers that cannot have trailers are left alone', async () => {
  for (const [path, method] of [['/sized', 'GET'], ['/parts', 'HEAD'], ['/early', 'GET']]) {
    const { response } = await get(path, { te: 'trailers' }, method);
    assert.equal(response.headers.trailer, undefined, path);
    assert.ok(response.statusCode < 300, path);
  }
});
