"""A worker that does nothing, for the benchmark of round trips."""

from ostler import worker


@worker.task("noop")
def noop(payload, ctx):
    return payload


worker.run()
