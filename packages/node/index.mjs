export { tidegateNucleus } from './express.mjs';
export { tidegateFastify } from './fastify.mjs';
