"""A headless Chromium, driven by the W3C WebDriver protocol: enough to look at a page, use it, and hear what it complains of."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEYS = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "escape": "\ue00c", "tab": "\ue004"}


class Browser:
    """One page. ``log`` is what the page wrote to its console since it was last asked, warnings and errors only."""

    def __init__(self, server: str, session: str) -> None:
        self._at = f"{server}/session/{session}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self._at}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self.call("POST", "/url", {"url": path.absolute().as_uri()})
        assert self.run("return document.documentElement.dataset.ready") == "1", self.log()

    def run(self, script: str, *args: Any) -> Any:
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def keys(self, *keys: str) -> None:
        """Press keys on what has the focus."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def size(self, width: int, height: int) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def media(self, media: str = "", scheme: str = "light") -> None:
        """Show the page as on ``print`` or on a screen that is ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=features)

    def devtools(self, command: str, **params: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def picture(self, path: Path, above: str) -> bytes:
        """The page, however long, down to the first element of a selector, all of it where there is none, as PNG."""
        box = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        top = self.run("return document.querySelector(arguments[0])?.getBoundingClientRect().top + scrollY", above)
        clip = {"x": 0, "y": 0, "width": box["width"], "height": top or box["height"], "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path.read_bytes()

    def log(self) -> list[str]:
        return [f"{row['level']}: {row['message']}" for row in self.call("POST", "/se/log", {"type": "browser"})]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without network; its processes are gone afterwards."""
    driver = subprocess.Popen(
        [shutil.which("chromedriver") or "chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        server = ""
        for line in driver.stdout:
            if "started successfully on port" in line:
                server = f"http://127.0.0.1:{line.rstrip().rstrip('.').rpartition(' ')[2]}"
                break
        options = {
            "binary": shutil.which("chromium"),
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND",
            ],
        }
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        made = Browser(server, "")
        made._at = server
        session = made.call("POST", "/session", {"capabilities": wanted})["sessionId"]
        browser = Browser(server, session)
        try:
            yield browser
        finally:
            browser.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(20)
        if driver.stdout is not None:
            driver.stdout.close()


def eventually(browser: Browser, script: str, seconds: float = 10) -> Any:
    """What a script returns once it is not empty."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = browser.run(script)
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing after {seconds} s: {script}")
