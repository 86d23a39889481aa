"""The page of a profile in a real browser: it draws, zooms, tells, fits a phone, can be read in the dark, and asks for nothing.

`python3 tests/browser/test_view.py [--screenshots DIR]`; the program is `$AUTOTUNE_LOWERED`, else the debug build.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from chromium import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("AUTOTUNE_LOWERED", ROOT / "target/debug/autotune-lowered"))
CAPTURE = ROOT / "tests/data/xplane/multi8_shardmap.xplane.pb.gz"
SCREENSHOTS = Path(sys.argv.pop()) if "--screenshots" in sys.argv and sys.argv.pop(-2) else None
HOSTILE = "</script><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>"

# two frames, so that what was asked for is drawn
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
VIEW = "['from', 'to'].map((end) => Number(document.getElementById('lanes').dataset[end]))"
PIXELS = "[...document.querySelectorAll('#lanes canvas')].map((canvas) => canvas.toDataURL()).join()"
# the contrast of text with the ground of its element, as WCAG 2 has it; frames are mixed with the ground below them
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


class View(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = Path(cls.folder.name) / "page.html"
        # a host by a hostile name; two captures, so that it stands in the page
        hostile = Path(cls.folder.name) / f"{HOSTILE.replace('/', '∕')}.xplane.pb.gz"
        hostile.symlink_to(CAPTURE)
        cls.hostile = Path(cls.folder.name) / "hostile.html"
        for page, captures in ((cls.page, [CAPTURE]), (cls.hostile, [CAPTURE, hostile])):
            subprocess.run([PROGRAM, "profile", "view", *captures, "-o", page], check=True, capture_output=True)
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

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.browser.evaluate(DRAWN)

    def middle(self, index: int = 1) -> tuple[float, float]:
        """A place on the first row of a canvas; the first canvas is the axis."""
        place = f"const box = document.querySelectorAll('#lanes canvas')[{index}].getBoundingClientRect(); "
        return tuple(self.browser.evaluate(f"(() => {{ {place} return [box.left + box.width / 4, box.top + 8]; }})()"))

    def test_it_zooms_by_buttons_keys_wheel_and_drag(self) -> None:
        self.open(self.page)
        self.assertEqual(self.browser.requests(), [self.page.resolve().as_uri()])
        _, end = whole = self.view()
        self.assertEqual(whole[0], 0)
        pixels = self.browser.evaluate(PIXELS)
        self.do("document.getElementById('nearer').click()")
        self.assertEqual(self.view(), [end / 4, end * 3 / 4])
        self.assertNotEqual(self.browser.evaluate(PIXELS), pixels)
        self.do("document.getElementById('whole').click()")
        self.assertEqual(self.view(), whole)
        self.assertEqual(self.browser.evaluate(PIXELS), pixels)

        # without the focus the wheel is the page's; with it what is under the pointer stays there
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

        # a drag moves, and the key 0 shows all again
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

        # a double click goes to an event, and the pointer tells what it is on
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

    def test_what_is_served_is_drawn(self) -> None:
        command = [PROGRAM, "profile", "view", CAPTURE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                url = server.stdout.readline().strip()
                self.browser.events.clear()
                self.browser.call("Page.navigate", url=url)
                self.browser.evaluate(
                    "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
                )
                self.browser.evaluate(DRAWN)
                self.assertEqual(self.browser.evaluate("location.href"), url)
                self.assertGreater(self.view()[1], 0)
                self.assertEqual(self.browser.complaints(), [])
                self.assertEqual({one for one in self.browser.requests() if not one.startswith("data:")}, {url})
            finally:
                server.send_signal(signal.SIGINT)
        self.assertEqual(server.returncode, 0)


if __name__ == "__main__":
    if find_browser() is None:
        sys.exit("no browser: `apt-get install chromium`")
    unittest.main()
