// Rewrites each request before CloudFront's cache lookup (docs/adr/0055-one-address.md).
import cf from 'cloudfront';

const SOCKETS = '/ws'; // the path of the WebSocket at the single address
const SOCKET_STAGE = '/__SOCKET_STAGE__'; // the only path of a WebSocket API
const OPERATIONS = /^\/(?:ops)?$|^\/feeds\/[^/]+\/ops$/; // GET: to `stream`, else to `http`
const WINDOW_S_MAX = 20; // the shorter of the limits of a wait: 20 s for pages, 25 s for lists

// Return the number of the time window of a request, as a part of the cache key. A window is not
// longer than the request's wait: a client that received an empty answer repeats its request in a
// later window, and does not get the cached answer again.
function windowOf(query, nowMs) {
  const text = query.block ? query.block.value : '0';
  const waitS = /^\d{1,9}$/.test(text) ? Math.min(Number(text), WINDOW_S_MAX) : 0;
  return waitS ? String(Math.floor(nowMs / 1000 / waitS)) : '0';
}

function handler(event) {
  const request = event.request;
  request.headers['x-tidings-window'] = { value: windowOf(request.querystring, Date.now()) };
  // CloudFront sends the origin's host name as Host; links need the host name of the request.
  request.headers['x-forwarded-host'] = { value: request.headers.host.value };
  if (request.uri === SOCKETS) {
    request.uri = SOCKET_STAGE;
  } else if (OPERATIONS.test(request.uri)) {
    cf.selectRequestOriginById(request.method === 'GET' ? 'stream' : 'http');
  }
  return request;
}
