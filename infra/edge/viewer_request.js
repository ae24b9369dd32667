// What CloudFront does with each request before it looks into its cache (docs/adr/0055-one-address.md).
import cf from 'cloudfront';

const SOCKETS = '/ws'; // where clients look for the WebSocket of an address
const SOCKET_STAGE = '/__SOCKET_STAGE__'; // a WebSocket API knows no other path
const OPERATIONS = /^\/(?:ops)?$|^\/feeds\/[^/]+\/ops$/; // a GET is a stream, all else is the API's
const WINDOW_S_MAX = 20; // no wait is cut shorter than that: 20 s of pages, 25 s of lists

// In which span of time a request comes, of those that its wait outlasts: a part of the cache's key.
// Who was told that nothing came asks again in a later one, and is not given the same answer again.
function windowOf(query, nowMs) {
  const text = query.block ? query.block.value : '0';
  const waitS = /^\d{1,9}$/.test(text) ? Math.min(Number(text), WINDOW_S_MAX) : 0;
  return waitS ? String(Math.floor(nowMs / 1000 / waitS)) : '0';
}

function handler(event) {
  const request = event.request;
  request.headers['x-tidings-window'] = { value: windowOf(request.querystring, Date.now()) };
  // The origins know themselves by their own names alone; links are to the name that was asked.
  request.headers['x-forwarded-host'] = { value: request.headers.host.value };
  if (request.uri === SOCKETS) {
    request.uri = SOCKET_STAGE;
  } else if (OPERATIONS.test(request.uri)) {
    cf.selectRequestOriginById(request.method === 'GET' ? 'stream' : 'http');
  }
  return request;
}
