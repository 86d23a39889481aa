"""The page of a run in a real browser: it renders, sorts, filters, fits a phone, has a dark mode, runs no foreign code.

`python3 tests/browser/test_report.py [--screenshots DIR]`; the program is `$AUTOTUNE_LOWERED`, else the debug build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from chromium import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AUTOTUNE_LOWERED", ROOT / "target/debug/autotune-lowered"))
EXAMPLE = ROOT / "examples/transformer"
UPGRADE = ROOT / "tests/data/cli/upgrade.json"
HOSTILE = "</script><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>"
SCREENSHOTS = Path(sys.argv.pop()) if "--screenshots" in sys.argv and sys.argv.pop(-2) else None


def program(*arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in codes, (arguments, done.returncode, done.stderr)
    return done.stdout


def recording() -> dict:
    """Simulated samples: each call's candidates are increasingly fast and scatter, and one of them fails."""
    invocations = []
    for row in json.loads(program("registry", "ls", EXAMPLE / "registry", "--format", "json"))["invocations"]:
        shown = json.loads(program("registry", "show", EXAMPLE / "registry", row["op_id"], "--format", "json"))
        found = next(
            one
            for one in shown["invocations"]
            if (one["call_key"], one["direction"]) == (row["call_key"], row["direction"])
        )
        candidates = []
        for number, candidate in enumerate(found["candidates"]):
            level = 10_000_000 - 900_000 * number
            noise = [(run * 7919 + number * 104729) % 97 - 48 for run in range(120)]
            candidates.append(
                {
                    "config": candidate["config"],
                    "epochs": [[level + level * part // 1000 for part in noise]],
                    "outputs": [{"spec": "f32[1]", "hex": "0000803f"}],
                }
            )
        candidates[2]["failures"] = [{"in": "prepare", "kind": "compile", "message": HOSTILE}]
        invocations.append({key: found[key] for key in ("op_id", "call_key", "direction")} | {"candidates": candidates})
    identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"cpu_model": "simulated"}}
    return {"schema": 1, "device": {"identity": identity, "environment": {}}, "invocations": invocations}


def document() -> dict:
    """A result as `--format json` prints it, of many operations in every state, with names that look like markup."""
    operations = []
    for number in range(40):
        faster = number % 3 != 0
        baseline = {"config": {"block": 64, "name": HOSTILE}, "median_ns": 1e6 * (number + 1)}
        speed_up = 1.0 + (number * 7 % 11) / 4 if faster else 1.0
        best = {"config": baseline["config"] | {"block": 128}, "median_ns": baseline["median_ns"] / speed_up}
        operation = {
            "op_id": f"operation_{number:02}@v1" if number else HOSTILE,
            "call_key": f"{number:016x}",
            "direction": "forward",
            "evidence": ["exact", "by-name"][number % 2],
            "occurrences": number + 1,
            "how": "exact",
            "status": ["tuned", "baseline-kept", "cached", "failed", "values-unknown"][number % 5],
            "reason": f"{HOSTILE} {'a long reason without an end ' * 5}",
            "baseline": baseline,
            "candidates": [],
            "rounds_measured": number,
            "share": 0.5 / (number + 1),
            "rounds_kept": 0,
        }
        if number % 5 < 3:
            operation |= {
                "best": best if faster else baseline,
                "speed_up": speed_up,
                "speed_up_interval": {"low": speed_up * 0.9, "high": speed_up * 1.2, "confidence": 0.95},
            }
        operations.append(operation)
    identity = {"platform": "cpu", "device_kind": HOSTILE, "hardware": {"model": "x" * 200}}
    return {
        "schema": 1,
        "tool": "test",
        "device": {"identity": identity, "environment": {"platform_version": HOSTILE}},
        "timer": HOSTILE,
        "source": "host-wall",
        "metric": "elapsed",
        "operations": operations,
        "missed": [{"op_id": HOSTILE, "call_key": None, "evidence": "by-name", "reason": "nobody recorded it"}],
        "notes": [HOSTILE],
        "step": dict.fromkeys(
            ("modules_ns", "labelled", "decided", "expected_gain", "expected_gain_low", "expected_gain_high"), 0.5
        )
        | {"profile": HOSTILE},
        "interrupted": True,
    }


# the contrast of every text with its background, as in WCAG 2; returns the worst ones
CONTRAST = """(() => {
  const channels = (colour) => {
    // a colour that was mixed is told as color(srgb r g b / a)
    const numbers = colour.match(/[-0-9.e]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 1 : 255;
    return [...numbers.slice(0, 3).map((value) => value / scale), numbers[3] ?? 1];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [1, 1, 1]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, .unseen, .skip, option") || !element.getClientRects().length) continue;
    const ground = behind(element);
    const style = getComputedStyle(element);
    const ink = over(channels(element.closest("svg") ? style.fill : style.color), ground);
    const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    found.push([(light + 0.05) / (dark + 0.05), node.data.trim().slice(0, 40), element.className?.baseVal ?? element.className]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()"""

# elements that reach beyond the window, with their classes
OVERFLOW = """[...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 1 && box.right > document.documentElement.clientWidth + 0.5 && !element.closest(".skip, svg");
}).map((element) => `${element.tagName}.${element.className} ${Math.round(element.getBoundingClientRect().right)}`)"""

ORDER = """[...document.querySelector("table.overview").tBodies[0].rows].filter((row) => row.checkVisibility())
  .map((row) => row.querySelector(".op").textContent)"""
SECTIONS = """[...document.querySelectorAll("section.operation")].filter((part) => part.checkVisibility())
  .map((part) => part.querySelector("h3 .op").textContent)"""


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        folder = Path(cls.folder.name)
        (folder / "replay.json").write_text(json.dumps(recording()))
        (folder / "run.json").write_text(json.dumps(document()))
        cls.real, cls.many = folder / "real.html", folder / "many.html"
        arguments = ["--timer", f"replay:{folder / 'replay.json'}", "--cache", folder / "cache", "--report", cls.real]
        program(EXAMPLE / "module.hlo.txt", *arguments, "--format", "json")
        program("report", folder / "run.json", "-o", cls.many)
        cls.upgrade = folder / "upgrade.html"
        program("report", UPGRADE, "-o", cls.upgrade)
        cls.browser = Browser(find_browser())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.__exit__()
        cls.folder.cleanup()

    def tearDown(self) -> None:
        self.assertEqual(self.browser.complaints(), [], "errors in the console")

    def picture(self, name: str) -> None:
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(SCREENSHOTS / f"{name}.png")

    def test_it_renders_and_asks_for_nothing(self) -> None:
        self.browser.open(self.real)
        self.picture("desktop")
        self.assertEqual(self.browser.requests(), [self.real.resolve().as_uri()])
        value = self.browser.evaluate
        self.assertEqual(value("document.querySelectorAll('section.operation').length"), 4)
        self.assertIn("Replayed data.", value("document.querySelector('.banner').textContent"))
        # each strip has a size, and a dot for each sample in the page's own data
        drawn = value(
            "[...document.querySelectorAll('.candidates .strip')].every((one) => one.getBoundingClientRect().width > 100)"
        )
        self.assertTrue(drawn)
        dots = value(
            "[...document.querySelectorAll('.candidates .strip path:is(.dots, .aside, .beyond)')]"
            ".map((path) => path.getAttribute('d').split('h0').length - 1).reduce((a, b) => a + b)"
        )
        told = value("JSON.parse(document.getElementById('data').textContent).samples.flat(2).map((one) => one.length)")
        self.assertEqual(dots, sum(told))
        self.assertGreater(dots, 50)
        self.assertIn(
            "window.taken", value("document.querySelector('.failure').textContent"), "the failure's reason is text"
        )

    def test_names_of_others_are_text(self) -> None:
        for page in (self.real, self.upgrade, self.many):
            self.browser.open(page)
            self.assertIsNone(self.browser.evaluate("window.taken"))
            self.assertEqual(self.browser.evaluate("document.scripts.length"), 2)
            self.assertEqual(self.browser.evaluate("document.images.length"), 0)
        self.assertIn(HOSTILE, self.browser.evaluate(ORDER)[0])
        # if it got in, the page's policy would stop it
        self.browser.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.taken = 1'}))"
        )
        self.assertIsNone(self.browser.evaluate("window.taken"))
        self.assertTrue(any("Content Security Policy" in line for line in self.browser.complaints()))
        self.browser.events.clear()

    def test_it_sorts_by_keyboard(self) -> None:
        self.browser.open(self.many)
        value = self.browser.evaluate
        told = json.loads(value("document.getElementById('data').textContent"))["results"][0]["operations"]
        known = sorted(one["speed_up"] for one in told if "speed_up" in one)
        column = (
            "[...document.querySelectorAll('.overview tbody tr')].map((row) =>"
            " row.querySelector('[data-name=\"speed-up\"]').dataset.value ?? null)"
        )
        value(
            "[...document.querySelectorAll('.overview button')].find((one) => one.textContent === 'Speed-up').focus()"
        )
        for key, text, order in (("Enter", "\r", known), (" ", " ", known[::-1])):
            self.browser.press(key, text)
            shown = value(column)
            self.assertEqual([float(one) for one in shown if one is not None], order)
            self.assertEqual(shown[: len(known)].count(None), 0, "what has no value comes last")
        self.assertEqual(value("document.querySelector('[aria-sort]').getAttribute('aria-sort')"), "descending")
        # names are sorted by their letters, and the sections follow
        value("document.querySelector('.overview button').click()")
        names = value(ORDER)
        self.assertEqual(names[1:40], sorted(names[1:40]))
        self.assertEqual(value(SECTIONS), [name for name in names if name in value(SECTIONS)])

    def test_it_filters(self) -> None:
        self.browser.open(self.many)
        value = self.browser.evaluate
        value("document.getElementById('filter').focus()")
        self.browser.type("OPERATION_1 v1")
        self.assertEqual(value(ORDER), [f"operation_{n}@v1:{n:016x}" for n in range(10, 20)])
        self.assertEqual(value(SECTIONS), value(ORDER))
        self.assertEqual(value("document.getElementById('shown').textContent"), "10 of 41 shown")
        value(
            "const choice = document.getElementById('status'); choice.value = 'failed'; choice.dispatchEvent(new Event('change'))"
        )
        self.assertEqual(value(ORDER), [f"operation_{n}@v1:{n:016x}" for n in (13, 18)])
        self.picture("filtered")
        # text in the sections is found too, and text that occurs nowhere is not
        value(
            "const field = document.getElementById('filter'); field.value = 'window.taken no-such-word'; field.dispatchEvent(new Event('input'))"
        )
        self.assertEqual(value(ORDER), [])

    def test_nothing_is_wider_than_a_phone(self) -> None:
        for name, page in (("phone", self.real), ("phone-many", self.many), ("phone-upgrade", self.upgrade)):
            self.browser.open(page, width=360, height=740)
            self.picture(name)
            self.assertEqual(self.browser.evaluate(OVERFLOW), [])
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 360)
            smallest = self.browser.evaluate(
                "Math.min(...[...document.querySelectorAll('td, th, p, li, dd, small')].filter((one) => one.textContent.trim())"
                ".map((one) => parseFloat(getComputedStyle(one).fontSize)))"
            )
            self.assertGreaterEqual(smallest, 12)

    def test_it_can_be_read_in_either_scheme(self) -> None:
        grounds = []
        for dark in (False, True):
            for page, least in ((self.real, 100), (self.many, 100), (self.upgrade, 80)):
                self.browser.open(page, dark=dark)
                contrasts = self.browser.evaluate(CONTRAST)
                self.assertGreater(len(contrasts), least)
                self.assertGreaterEqual(contrasts[0][0], 4.5, contrasts[:5])
            grounds.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            self.browser.open(self.real, dark=dark)
            self.picture("dark" if dark else "light")
        self.assertNotEqual(*grounds)

    def test_an_upgrade_has_a_point_for_each_pair_of_processes(self) -> None:
        told = json.loads(UPGRADE.read_text())["calls"]
        changes = [one["change"] for one in told if "change" in one] + [
            one["best"]["to_old"] for one in told if "best" in one
        ]
        for width, dark in ((400, False), (400, True), (1200, False), (1200, True)):
            self.browser.open(self.upgrade, width=width, dark=dark)
            self.picture(f"upgrade-{width}-{'dark' if dark else 'light'}")
            value = self.browser.evaluate
            dots = value(
                "[...document.querySelectorAll('.strip path:is(.dots, .aside, .beyond)')]"
                ".map((path) => path.getAttribute('d').split('h0').length - 1).reduce((a, b) => a + b)"
            )
            self.assertEqual(dots, sum(len(one["processes"]) for one in changes))
            # every strip is as wide as the axis above it, and the colours of both configs and of the band differ
            widths = value(
                "[...document.querySelectorAll('.upgrade .strip, .upgrade .axis')]"
                ".map((one) => Math.round(one.getBoundingClientRect().width))"
            )
            self.assertEqual(len(widths), len(changes) + 1)
            self.assertEqual(len(set(widths)), 1, widths)
            self.assertGreater(widths[0], 200)
            colours = value(
                "[['.strip.base .dots', 'stroke'], ['.strip.best .dots', 'stroke'], ['.band', 'fill']]"
                ".map(([what, of]) => getComputedStyle(document.querySelector(what))[of])"
            )
            self.assertEqual(len(set(colours)), 3, colours)
        # a click sorts by the ratio, whatever is unknown last
        value("[...document.querySelectorAll('.overview button')].find((one) => one.textContent === 'New/old').click()")
        ratios = value(
            "[...document.querySelectorAll('[data-name=\"new/old\"]')].map((one) => one.dataset.value ?? null)"
        )
        known = sorted(one["change"]["ratio"] for one in told if "change" in one)
        self.assertEqual([float(one) for one in ratios[: len(known)]], known)
        self.assertEqual(set(ratios[len(known) :]), {None})

    def test_it_has_names_for_those_who_do_not_see(self) -> None:
        for page in (self.real, self.upgrade):
            with self.subTest(page=page.name):
                self.names_and_levels(page)

    def names_and_levels(self, page: Path) -> None:
        self.browser.open(page)
        value = self.browser.evaluate
        levels = value("[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))")
        self.assertEqual(levels[0], 1)
        self.assertTrue(all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False)), levels)
        self.assertTrue(
            value("[...document.querySelectorAll('input, select')].every((one) => one.labels.length === 1)")
        )
        self.assertTrue(
            value("[...document.querySelectorAll('svg')].every((one) => one.ariaHidden === 'true' || one.ariaLabel)")
        )
        self.assertTrue(value("[...document.querySelectorAll('table')].every((one) => one.caption.textContent)"))
        self.assertEqual(
            value("new Set([...document.querySelectorAll('[id]')].map((one) => one.id)).size"),
            value("document.querySelectorAll('[id]').length"),
        )

    def test_without_its_script_all_is_there(self) -> None:
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.open(self.real)
            self.assertEqual(self.browser.evaluate("document.querySelectorAll('.candidates tbody tr').length"), 24)
            self.assertFalse(self.browser.evaluate("document.getElementById('controls').checkVisibility()"))
            self.assertEqual(self.browser.evaluate("document.querySelectorAll('button').length"), 0)
        finally:
            self.browser.call("Emulation.setScriptExecutionDisabled", value=False)

    def test_it_prints(self) -> None:
        self.browser.open(self.real)
        printed = self.browser.call("Page.printToPDF", printBackground=False)
        self.assertGreater(len(printed["data"]), 20_000)


if __name__ == "__main__":
    if find_browser() is None:
        sys.exit("no browser: `apt-get install chromium`")
    unittest.main()
