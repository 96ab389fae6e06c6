// Tidegate's nucleus for Express and its like (connect, polka).
//
//   import { tidegateNucleus } from 'tidegate-nucleus';
//   app.use(tidegateNucleus());
//
// Whether to include optional content is `req.optionalContent`. Answers say how long they took in
// `tidegate-service-ms`: in a header when they are sent at once (res.send, res.json, res.render),
// in a trailer when they are sent in parts (res.write, pipes) to a proxy that takes trailers. Where it
// does not, `tidegate-optional` says whether they are full, by which it learns that it may ask.

const SERVICE_MS = 'tidegate-service-ms';
const OPTIONAL = 'tidegate-optional';

export function tidegateNucleus() {
  return (req, res, next) => {
    const began = process.hrtime.bigint();
    const serviceMs = () => (Number(process.hrtime.bigint() - began) / 1e6).toFixed(4);
    req.optionalContent = req.headers[OPTIONAL]?.trim() !== '0';

    const { write, end } = res;
    let announced = false;
    res.write = function (...args) {
      if (!this.headersSent && canTrail(req, this)) {
        this.appendHeader('trailer', SERVICE_MS);
        announced = true;
      } else if (!this.headersSent) {
        this.setHeader(OPTIONAL, req.optionalContent ? '1' : '0');
      }
      return write.apply(this, args);
    };
    res.end = function (...args) {
      if (!this.headersSent) this.setHeader(SERVICE_MS, serviceMs());
      else if (announced) this.addTrailers({ [SERVICE_MS]: serviceMs() });
      announced = false;
      return end.apply(this, args);
    };
    next();
  };
}

// Node refuses to announce trailers for a body that cannot be chunked.
function canTrail(req, res) {
  const taken = /(^|,)\s*trailers\s*(,|$)/i.test(req.headers.te ?? '');
  const hasBody = req.method !== 'HEAD' && res.statusCode !== 204 && res.statusCode !== 304;
  const chunked = req.httpVersion === '1.1' && !res.hasHeader('content-length');
  return taken && hasBody && chunked;
}
