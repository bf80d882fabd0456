// A TCP proxy on this machine that cuts connections when a test says so.

import { once } from "node:events";
import net from "node:net";

export class Proxy {
  static async listen() {
    const proxy = new Proxy();
    proxy.sockets = new Set();
    proxy.connections = 0;
    // The address of the node, which is told the address of this proxy when it starts, and so comes later.
    proxy.target = undefined;
    // Sees the bytes of the node before the client does; returns how many of them to let through before the cut, or undefined.
    proxy.cut = () => undefined;
    proxy.server = net.createServer((client) => proxy.#join(client, net.connect(proxy.target)));
    proxy.server.listen(0, "127.0.0.1");
    await once(proxy.server, "listening");
    proxy.host = `127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  #join(client, node) {
    this.connections += 1;
    for (const [socket, other] of [[client, node], [node, client]]) {
      this.sockets.add(socket);
      socket.on("error", () => {}).on("close", () => {
        this.sockets.delete(socket);
        other.destroy();
      });
    }
    client.pipe(node);
    node.on("data", (bytes) => {
      const passed = this.cut(bytes);
      if (passed === undefined) client.write(bytes);
      else client.write(bytes.subarray(0, passed), () => client.resetAndDestroy());
    });
  }

  async close() {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, "close");
  }
}
