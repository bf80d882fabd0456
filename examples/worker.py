"""A worker in Python: counts the words of a text.

In ostler.toml:   [pool.texts]
                  executor = "process"
                  command = ["python3", "examples/worker.py"]
Then:             ostler submit texts count --payload '{"text":"to be or not"}' --wait
"""

from ostler import Permanent, worker


@worker.task("count")
def count(payload, ctx):
    text = payload.get("text")
    if not isinstance(text, str):
        raise Permanent("the payload has no text", hint='submit it with {"text":"…"}')
    # On disk before the next line: if this process is killed now, the next attempt has the words and does not split again.
    words = ctx.step("split", lambda: text.split())
    for done, _ in enumerate(words, 1):
        ctx.check()
        ctx.progress(done, len(words))
    print("counted", len(words))
    return {"words": len(words)}


worker.run()
