"""The site builds without a warning, lists every public name, and works in a browser that is offline."""

import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from jinja2 import UndefinedError
from playwright.sync_api import TimeoutError, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
DESKTOP, PHONE = (1280, 800), (390, 844)

# What users import from, and the page of each. Of a module, the names of its __all__ are public.
PACKAGES = {
    "shardes": ("shardes",),
    "nn": ("shardes.nn",),
    "zoo": ("shardes.zoo",),
    "tasks": (
        *("shardes.tasks", "shardes.tasks.gymnasium", "shardes.tasks.playground", "shardes.tasks.brax"),
        "shardes.tasks.suites",
    ),
}


def public_names(module: str) -> Iterator[str]:
    """Names that a module exports, and those of the modules among them."""
    for name in importlib.import_module(module).__all__:
        if isinstance(getattr(sys.modules[module], name), ModuleType):
            yield from public_names(f"{module}.{name}")
        else:
            yield f"{module}.{name}"


@pytest.mark.parametrize("page", PACKAGES)
def test_the_api_has_every_public_name_once(page: str) -> None:
    text = (DOCS / "api" / f"{page}.md").read_text()
    listed = Counter(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    assert [name for name, count in listed.items() if count > 1] == []
    public = {name for module in PACKAGES[page] for name in public_names(module)}
    # That of the core, to which the page of nn points.
    public.discard("shardes.nn.StructuredWeight")
    assert public - set(listed) == set()


def test_every_card_and_every_changelog_has_a_page() -> None:
    for folder, source in [("zoo", "zoo/{}/README.md"), ("changelogs", "packages/{}/CHANGELOG.md")]:
        found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(source.format("*"))}
        pages = [path for path in (DOCS / folder).glob("*.md") if path.name != "index.md"]
        assert {source.format(path.stem) for path in pages} == found
        for path in pages:
            assert f'--8<-- "{source.format(path.stem)}' in path.read_text()


def rendering() -> Any:
    spec = importlib.util.spec_from_file_location("rendering", DOCS / "rendering.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        '{{ result("none") }}',
        '{{ result("peers")["none"] }}',
        '{{ result("peers")["geometric_means"]["LowRank"]["none"] | fixed }}',
        '{{ rows_of(result("peers"), d=3) }}',
        "{{ none_such }}",
    ],
)
def test_a_number_that_is_not_there_fails_the_build(text: str) -> None:
    with pytest.raises((UndefinedError, LookupError, OSError, TypeError)):
        rendering().on_page_markdown(text, None, None, None)


@pytest.mark.parametrize(
    ("value", "text"), [(1.5e-3, "1.5 ms"), (0.9999, "1 s"), (12345, "12.3 ks"), (3e-9, "3 ns"), (0, "0 s")]
)
def test_units(value: float, text: str) -> None:
    assert rendering().si(value, "s") == text


def pages_of_the_nav() -> list[str]:
    """Addresses of all pages."""

    def sources(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from sources(inner)

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    names = (source.removesuffix(".md").removesuffix("index").rstrip("/") for source in sources(nav))
    return [f"/{name}/" if name else "/" for name in names]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Visitor:
    """A tab of the browser, which takes note of all that goes wrong."""

    def __init__(self, browser: Any, address: str) -> None:
        self.address = address
        self.wrong: list[str] = []
        self.context = browser.new_context(color_scheme="light")
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self._check_failure)
        self.page.on("request", self._check_request)
        self.page.on(
            "response", lambda got: self.wrong.append(f"{got.status}: {got.url}") if got.status >= 400 else None
        )

    def _check_failure(self, request: Any) -> None:
        # What was still on its way when the page was left is no fault.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"{request.failure}: {request.url}")

    def _check_request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"from elsewhere: {request.url}")

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)

    def resize(self, size: tuple[int, int]) -> None:
        self.page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))

    @property
    def scheme(self) -> str:
        return str(self.page.evaluate("document.body.dataset.mdColorScheme"))

    def expect(self, condition: str, what: str) -> None:
        """Wait for what must soon be so: a page takes a new size or scheme in the next frame."""
        try:
            self.page.wait_for_function(condition)
        except TimeoutError as error:
            raise AssertionError(f"not so: {what}") from error


def look_at_all_pages(visitor: Visitor) -> None:
    for path in pages_of_the_nav():
        visitor.go(path)
        assert visitor.page.locator("h1").count() == 1, path
        for size in (PHONE, DESKTOP):
            visitor.resize(size)
            for scheme, name in (("dark", "slate"), ("light", "default")):
                visitor.page.emulate_media(color_scheme=scheme)
                visitor.expect(f"document.body.dataset.mdColorScheme === '{name}'", f"{path} is {scheme}")
                fits = f"innerWidth === {size[0]} && document.documentElement.scrollWidth <= innerWidth"
                visitor.expect(fits, f"{path} is no wider than {size[0]} pixels")


def search(visitor: Visitor, words: str, expected: str) -> None:
    visitor.go("/")
    if not visitor.page.locator(".md-search__input").is_visible():
        visitor.page.locator("label.md-header__button[for=__search]").click()
    # What is typed before the index is there may be lost.
    meta = "document.querySelector('.md-search-result__meta').textContent"
    visitor.expect(f"!{meta}.includes('Initializing')", "the index of the search is loaded")
    # Key by key, since the page listens to keys.
    visitor.page.locator(".md-search__input").press_sequentially(words)
    link = visitor.page.locator(f".md-search-result__link[href*='{expected}']").first
    link.wait_for()
    link.click()
    visitor.page.wait_for_url(f"**{expected}**")


def copy(visitor: Visitor) -> None:
    visitor.go("/get-started/")
    block = visitor.page.locator(".highlight:has(code)").nth(1)
    block.hover()
    block.locator("button").first.click()
    visitor.page.wait_for_function("navigator.clipboard.readText().then((text) => text.length > 0)")
    copied = visitor.page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == block.locator("code").inner_text().strip()


def switch_the_theme(visitor: Visitor) -> None:
    visitor.go("/")
    seen = []
    for _ in range(3):
        visitor.page.locator("form[data-md-component=palette] label:visible").click()
        seen.append(visitor.scheme)
    # From the system's, which is light, to light, to dark, and back.
    assert seen == ["default", "slate", "default"]
    for _ in range(2):
        visitor.page.locator("form[data-md-component=palette] label:visible").click()
    visitor.go("/install/")
    assert visitor.scheme == "slate"


def use_the_navigation(visitor: Visitor, phone: bool) -> None:
    visitor.go("/")
    if phone:
        visitor.page.locator("label.md-header__button[for=__drawer]").click()
        # It opens at the section of the page; back to all of them.
        visitor.page.locator("label.md-nav__title[for=__nav_1]").click()
        visitor.page.locator("label.md-nav__link[for=__nav_2]").click()
    else:
        visitor.page.locator(".md-tabs__link", has_text="Guides").click()
    visitor.page.locator(".md-nav--primary a.md-nav__link:visible", has_text="Precision").click()
    visitor.page.wait_for_url("**/guides/precision/")
    assert visitor.page.locator("h1").inner_text().startswith("Precision")
    visitor.page.locator(".md-footer__link--prev").click()
    visitor.page.wait_for_url("**/guides/when-it-does-not-learn/")


@pytest.mark.slow
def test_it_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # As its verb does, in an environment that is up to date.
    command = ["make", "-o", "sync", "docs-serve", f"ARGS=--dev-addr {address}"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as server:
        bound = threading.Timer(180, os.killpg, (server.pid, signal.SIGKILL))
        bound.start()
        try:
            assert server.stderr is not None
            assert any("Serving on" in line for line in server.stderr)
            with urllib.request.urlopen(f"http://{address}/", timeout=60) as page:
                assert "Evolution strategies train a model without gradients" in page.read().decode()
        finally:
            bound.cancel()
            os.killpg(server.pid, signal.SIGTERM)


@pytest.mark.slow
def test_it_builds_strictly_and_works_in_a_browser(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    assert len(json.loads((site / "search" / "search_index.json").read_text())["docs"]) > 100

    with served(site) as address, sync_playwright() as playwright:
        # Debian's, or else the one that playwright installs.
        found = next(filter(None, map(shutil.which, BROWSERS)), playwright.chromium.executable_path)
        assert Path(found).exists(), "There is no Chromium: apt-get install chromium, or playwright install chromium."
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            look_at_all_pages(visitor := Visitor(browser, address))
            assert visitor.wrong == []
            for size in (DESKTOP, PHONE):
                visitor = Visitor(browser, address)
                visitor.resize(size)
                search(visitor, "member_chunk", "/api/shardes/")
                search(visitor, "sbatch", "/guides/many-hosts/")
                copy(visitor)
                use_the_navigation(visitor, phone=size == PHONE)
                switch_the_theme(visitor)
                assert visitor.wrong == []
        finally:
            browser.close()
