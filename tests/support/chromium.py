"""A page in headless Chromium, spoken to through a pipe: no library, no port, no request but for the page itself."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    """The program, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """One tab. ``events`` has what the browser told meanwhile."""

    def __init__(self, sending, receiving):
        self.sending, self.receiving, self.number, self.events, self.session = sending, receiving, 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        self.sending.write(json.dumps(message).encode() + b"\0")
        self.sending.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path, width=1200, dark=False, scripts=True):
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read()

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path):
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def problems(self):
        """Errors on the console, and requests for anything but the page and what is inside it."""
        told = [e["params"] for e in self.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        told += [
            e["params"]
            for e in self.events
            if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] != "log"
        ]
        addresses = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return told + [address for address in addresses if not address.startswith(("file:", "data:"))]

    def _read(self):
        data = b""
        while not data.endswith(b"\0"):
            byte = self.receiving.read(1)
            assert byte, "Chromium ended"
            data += byte
        message = json.loads(data[:-1])
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def browser():
    """Open a tab in a browser of its own, and end it."""
    to_read, to_write = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

    def pipes():
        os.dup2(os.dup(to_read[0]), 3)
        os.dup2(os.dup(to_write[1]), 4)

    with tempfile.TemporaryDirectory() as profile:
        words = [chromium(), *options, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(words, preexec_fn=pipes, close_fds=False, **quiet)
        os.close(to_read[0])
        os.close(to_write[1])
        try:
            with os.fdopen(to_read[1], "wb") as sending, os.fdopen(to_write[0], "rb") as receiving:
                yield Page(sending, receiving)
        finally:
            process.kill()
            process.wait()
