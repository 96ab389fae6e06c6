// The nucleus inside of Fastify, over a real socket.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Readable } from 'node:stream';
import Fastify from 'fastify';
import { tidegateFastify } from 'tidegate-nucleus';

let app;
let origin;

before(async () => {
  app = Fastify();
  await app.register(tidegateFastify);
  app.get('/', async (request) => ({ optional: request.optionalContent }));
  app.get('/slow', async () => {
    await new Promise((done) => setTimeout(done, 50));
    return 'slow';
  });
  app.get('/parts', (request, reply) => reply.send(Readable.from(['one ', 'two'])));
  origin = await app.listen({ port: 0, host: '127.0.0.1' });
});

after(() => app.close());

test('fastify: the application learns whether to include optional content', async () => {
  for (const [headers, optional] of [[{}, true], [{ 'tidegate-optional': '0' }, false]]) {
    assert.deepEqual(await (await fetch(origin, { headers })).json(), { optional });
  }
});

test('fastify: an answer says how long it took', async () => {
  const response = await fetch(`${origin}/slow`);
  assert.ok(Number(response.headers.get('tidegate-service-ms')) >= 49);
  assert.ok((await fetch(`${origin}/nowhere`)).headers.get('tidegate-service-ms'));
});

test('fastify: an answer in parts says whether it is full', async () => {
  const response = await fetch(`${origin}/parts`, { headers: { 'tidegate-optional': '0' } });
  assert.equal(await response.text(), 'one two');
  assert.equal(response.headers.get('tidegate-optional'), '0');
});
