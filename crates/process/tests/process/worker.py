"""A worker of the tests: the protocol by hand, and every way to misbehave. How it starts is its argument, what it does its payload."""

import json
import os
import signal
import socket
import sys
import time

START = sys.argv[1] if len(sys.argv) > 1 else "well"
FD = int(os.environ["OSTLER_FD"])
SOCKET = socket.socket(fileno=FD)
READER = SOCKET.makefile("rb")


def send(**frame):
    SOCKET.sendall(json.dumps(frame, separators=(",", ":")).encode() + b"\n")


def receive():
    line = READER.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def until(sort):
    while True:
        frame = receive()
        if frame["type"] == sort:
            return frame


def forever():
    while True:
        time.sleep(600)


class Task:
    def __init__(self, frame):
        self.frame = frame
        self.of = {"id": frame["id"], "token": frame["token"]}

    def log(self, message):
        send(type="log", **self.of, level="info", message=message)

    def done(self, output=None):
        send(type="result", **self.of, ok=True, output=output)

    def failed(self, **error):
        send(type="result", **self.of, ok=False, error=error)

    def step(self, name, value):
        send(type="step", **self.of, name=name, value=value)
        frame = receive()
        assert frame["type"] in ("saved", "lost", "cancel"), frame
        return frame["type"]


def ignore_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def tell_secret(task, value):
    for stream in (1, 2):
        for byte in value.encode() + b"\n":
            os.write(stream, bytes([byte]))
    task.log(value)
    send(type="progress", **task.of, done=1, note=value)
    send(type="prompt", **task.of, text="Use " + value)
    send(type="thinking", **task.of, text=value)
    for piece in ["it is "] + list(value) + [", in pieces"]:
        send(type="message", **task.of, role="assistant", text=piece)
    send(type="tool_call", **task.of, call="c1", tool="Bash", input={"command": "echo " + value})
    send(type="tool_result", **task.of, call="c1", output=json.dumps({"out": value}))
    send(type="usage", **task.of, model=value, input_tokens=1)
    task.failed(message="failed with " + value, details="at " + json.dumps(value))


def leak_secret(value, how):
    if how == "garbage":
        SOCKET.sendall(b"x" * 75 + value.encode() + b"\n")
        forever()
    os.write(2, b"going down with " + value.encode())
    os._exit(3)


def run(task, do, how):
    if do == "echo":
        task.done(how)
    elif do == "frame":
        task.done(task.frame)
    elif do == "pid":
        task.done(os.getpid())
    elif do == "env":
        task.done(dict(os.environ))
    elif do == "descriptors":
        task.done(sorted(int(fd) for fd in os.listdir("/proc/self/fd")))
    elif do == "fail":
        task.failed(**how)
    elif do == "raise":
        raise RuntimeError("as requested")
    elif do == "hang":
        ignore_term()
        task.log("waiting")
        forever()
    elif do == "hang-politely":
        task.log("waiting")
        forever()
    elif do == "speak":
        for _ in range(how):
            task.log("on")
            time.sleep(0.5)
        task.done()
    elif do == "stop":
        task.log("waiting")
        until("cancel")
        task.failed(message="stopped")
    elif do == "finish":
        task.log("waiting")
        until("cancel")
        task.done("finished")
    elif do == "finish-after":
        task.log("waiting")
        until("cancel")
        task.log("stopping")
        time.sleep(how)
        task.done()
    elif do == "big":
        task.done("x" * (how - 2))
    elif do == "deep":
        # By hand: the encoder does not go so deep.
        about = json.dumps(task.of)[1:-1].encode()
        SOCKET.sendall(b'{"type":"result",' + about + b',"ok":true,"output":' + b"[" * how + b"]" * how + b"}\n")
    elif do == "flood":
        for line in range(how):
            print("line", line, file=sys.stderr)
        task.done()
    elif do == "flood-lines":
        block = b"a line of this length...\n" * 2048
        for _ in range(how // len(block)):
            os.write(2, block)
        task.done()
    elif do == "flood-bytes":
        block = b"e" * 65536
        for _ in range(how // len(block)):
            os.write(2, block)
        task.done()
    elif do == "print":
        print("to stdout")
        sys.stdout.flush()
        print("to stderr", file=sys.stderr)
        print("no end of line", end="", file=sys.stderr, flush=True)
        task.done()
    elif do == "say":
        os.write(1, how.encode() + b" to stdout\n")
        os.write(2, how.encode() + b" to stderr, without an end")
        task.done()
    elif do == "say-later":
        # What is written after the result is of no task.
        task.done()
        os.write(1, how["text"].encode() + b"\n")
        os.write(2, how["text"].encode() + b"\n")
        with open(how["mark"], "w") as mark:
            mark.write("written\n")
    elif do == "last-words":
        task.done()
        # The node takes what it finds with the result for the task's; these come when it has none.
        while not os.path.exists(how["go"]):
            time.sleep(0.01)
        os.write(2, how["text"].encode())
        os._exit(4)
    elif do == "leave":
        os._exit(how)
    elif do == "die":
        os.kill(os.getpid(), how)
        forever()
    elif do == "exit":
        print("going down", file=sys.stderr)
        os._exit(how)
    elif do == "tell-secret":
        tell_secret(task, os.environ[how])
    elif do == "leak-secret":
        leak_secret(os.environ["API_KEY"], how)
    elif do == "garbage":
        SOCKET.sendall(b"this is no frame\n")
        forever()
    elif do == "raw":
        SOCKET.sendall(how.replace("ID", task.of["id"]).encode())
        forever()
    elif do == "half":
        SOCKET.sendall(b'{"type":"result","id":"' + task.of["id"].encode() + b'","token":')
        os._exit(0)
    elif do == "long":
        SOCKET.sendall(b'{"type":"log","message":"')
        for _ in range(17):
            SOCKET.sendall(b"x" * (1 << 20))
        forever()
    elif do == "long-result":
        SOCKET.sendall(b'{"type":"result","ok":true,"output":"')
        for _ in range(17):
            SOCKET.sendall(b"x" * (1 << 20))
        forever()
    elif do == "wrong-token":
        send(type="result", id=task.of["id"], token=task.of["token"] + 1, ok=True, output="wrong")
        forever()
    elif do == "wrong-task":
        send(type="progress", id="another", token=1, done=1)
        forever()
    elif do == "twice":
        task.done("first")
        task.done("second")
    elif do == "late":
        task.done("first")
        task.log("too late")
        send(type="progress", **task.of, done=1)
    elif do == "result-and-die":
        task.done("it arrived")
        os.kill(os.getpid(), signal.SIGKILL)
    elif do == "close":
        READER.close()
        SOCKET.close()
        os.close(FD) if os.path.exists(f"/proc/self/fd/{FD}") else None
        forever()
    elif do == "unknown":
        send(type="dance", partner=7)
        send(type="log", **task.of, level="loud", message="heard", colour="red")
        task.done()
    elif do == "steps":
        task.done([task.step(name, value) for name, value in how])
    elif do == "step-twice":
        task.step("one", 1)
        task.step("one", 2)
        task.done("never mind")
    elif do == "step-and-die":
        send(type="step", **task.of, name="last", value=1)
        task.done("after the step")
        os.kill(os.getpid(), signal.SIGKILL)
    elif do == "tell":
        send(type="progress", **task.of, done=40, total=100, note="so far")
        send(type="step_failed", **task.of, name="comment", message="no comment")
        send(type="file", **task.of, path="report.pdf")
        send(type="file", **task.of, path="../secret")
        send(type="log", **task.of, level="warn", message="mind this")
        task.done()
    elif do == "converse":
        send(type="session", **task.of, session="s-1")
        answer = receive()
        assert (answer["type"], answer["session"]) == ("saved", "s-1"), answer
        send(type="prompt", **task.of, text="Review it.")
        send(type="message", **task.of, role="user", text="Hello")
        send(type="thinking", **task.of, text="Hm")
        send(type="tool_call", **task.of, call="c1", tool="Read", input={"path": "a"})
        send(type="tool_result", **task.of, call="c1", output="no such file", error=True)
        send(type="usage", **task.of, model="m", input_tokens=3, output_tokens=4, cost_usd=0.25)
        task.done(how)
    elif do == "flood-messages":
        for number in range(how):
            send(type="log", **task.of, message="line %d" % number)
            send(type="message", **task.of, text=str(number))
        task.done()
    elif do == "message-and-die":
        send(type="message", **task.of, text="last words")
        send(type="usage", **task.of, input_tokens=7)
        os.kill(os.getpid(), signal.SIGKILL)
    elif do == "stop-when-asked":
        ignore_term()
        frame = until("cancel")
        task.failed(**{"class": "permanent", "message": frame["reason"]})
    elif do == "file-and-die":
        send(type="file", **task.of, path=how)
        os.kill(os.getpid(), signal.SIGKILL)
    elif do == "files":
        for path in how:
            send(type="file", **task.of, path=path)
        task.done()
    elif do == "swap":
        os.rmdir(task.frame["folder"])
        os.symlink(how["target"], task.frame["folder"])
        send(type="file", **task.of, path=how["file"])
        task.done()
    elif do == "write":
        try:
            with open(how["path"], "w") as file:
                file.write(how["text"])
            task.done("written")
        except OSError as error:
            task.failed(message=str(error))
    elif do == "grandchild":
        # It holds stdout, stderr and the socket.
        if os.fork() == 0:
            forever()
        task.done("here")
    elif do == "fail-once":
        if task.frame["attempt"] == 1:
            task.step("fetched", how)
            task.failed(message="not yet")
        else:
            task.done(task.frame["steps"])
    elif do == "die-once":
        if task.frame["attempt"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        task.done("at last")
    elif do == "gate":
        with open(how + ".began", "w") as began:
            began.write("yes\n")
        with open(how) as gate:
            gate.read()
        task.done("through")
    elif do == "grow":
        KEPT.append(bytearray(os.urandom(1) * how))
        task.done(os.getpid())
    else:
        task.failed(**{"class": "permanent", "message": "no such behaviour: " + do})


KEPT = []


def main():
    if START == "die":
        print("cannot find my library", file=sys.stderr)
        sys.exit(3)
    if START == "leak":
        print("cannot use " + os.environ["API_KEY"], file=sys.stderr)
        sys.exit(3)
    if START == "silent":
        print("still loading", file=sys.stderr, flush=True)
        forever()
    if START == "noise":
        os.write(1, b"{\"type\":\"ready\"} and other noise\n" * 100)
        os.write(2, b"\xff\x00 bytes\n")
    if START == "garbage":
        SOCKET.sendall(b"hello yourself\n")
        forever()
    if START == "talkative":
        send(type="result", id="x", token=1, ok=True)
        forever()
    hello = until("hello")
    assert hello["protocol"] == 1, hello
    if START == "newer":
        send(type="ready", protocol=2)
        forever()
    if START == "stubborn":
        ignore_term()
    kinds = {"kinds": ["k"]} if START == "picky" else {}
    options = {"options": {"k": {"attempts": 0}}} if START == "bad-options" else {}
    send(type="ready", protocol=1, sdk="test/1", **kinds, **options)
    if START == "short-lived":
        print("that was it", file=sys.stderr, flush=True)
        os._exit(4)
    while True:
        frame = receive()
        if frame["type"] == "stop":
            if START == "stubborn":
                forever()
            break
        if frame["type"] == "task":
            payload = frame["payload"]
            run(Task(frame), payload["do"], payload.get("how"))


main()
