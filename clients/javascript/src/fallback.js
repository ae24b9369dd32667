/* The transport over a WebSocket, and over an event stream where WebSockets do not pass. */

import { Lost } from "./errors.js";

const FINAL = [401, 403, 404];

/*
 * Return the transport *socket*. While its connections end before their first message, *stream* is used
 * in its place, or, if *isProbe*, only asked for a final answer: a browser hides the status of a
 * handshake. Once a WebSocket has passed, only 401, 403 and 404 are final.
 */
export function withFallback(socket, stream, isProbe) {
  let hasPassed = false;
  return (cursor, hooks) => {
    let isSocket = true; // a closed WebSocket still reports its end
    const receive = (name) => (...values) => {
      hasPassed = true;
      hooks[name](...values);
    };
    const refuse = (error) => {
      const isFinal = !hasPassed || FINAL.includes(error.status);
      if (isFinal) hooks.refused(error);
      else hooks.lost(new Lost(error.message));
    };
    const stop = () => hooks.lost(new Lost("WebSockets do not pass"));
    const instead = isProbe ? { state: stop, events: () => {} } : {};
    const fall = () => (connection = stream(cursor, { ...hooks, ...instead, refused: refuse }));
    let connection = socket(cursor, {
      state: receive("state"),
      events: receive("events"),
      refused: hooks.refused,
      lost(error) {
        if (!isSocket) return;
        isSocket = false;
        connection.close();
        if (error.isHandshake) fall();
        else hooks.lost(error);
      },
    });
    return {
      close() {
        isSocket = false;
        connection.close();
      },
    };
  };
}
