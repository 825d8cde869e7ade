"""Python programs in processes of their own that need not import torch again: forks of one that has.

`run_python(["-m", "clearhead", …])` is `subprocess.run([sys.executable, …])` for programs that take no input and no
signals. A fork has the environment, the folder and the output of its own; nothing of Clearhead is imported before it.
"""

import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path


@functools.cache
def _server() -> subprocess.Popen:
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    atexit.register(server.kill)
    return server


def run_python(words: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = {"words": words, "env": dict(os.environ if env is None else env), "cwd": str(Path.cwd())}
        server.stdin.write(json.dumps(job | {"out": str(out), "err": str(err)}) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _child(job: dict) -> None:
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout = os.fdopen(0, encoding=encoding), os.fdopen(1, "w", encoding=encoding)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding)
    sys.path[0] = ""
    kind, what, *more = job["words"]
    sys.argv = ["-c", *more] if kind == "-c" else [what, *more]
    if kind == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _serve() -> None:
    import torch  # noqa: F401 (the forks have it)

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _child(json.loads(line))
                code = 0
            except SystemExit as end:
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError, AttributeError):  # closed, or full
                        stream.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
