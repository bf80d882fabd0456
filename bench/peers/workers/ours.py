"""A no-op worker, for the round-trip benchmark."""

from ostler import worker


@worker.task("noop")
def noop(payload, ctx):
    return payload


worker.run()
