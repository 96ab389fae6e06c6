import type { IncomingMessage, ServerResponse } from 'node:http';

declare module 'http' {
  interface IncomingMessage {
    /** Whether to include optional content. */
    optionalContent?: boolean;
  }
}

/** A middleware for Express, connect and polka. */
export function tidegateNucleus(): (
  req: IncomingMessage,
  res: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/** A plugin for Fastify: `await app.register(tidegateFastify)` sets `request.optionalContent`. */
export function tidegateFastify(app: object): Promise<void>;
