"""The page of a profile in a real browser: it draws, zooms, explains, fits a phone, has a dark mode, and loads nothing.

`python3 tests/browser/test_view.py [--screenshots DIR]`; the program is `$AUTOTUNE_LOWERED`, else the debug build.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from chromium import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AUTOTUNE_LOWERED", ROOT / "target/debug/autotune-lowered"))
CAPTURE = ROOT / "tests/data/xplane/multi8_shardmap.xplane.pb.gz"
BEFORE, AFTER = (ROOT / f"tests/data/xplane/{name}.xplane.pb.gz" for name in ("tf2_step", "tf8_steps3"))
SCREENSHOTS = Path(sys.argv.pop()) if "--screenshots" in sys.argv and sys.argv.pop(-2) else None
HOSTILE = "</script><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>"

# two frames, after which everything requested is drawn
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
VIEW = "['from', 'to'].map((end) => Number(document.getElementById('lanes').dataset[end]))"
PIXELS = "[...document.querySelectorAll('#lanes canvas')].map((canvas) => canvas.toDataURL()).join()"
# the contrast of text with its element's background, as in WCAG 2; frames are mixed with the colour below them
CONTRAST = """(() => {
  const channels = (colour) => colour.match(/[-0-9.e]+/g).map(Number);
  const over = ([r, g, b, a = 1], ground) => [r, g, b].map((value, at) => value * a + ground[at] * (1 - a));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, noscript, title, .unseen") || !element.getClientRects().length) continue;
    let ground = behind(element);
    const style = getComputedStyle(element);
    const rect = element.closest("svg") && element.parentElement.querySelector("rect");
    if (rect) ground = over([...channels(getComputedStyle(rect).fill).slice(0, 3), Number(getComputedStyle(rect).fillOpacity)], ground);
    const ink = channels(rect ? style.fill : style.color);
    const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    found.push([(light + 0.05) / (dark + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()"""


def times(block: int, ns: float) -> dict:
    """A measured candidate."""
    return {
        "config": {"block": block},
        "status": "measured",
        "rounds": 6,
        "median_ns": ns,
        "ratio": ns / 4e6,
        "interval": {"low": 0.4, "high": 1.1, "confidence": 0.95},
        "tied_with_best": block == 7,
    }


# the tuner's result for a call in the capture
TUNED = {
    "schema": 1,
    "tool": "made",
    "timer": "made",
    "source": "replay",
    "metric": "elapsed",
    "interrupted": False,
    "device": {"identity": {"platform": "cpu", "device_kind": "cpu"}},
    "operations": [
        {
            "op_id": "rms_norm@v1",
            "call_key": "0123456789abcdef",
            "direction": "forward",
            "evidence": "exact",
            "occurrences": 1,
            "how": "",
            "status": "tuned",
            "reason": "",
            "rounds_measured": 6,
            "rounds_kept": 0,
            "baseline": {"config": {"block": 3}, "median_ns": 4e6},
            "best": {"config": {"block": 7}, "median_ns": 2e6},
            "speed_up": 2.0,
            "candidates": [times(3, 4e6), times(7, 2e6)],
        }
    ],
}


class View(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = Path(cls.folder.name) / "page.html"
        # a host with a hostile name; two captures, so that the page shows it
        hostile = Path(cls.folder.name) / f"{HOSTILE.replace('/', '∕')}.xplane.pb.gz"
        hostile.symlink_to(CAPTURE)
        cls.hostile = Path(cls.folder.name) / "hostile.html"
        peaks = Path(cls.folder.name) / "peaks.json"
        device = {
            "name": "by hand",
            "kinds": ["cpu"],
            "bytes_per_second": 10e9,
            "matrix": {"f32": 100e9},
            "vector": {"f32": 50e9},
        }
        peaks.write_text(json.dumps({"schema": 1, "devices": [device | {"sources": ["made up"]}]}))
        names = ("compared", "changed", "tuned")
        cls.compared, cls.changed, cls.tuned = (Path(cls.folder.name) / f"{name}.html" for name in names)
        results = Path(cls.folder.name) / "run.json"
        results.write_text(json.dumps(TUNED))
        for page, words in (
            (cls.page, [CAPTURE, "--peaks", peaks]),
            (cls.hostile, [CAPTURE, hostile]),
            (cls.compared, [CAPTURE, "--after", CAPTURE]),
            (cls.changed, [BEFORE, "--after", AFTER]),
            (cls.tuned, [BEFORE, "--results", results]),
        ):
            subprocess.run([PROGRAM, "profile", "view", *words, "-o", page], check=True, capture_output=True)
        cls.browser = Browser(find_browser())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.__exit__()
        cls.folder.cleanup()

    def open(self, page: Path, **window: object) -> None:
        self.browser.open(page, **window)
        self.browser.evaluate(DRAWN)

    def do(self, action: str) -> None:
        self.browser.evaluate(action)
        self.browser.evaluate(DRAWN)

    def picture(self, name: str) -> None:
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(SCREENSHOTS / f"view-{name}.png")

    def view(self) -> list[float]:
        return self.browser.evaluate(VIEW)

    def press(self, key: str, label: str, expected: object, text: str | None = None) -> None:
        """Presses a key, and expects this focus afterwards."""
        self.browser.press(key, text)
        self.browser.evaluate(DRAWN)
        self.assertEqual(self.browser.evaluate(label), expected, key)

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.browser.evaluate(DRAWN)

    def middle(self, index: int = 1) -> tuple[float, float]:
        """A point on the first row of a canvas; the first canvas is the axis."""
        place = f"const box = document.querySelectorAll('#lanes canvas')[{index}].getBoundingClientRect(); "
        return tuple(self.browser.evaluate(f"(() => {{ {place} return [box.left + box.width / 4, box.top + 8]; }})()"))

    def test_it_zooms_by_buttons_keys_wheel_and_drag(self) -> None:
        self.open(self.page)
        self.assertEqual(self.browser.requests(), [self.page.resolve().as_uri()])
        # first what ran, without what Python did before and after
        first, last = self.view()
        self.do("document.getElementById('whole').click()")
        _, end = whole = self.view()
        self.assertEqual(whole[0], 0)
        self.assertTrue(0 < first < last < end)
        pixels = self.browser.evaluate(PIXELS)
        self.do("document.getElementById('nearer').click()")
        self.assertEqual(self.view(), [end / 4, end * 3 / 4])
        self.assertNotEqual(self.browser.evaluate(PIXELS), pixels)
        self.do("document.getElementById('whole').click()")
        self.assertEqual(self.view(), whole)
        self.assertEqual(self.browser.evaluate(PIXELS), pixels)

        # without the focus, the wheel scrolls the page; with it, the point under the pointer stays in place
        x, y = self.middle()
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
        self.assertEqual(self.view(), whole)
        self.browser.evaluate("scrollTo(0, 0)")
        self.browser.evaluate("document.getElementById('lanes').focus()")
        x, y = self.middle()
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
        start, stop = self.view()
        self.assertLess(stop - start, 0.8 * end)
        self.assertAlmostEqual((start + (stop - start) / 4) / end, 0.25, places=2)

        # a drag moves, and the key 0 shows everything again
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseMoved", x - 50, y, button="left", buttons=1)
        self.mouse("mouseReleased", x - 50, y, button="left", clickCount=1)
        moved = self.view()
        self.assertGreater(moved[0], start)
        self.assertAlmostEqual(moved[1] - moved[0], stop - start, delta=1)
        for key in ("+", "ArrowRight", "-", "0"):
            before = self.view()
            self.browser.press(key)
            self.browser.evaluate(DRAWN)
            self.assertNotEqual(self.view(), before, key)
        self.assertEqual(self.view(), whole)
        self.picture("timeline")

        # a double click zooms to an event, and the pointer shows a tooltip
        self.mouse("mouseMoved", x, y)
        self.assertIn("/host:CPU, python", self.browser.evaluate("document.getElementById('tip').textContent"))
        self.assertEqual(self.browser.complaints(), [])

    def test_a_click_on_a_frame_zooms_the_flame_graph(self) -> None:
        self.open(self.page)
        frames = "[...document.querySelectorAll('svg.flame')[1].querySelectorAll('g > g')]"
        named = f"{frames}.find((frame) => frame.firstChild.textContent.startsWith('[active]'))"
        width = f"{named}.querySelector('rect').getAttribute('width')"
        self.assertAlmostEqual(float(self.browser.evaluate(width)[:-1]), 72.16, places=2)
        click = ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        self.browser.evaluate(named + click)
        self.assertEqual(self.browser.evaluate(width), "100%")
        idle = f"{frames}.filter((frame) => frame.firstChild.textContent.startsWith('[idle')).every((frame) => getComputedStyle(frame).display === 'none')"
        self.assertTrue(self.browser.evaluate(idle))
        self.picture("flame")
        self.browser.evaluate(f"{frames}.find((frame) => frame.firstChild.textContent.startsWith('all ('))" + click)
        self.assertAlmostEqual(float(self.browser.evaluate(width)[:-1]), 72.16, places=2)
        self.assertEqual(self.browser.complaints(), [])

    def test_the_keyboard_reaches_every_frame_of_a_flame_graph(self) -> None:
        self.open(self.page)
        # from the timeline, Tab goes to the first graph and then to the second: each is one stop
        self.browser.evaluate("document.getElementById('lanes').focus()")
        for graph in range(2):
            self.browser.press("Tab")
            reached = "[...document.querySelectorAll('svg.flame')].indexOf(document.activeElement.closest('svg'))"
            self.assertEqual(self.browser.evaluate(reached), graph)
        label = "document.activeElement.getAttribute('aria-label')"
        self.assertEqual(self.browser.evaluate(label), "all, 100 %, 64.2 ms")
        self.assertTrue(self.browser.evaluate("document.activeElement.matches(':focus-visible')"))
        stroke = "getComputedStyle(document.activeElement.querySelector('rect')).stroke"
        ink = "(() => { const one = document.createElement('i'); one.style.color = 'var(--ink)'; document.body.append(one); "
        ink += "const colour = getComputedStyle(one).color; one.remove(); return colour; })()"
        self.assertEqual(self.browser.evaluate(stroke), self.browser.evaluate(ink))

        # the tree, derived from the frames' positions alone: parents and siblings
        graph = "document.activeElement.closest('svg')"
        frames = self.browser.evaluate(
            f"[...{graph}.querySelectorAll('g > g')].map((g) => [g.getAttribute('aria-label'), g.getAttribute('role'), "
            "g.firstChild.textContent, ...['y', 'x', 'width'].map((name) => parseFloat(g.querySelector('rect').getAttribute(name)))])"
        )
        self.assertGreater(len(frames), 8)
        lowest = max(y for *_, y, _, _ in frames)

        def row(y: float, left: float = 0, right: float = 100) -> list[str]:
            inside = [
                one for one in frames if one[3] == y and one[4] >= left - 0.01 and one[4] + one[5] <= right + 0.01
            ]
            return [one[0] for one in sorted(inside, key=lambda one: one[4])]

        for aria, role, title, *_ in frames:
            name, numbers = title.rsplit(" (", 1)
            part = numbers.rsplit(" ", 1)[1].removesuffix("%)")
            self.assertTrue(aria.startswith(f"{name}, {part} %, ") and aria.endswith("s"), (aria, title))
            self.assertEqual(role, "treeitem")
        above = row(lowest - 16)
        self.assertEqual(len(above), 3)
        self.press("ArrowUp", label, above[0])
        self.press("ArrowRight", label, above[1])
        self.press("ArrowRight", label, above[2])
        self.press("ArrowRight", label, above[2])
        self.press("ArrowLeft", label, above[1])
        told = "document.activeElement.closest('figure').querySelector('.told').textContent"
        self.assertEqual(self.browser.evaluate(told), above[1])
        active = next(one for one in frames if one[2].startswith("[active]"))
        while self.browser.evaluate(label) != active[0]:
            before = self.browser.evaluate(label)
            self.browser.press("ArrowLeft")
            self.assertNotEqual(self.browser.evaluate(label), before)
        self.press("ArrowUp", label, row(active[3] - 16, active[4], active[4] + active[5])[0])
        self.picture("flame-keys")
        self.press("ArrowDown", label, active[0])

        # Enter and the space bar zoom in, Escape and 0 show everything; the focus remains, and is never on a hidden
        # frame
        zoomed = f"Number({graph}.dataset.zoom)"
        hidden = f"{graph}.querySelectorAll('[data-hidden]').length"
        for nearer, farther in (("Enter", "Escape"), (" ", "0")):
            self.press(nearer, label, active[0], text="\r" if nearer == "Enter" else " ")
            self.assertAlmostEqual(self.browser.evaluate(zoomed), active[5], places=3)
            self.assertEqual(self.browser.evaluate(hidden), len(above) - 1)
            self.press("ArrowRight", label, active[0])
            self.press(farther, label, active[0])
            self.assertEqual(self.browser.evaluate(zoomed), 100)
            self.assertEqual(self.browser.evaluate(hidden), 0)
        self.press("Home", label, "all, 100 %, 64.2 ms")
        # Tab comes back to the last frame reached
        self.press("ArrowUp", label, above[0])
        self.browser.press("Tab")
        self.assertIsNone(self.browser.evaluate("document.activeElement.closest('svg')"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('svg.flame [tabindex=\"0\"]').length"), 2)

        # frames too narrow to be drawn can still be reached
        self.browser.evaluate("document.querySelectorAll('svg.flame')[1].style.width = '12px'")
        self.browser.evaluate(DRAWN)
        hidden = "[...document.querySelectorAll('svg.flame')[1].querySelectorAll('[data-hidden]')].map((g) => g.getAttribute('aria-label'))"
        self.assertIn(above[2], self.browser.evaluate(hidden))
        self.browser.evaluate("document.querySelectorAll('svg.flame')[1].querySelector('[tabindex=\"0\"]').focus()")
        self.press("ArrowRight", label, above[1])
        self.press("ArrowRight", label, above[2])
        self.assertNotIn(above[2], self.browser.evaluate(hidden))

        # a screen reader gets a tree: levels, and positions among siblings
        tree = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        trees = [node for node in tree if node.get("role", {}).get("value") == "tree"]
        self.assertEqual([node["name"]["value"] for node in trees], ["By source line", "By op_name"])
        items = [node for node in tree if node.get("role", {}).get("value") == "treeitem"]
        names = [node["name"]["value"] for node in items]
        self.assertTrue(set(above) <= set(names), names)
        level = next(
            part["value"]["value"]
            for node in items
            if node["name"]["value"] == active[0]
            for part in node["properties"]
            if part["name"] == "level"
        )
        self.assertEqual(level, 2)
        self.assertEqual(self.browser.complaints(), [])

    def test_a_search_marks_events_and_goes_from_one_to_the_next(self) -> None:
        self.open(self.page)
        data = self.browser.evaluate("JSON.parse(document.getElementById('data').textContent)")
        # the page's content, counted here
        wanted = "THUNK"
        found = sorted(
            (lane["events"][at + 1], lane["events"][at + 2], data["names"][lane["events"][at]])
            for lane in data["lanes"]
            for at in range(0, len(lane["events"]), 4)
            if wanted.lower() in data["names"][lane["events"][at]].lower()
        )
        self.assertGreater(len(found), 3)
        self.do("document.getElementById('whole').click()")
        pixels = self.browser.evaluate(PIXELS)
        self.browser.evaluate("document.getElementById('lanes').focus()")
        self.browser.press("/", "/")
        self.assertEqual(self.browser.evaluate("document.activeElement.id"), "search")
        self.browser.type(wanted)
        self.browser.evaluate(DRAWN)
        hits = "document.getElementById('hits').textContent"
        self.assertTrue(self.browser.evaluate(hits).startswith(f"{len(found)} events, "), self.browser.evaluate(hits))
        self.assertNotEqual(self.browser.evaluate(PIXELS), pixels)
        self.picture("search")
        for number, (start, duration, name) in enumerate(found[:3], 1):
            self.browser.press("Enter", "\r")
            self.browser.evaluate(DRAWN)
            self.assertTrue(self.browser.evaluate(hits).startswith(f"{number} of {len(found)}: {name}, "))
            left, right = self.view()
            self.assertTrue(left <= start and start + duration <= right, (left, start, right))
        self.do("document.getElementById('before').click()")
        self.assertTrue(self.browser.evaluate(hits).startswith(f"2 of {len(found)}: "))
        self.browser.evaluate("document.getElementById('search').focus()")
        self.browser.press("Escape")
        self.browser.evaluate(DRAWN)
        self.assertEqual(self.browser.evaluate(f"[{hits}, document.activeElement.id]"), ["", "lanes"])
        self.do("document.getElementById('lanes').scrollTop = 0; document.getElementById('whole').click()")
        self.assertEqual(self.browser.evaluate(PIXELS), pixels)
        self.assertEqual(self.browser.complaints(), [])

    def test_the_roofline_is_walked_by_keys_and_lies_below_its_lines(self) -> None:
        self.open(self.page)
        self.browser.evaluate(
            "[...document.querySelectorAll('svg.flame')].at(-1).querySelector('[tabindex=\"0\"]').focus()"
        )
        self.browser.press("Tab")
        while self.browser.evaluate("document.activeElement.tagName") == "A":
            self.browser.press("Tab")
        label = "document.activeElement.getAttribute('aria-label')"
        labels = self.browser.evaluate(
            "[...document.querySelectorAll('.point')].map((one) => one.getAttribute('aria-label'))"
        )
        self.assertGreater(len(labels), 1)
        self.assertEqual(self.browser.evaluate(label), labels[0])
        self.press("ArrowRight", label, labels[1])
        told = "document.activeElement.closest('figure').querySelector('.told').textContent"
        self.assertEqual(self.browser.evaluate(told), labels[1])
        self.press("End", label, labels[-1])
        self.press("ArrowRight", label, labels[-1])
        self.press("Home", label, labels[0])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('.point[tabindex=\"0\"]').length"), 1)
        # 100 GFLOP/s and 10 GB/s: the lines meet at 10 FLOP/byte, and each circle is at its own figures
        place = "(one) => ['cx', 'cy'].map((name) => one[name].baseVal.value)"
        circles = self.browser.evaluate(f"[...document.querySelectorAll('.point circle')].map({place})")
        x1, y1 = self.browser.evaluate(
            "['x2', 'y2'].map((name) => document.querySelector('.roofs line')[name].baseVal.value)"
        )
        self.assertAlmostEqual(self.at(labels, circles, "FLOP/byte", x1), 10, delta=0.3)
        self.assertAlmostEqual(self.at(labels, circles, "FLOP/s", y1), 100e9, delta=3e9)
        self.picture("roofline")
        tree = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        lists = [node for node in tree if node.get("role", {}).get("value") == "list"]
        self.assertTrue(any(node["name"]["value"].startswith("Roofline: ") for node in lists))
        self.assertEqual(self.browser.evaluate("document.querySelector('a[href=\"#table-roofline\"]') !== null"), True)
        self.assertIsNotNone(self.browser.evaluate("document.getElementById('table-roofline').textContent"))
        self.assertEqual(self.browser.complaints(), [])

    def at(self, labels: list[str], circles: list[list[float]], unit: str, place: float) -> float:
        """The value of a position on an axis, derived from the two circles that are farthest apart on it."""
        powers = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
        along = 0 if unit == "FLOP/byte" else 1
        values = []
        for label, circle in zip(labels, circles, strict=True):
            number, power = re.search(r"([\d.]+) ([kMGT]?)" + unit + r"\b", label).groups()
            values.append((circle[along], math.log10(float(number)) + powers[power]))
        (low, first), (high, last) = min(values), max(values)
        return 10 ** (first + (last - first) * (place - low) / (high - low))

    def test_a_label_leads_to_its_candidates_and_back(self) -> None:
        self.open(self.tuned)
        link = "document.querySelector('#table-labels + .wide a')"
        self.assertEqual(self.browser.evaluate(f"{link}.textContent.split(':')[0]"), "rms_norm")
        place = self.browser.evaluate(
            f"(() => {{ {link}.scrollIntoView({{block: 'center'}}); const box = {link}.getBoundingClientRect(); "
            "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, *place, button="left", clickCount=1)
        reached = "document.activeElement"
        self.assertEqual(
            self.browser.evaluate(f"[{reached}.tagName, '#' + {reached}.id, {reached}.textContent]"),
            ["H3", self.browser.evaluate(f"{link}.getAttribute('href')"), "Candidates of rms_norm@v1:0123456789abcdef"],
        )
        # in view, except for a fraction of a pixel
        self.assertTrue(self.browser.evaluate(f"{reached}.getBoundingClientRect().top > -1"))
        self.assertTrue(self.browser.evaluate(f"{reached}.getBoundingClientRect().bottom <= innerHeight"))
        times = f"[...{reached}.nextElementSibling.querySelectorAll('tbody tr')].map((row) => row.cells[1].textContent)"
        self.assertEqual(self.browser.evaluate(times), ["2.00 ms", "4.00 ms"])
        self.picture("candidates")
        # the keyboard continues from the heading: its table, then the way back
        for expected in ("Candidates of rms_norm@v1:0123456789abcdef", None):
            self.browser.press("Tab")
            self.assertEqual(self.browser.evaluate(f"{reached}.getAttribute('aria-label')"), expected)
        self.assertEqual(self.browser.evaluate(f"{reached}.textContent"), "Back to the labels")
        self.press("Enter", f"[{reached}.id, {reached}.textContent]", ["table-labels", "Labels"], text="\r")
        self.assertEqual(self.browser.complaints(), [])

    def test_two_profiles_are_compared(self) -> None:
        self.open(self.compared)
        heading = "document.getElementById('after').textContent"
        self.assertEqual(self.browser.evaluate(heading), "Before and after")
        # compared with itself nothing differs: no frame is red or blue, and there is no verdict
        labels = self.browser.evaluate(
            "[...document.querySelectorAll('[role=treeitem]')].map((one) => one.getAttribute('aria-label'))"
        )
        self.assertFalse([label for label in labels if "against A" in label])
        verdicts = self.browser.evaluate(
            "[...document.querySelectorAll('#table-differences-of-operations + .wide tbody tr')].map((row) => row.lastChild.textContent)"
        )
        self.assertTrue(verdicts and not {"faster", "slower", "gone", "new"} & set(verdicts), verdicts)
        self.picture("same")
        self.open(self.changed)
        labels = self.browser.evaluate(
            "[...document.querySelectorAll('[role=treeitem]')].map((one) => one.getAttribute('aria-label'))"
        )
        self.assertTrue(
            any("itself +" in label for label in labels) or any("itself -" in label for label in labels), labels
        )
        self.picture("before-and-after")
        self.assertEqual(self.browser.complaints(), [])

    def test_names_run_nothing(self) -> None:
        self.open(self.hostile)
        self.assertIn("window.taken", self.browser.evaluate("document.body.textContent"))
        self.assertIn("onerror", self.browser.evaluate("document.getElementById('lanes').textContent"))
        self.assertIsNone(self.browser.evaluate("window.taken"))
        self.assertEqual(self.browser.evaluate("[document.scripts.length, document.images.length]"), [2, 0])
        self.assertEqual(self.browser.complaints(), [])

    def test_nothing_is_wider_than_a_phone(self) -> None:
        for name, page in (("phone", self.page), ("phone-hostile", self.hostile)):
            self.open(page, width=360, height=740)
            self.picture(name)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 360)
            wider = (
                "[...document.querySelectorAll('body *')].filter((one) => !one.closest('table, svg') && one.getBoundingClientRect().right > 360.5)"
                ".map((one) => one.tagName + one.className)"
            )
            self.assertEqual(self.browser.evaluate(wider), [])
            self.assertEqual(self.browser.complaints(), [])

    def test_the_roofline_fits_a_phone_and_none_of_its_labels_lies_on_another(self) -> None:
        for width in (360, 400, 1000):
            self.open(self.page, width=width, height=740)
            self.picture(f"roofline-{width}")
            cut = "[...document.querySelectorAll('.graph > div')].filter((one) => one.scrollWidth > one.clientWidth).length"
            self.assertEqual(self.browser.evaluate(cut), 0, width)
            left, right, texts = self.browser.evaluate(
                "(() => { const box = document.querySelector('svg.roofline').closest('figure').getBoundingClientRect(); "
                "const texts = [...document.querySelectorAll('svg.roofline text, .names li')].filter((one) => one.textContent);"
                "const shown = texts.map((one) => [one.textContent, one.getBoundingClientRect()]);"
                "return [box.left, box.right, shown.filter(([, at]) => at.width).map(([text, at]) => "
                "[text, at.left, at.right, at.top, at.bottom])]; })()"
            )
            self.assertGreater(len(texts), 10)
            for number, (text, start, end, top, bottom) in enumerate(texts):
                self.assertTrue(left <= start and end <= right, (width, text, start, end))
                for other, *box in texts[number + 1 :]:
                    apart = end <= box[0] or box[1] <= start or bottom <= box[2] + 1 or box[3] <= top + 1
                    self.assertTrue(apart, (width, text, other))
            # each line is named, beside it or below
            names = self.browser.evaluate(
                "[...document.querySelectorAll('.roofs .name, .names li')].filter((one) => one.getClientRects().length).map((one) => one.textContent)"
            )
            self.assertEqual(names, ["matrices, f32, 100 GFLOP/s", "other units, f32, 50.0 GFLOP/s"])
            self.assertEqual(self.browser.complaints(), [])

    def test_it_can_be_read_in_either_scheme(self) -> None:
        grounds = []
        for dark in (False, True):
            self.open(self.page, dark=dark)
            contrasts = self.browser.evaluate(CONTRAST)
            self.assertGreater(len(contrasts), 100)
            self.assertGreaterEqual(contrasts[0][0], 4.5, contrasts[:5])
            grounds.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            self.picture("dark" if dark else "light")
        self.assertNotEqual(*grounds)


if __name__ == "__main__":
    if find_browser() is None:
        sys.exit("no browser: `apt-get install chromium`")
    unittest.main()
