"""Headless Chromium over its debugging pipe: the system's own browser, without a driver or a port."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

PIPED = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from descriptor 3 and writes to 4, wherever the pipes are."""


def chromium():
    """The path of a Chromium on this machine; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser. What it logs and what its page throws is kept in `complaints`."""

    def __init__(self, program):
        self._folder = tempfile.TemporaryDirectory(prefix="ziplan-chromium-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [sys.executable, "-S", "-c", PIPED, str(to_read), str(to_write)]
        command += [program, "--headless=new", "--remote-debugging-pipe"]
        command += ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--disable-background-networking", f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._count, self._session, self.complaints = b"", 0, None, []
        (target,) = (t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        """The result of one command."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self):
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._rest += chunk
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def _note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(told["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"]["text"])
        elif method == "Network.requestWillBeSent" and not told["request"]["url"].startswith(
            ("file:", "data:")
        ):
            self.complaints.append(f"asks for {told['request']['url']}")

    def show(self, path, width=1200, height=900, dark=False, media="screen"):
        """Open a file in a window of this size, in one of the colour schemes, without scripts."""
        self.ask("Emulation.setScriptExecutionDisabled", value=True)
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.ask("Page.navigate", url=Path(path).resolve().as_uri())
        while not self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
            pass

    def value(self, expression):
        """What an expression comes to in the page."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description", "?"))
        return told["result"].get("value")

    def press(self, key, code=9):
        """A key pressed and let go."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path):
        """The whole page as a PNG, for people to look at."""
        told = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def paper(self):
        """The page as a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        """End the browser."""
        with contextlib.suppress(OSError, RuntimeError):
            self._session = None
            self.ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()
