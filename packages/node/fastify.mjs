// Tidegate's nucleus for Fastify.
//
//   import { tidegateFastify } from 'tidegate-nucleus';
//   await app.register(tidegateFastify);
//
// Whether to include optional content is `request.optionalContent`. Answers say in
// `tidegate-service-ms` how long they took. Those that are streams cannot, because their head is gone by
// then; they say in `tidegate-optional` whether they are full.

const SERVICE_MS = 'tidegate-service-ms';
const OPTIONAL = 'tidegate-optional';
const BEGAN = Symbol('tidegate began');

export async function tidegateFastify(app) {
  app.decorateRequest('optionalContent', true);
  app.addHook('onRequest', (request, reply, done) => {
    request[BEGAN] = process.hrtime.bigint();
    request.optionalContent = request.headers[OPTIONAL]?.trim() !== '0';
    done();
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    if (typeof payload?.pipe === 'function' || typeof payload?.getReader === 'function') {
      reply.header(OPTIONAL, request.optionalContent ? '1' : '0');
    } else {
      const elapsed = Number(process.hrtime.bigint() - request[BEGAN]) / 1e6;
      reply.header(SERVICE_MS, elapsed.toFixed(4));
    }
    done();
  });
}

// Without it hooks would hold for the routes of the plugin alone (what fastify-plugin sets).
tidegateFastify[Symbol.for('skip-override')] = true;
