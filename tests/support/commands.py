"""The command line in processes that need not import everything again: ``Commands`` starts one and forks it.

A command takes two seconds to import its libraries and tenths of one to run. Here a server imports them once and is
forked for each command, which gets the streams, variables and folder of its own.
"""

import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile

#: What commands import late.
LIBRARIES = ("pandas", "formulaic", "narwhals", "xarray", "h5netcdf.legacyapi", "sklearn.base", "matplotlib.pyplot")


class Commands:
    """A server that is forked for each command."""

    def __init__(self):
        self.ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, str(theirs.fileno())]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "Agg"}
        self.server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | paths)
        theirs.close()

    def start(self, words, folder, streams, **variables):
        """Start ``forestmix`` with words; return the process. ``streams``: the descriptors of input, output, errors."""
        request = {"words": [str(word) for word in words], "folder": str(folder), "variables": variables}
        socket.send_fds(self.ours, [json.dumps(request).encode()], streams)
        return Command(self, int(self.ours.recv(100)))

    def run(self, words, folder, stdout=None, **variables):
        """Run ``forestmix`` with words to its end; return its code, what it wrote, and what of errors.

        ``stdout``: a descriptor to write to instead.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
            target = output.fileno() if stdout is None else stdout
            code = self.start(words, folder, [nothing.fileno(), target, errors.fileno()], **variables).wait()
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        return code, *texts

    def close(self):
        """End the server."""
        self.ours.close()
        self.server.wait(30)


class Command:
    """One fork."""

    def __init__(self, commands, pid):
        self.commands, self.pid = commands, pid

    def send_signal(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self):
        """Wait for its end; return its code, or minus the signal that ended it."""
        self.commands.ours.send(json.dumps({"wait": self.pid}).encode())
        return os.waitstatus_to_exitcode(int(self.commands.ours.recv(100)))


def serve(connection):
    """Fork for each request; a fork returns from here and becomes the command."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 2**16, 3)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "wait" in request:
            connection.send(str(os.waitpid(request["wait"], 0)[1]).encode())
            continue
        pid = os.fork()
        if not pid:
            connection.close()
            return become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())


def become(request, descriptors):
    """Take the streams, variables, folder and words of a command."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for name in ("COLUMNS", "LC_ALL", "PYTHONPATH"):
        os.environ.pop(name, None)
    os.environ.update(request["variables"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding=encoding, closefd=False, errors="backslashreplace")  # noqa: SIM115
    os.chdir(request["folder"])
    sys.argv = ["forestmix", *request["words"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def warm_up():
    """Import what commands import, and what the libraries below them import at their first use."""
    from typer.testing import CliRunner

    import forestmix
    from forestmix.cli import app

    for name in (*LIBRARIES, *(module.name for module in pkgutil.walk_packages(forestmix.__path__, "forestmix."))):
        importlib.import_module(name)
    CliRunner().invoke(app, ["predict", "nothing.nc", "nothing.csv"])


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from forestmix.cli import main

    # Without the interpreter's own end, which would copy all memory that forks share to take it apart.
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
