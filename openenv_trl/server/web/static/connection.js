// The page's socket: requests with their replies, and what the server tells by itself. It comes back by itself, too.

const TOKEN_KEY = "openenv.token";

export class RefusedError extends Error {
  constructor(reply) {
    super(reply.message);
    this.reply = reply;
  }
}

export class Connection {
  /** Handlers: told(message), opened(), closed(wasOpen), tokenNeeded(reason), refused(reason). */
  constructor(handlers) {
    this.handlers = handlers;
    this.pending = new Map();
    this.next = 1;
    this.delay = 500;
    this.token = sessionStorage.getItem(TOKEN_KEY) ?? "";
  }

  open() {
    const address = new URL("../ws/ui", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const offers = ["openenv.web"];
    if (this.token) offers.push(`openenv.token.${base64url(this.token)}`);
    const socket = new WebSocket(address, offers);
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.socket = socket;
      this.delay = 500;
      if (this.token) sessionStorage.setItem(TOKEN_KEY, this.token);
      this.handlers.opened();
    };
    socket.onmessage = (event) => this.received(JSON.parse(event.data));
    socket.onclose = () => {
      this.socket = null;
      const lost = { message: "The connection to the server broke, and your session ended with it.", errors: [] };
      for (const { reject } of this.pending.values()) reject(new RefusedError(lost));
      this.pending.clear();
      this.handlers.closed(opened);
      if (opened) this.again();
      else this.explain();
    };
  }

  useToken(token) {
    this.token = token;
    this.open();
  }

  ask(type, fields = {}) {
    return new Promise((resolve, reject) => {
      if (!this.socket) {
        reject(new RefusedError({ message: "There is no connection to the server.", errors: [] }));
        return;
      }
      const id = this.next++;
      this.pending.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ ...fields, type, id }));
    });
  }

  stop() {
    this.socket?.send(JSON.stringify({ type: "stop" }));
  }

  received(message) {
    const waiting = this.pending.get(message.id);
    if (!waiting) {
      this.handlers.told(message);
      return;
    }
    this.pending.delete(message.id);
    if (message.type === "error") waiting.reject(new RefusedError(message));
    else waiting.resolve(message);
  }

  again() {
    setTimeout(() => this.open(), this.delay);
    this.delay = Math.min(this.delay * 2, 10000);
  }

  // A browser does not tell why a socket was refused. The same question over HTTP is answered in words.
  async explain() {
    try {
      const headers = this.token ? { Authorization: `Bearer ${this.token}` } : {};
      const answer = await fetch("../ws/ui", { method: "POST", headers });
      if (answer.status === 401 || answer.status === 403) {
        const { detail } = await answer.json();
        if (answer.status === 401) this.handlers.tokenNeeded(this.token ? "The token does not fit." : "");
        else this.handlers.refused(String(detail));
        return;
      }
    } catch {
      // nobody answers: try again later
    }
    this.again();
  }
}

function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
