"""A run handler of your own: it prepares the prompt, asks the gateway of its pool twice in one session, and keeps the report.

    [pool.runs]
    executor = "process"
    command = ["python3", "examples/run_handler.py"]
    gateway = "http://127.0.0.1:8900"            # or { agent = "claude" }

`ostler run --pool runs --prompt "…" --folder DIR --id job_abc123 --wait` gives it work. When its node dies, another attempt goes on: it
gets the session of the first one, and the answers that the first one had, without asking again.
"""

from ostler import Permanent, TaskError, worker


def preprocess(prompt):
    """Work before the first query."""
    return f"Make a plan for this, in three steps: {prompt.strip()}"


@worker.task("run")
def run(payload, ctx):
    record = ctx.task()
    ctx.log("info", f"run {record.key or record.id}, attempt {ctx.attempt}, in {ctx.folder}")
    session = ctx.gateway().create_session()
    plan = session.run_query(preprocess(payload["prompt"]), max_iterations=payload.get("max_iterations"))
    try:
        report = session.run_query("Follow the plan, and write the report.")
    except TaskError as error:
        ctx.log("warn", f"there is a plan and no report: {error}")
        raise
    if not report.text:
        raise Permanent("the report is empty")
    # Work after the last query.
    if ctx.folder:
        (ctx.folder / "report.md").write_text(report.text + "\n")
        ctx.file("report.md")
    return {"plan": plan.text, "report": report.text, "session": session.id}


if __name__ == "__main__":
    worker.run()
