"""The studio in a real browser, with the embedded model: every tab does its job, end to end.

Needs Debian's `chromium` (or CHROMIUM=path) and the extra [dev]. Screenshots land in out/screenshots.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="needs the extra [app]")
api = pytest.importorskip("playwright.sync_api", reason="needs the extra [dev]")

from dimoo.images import read_parameters  # noqa: E402
from dimoo.pipeline import DiMOOPipeline  # noqa: E402
from dimoo_app.studio import History, build, mount, samples  # noqa: E402
from dimoo_app.studio.pieces import OPEN  # noqa: E402

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = Path(__file__).parents[1] / "out" / "screenshots"
TABS = ("Create", "Edit", "Paint", "Ask", "Text", "Compare", "History")
SIZES = {"phone": (390, 844), "wide": (1280, 720)}
PATIENCE = 120_000          # milliseconds; the machine may be busy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install chromium, or set CHROMIUM to its path"),
]


class Studio:
    """A running studio and the browser that looks at it."""

    def __init__(self, place, browser, history: Path):
        self.place, self.browser, self.history = place, browser, history

    def open(self, tab: str = "Create", width=1280, height=720, dark=False):
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(self.place.address)
        ready(page)
        page.get_by_role("tab", name=tab, exact=True).click()
        return page

    def pictures(self) -> list[Path]:
        return History(self.history).recent()


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    from serving import Place

    folder = tmp_path_factory.mktemp("studio")
    pipeline = DiMOOPipeline.from_pretrained("dimoo-tiny")
    pipeline.set_progress_bar_config(disable=True)

    def dress(app):
        service = app.state.service
        return mount(app, build(service.session, service.engine, History(folder)))

    place = Place.start(pipeline, model="dimoo-tiny", dress=dress)
    with api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield Studio(place, browser, folder)
        browser.close()
    place.stop()


def shoot(page, name: str, whole: bool = False) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)


def turn_to(page, tab: str) -> None:
    """Open a tab, also one that a narrow page keeps in its menu."""
    places = "#tabs .tab-container button, #tabs .overflow-dropdown button"
    page.evaluate("([places, name]) => [...document.querySelectorAll(places)]"
                  ".filter(tab => tab.textContent.trim() === name).at(-1).click()", [places, tab])  # fmt: skip
    page.wait_for_timeout(500)


def idle(page, tab: str) -> None:
    """Wait until the tab's run button can be pressed again."""
    api.expect(page.locator(f"#{tab}-run")).to_be_enabled(timeout=PATIENCE)


def ready(page) -> None:
    """The page answers keys only once all of it is there."""
    page.locator("#create-run").wait_for()
    page.wait_for_timeout(500)


def draw(page, prompt: str) -> None:
    page.locator("#create-prompt textarea, #create-prompt input").first.fill(prompt)
    page.keyboard.press("Enter")
    api.expect(page.locator("#create-gallery img").first).to_be_visible(timeout=PATIENCE)
    idle(page, "create")


def test_create_shows_steps_then_a_picture_that_can_be_downloaded_and_sent(studio):
    page = studio.open()
    page.locator("#create-prompt textarea, #create-prompt input").first.fill("a red circle")
    page.keyboard.press("Enter")
    api.expect(page.locator("#create-live .meter")).to_be_visible(timeout=PATIENCE)
    api.expect(page.locator("#create-gallery img").first).to_be_visible(timeout=PATIENCE)
    idle(page, "create")
    (path,) = studio.pictures()[:1]
    page.locator("#create-gallery button img, #create-gallery img").first.click()
    api.expect(page.locator("#create-details")).to_contain_text("a red circle")
    shoot(page, "create-light")
    source = page.locator("#create-gallery img").first.get_attribute("src")
    answer = page.request.get(source)
    assert answer.body() == path.read_bytes(), "a download gives the file itself"
    page.locator("#create-to-edit").click()
    api.expect(page.locator("#edit-image img")).to_be_visible()
    assert not page.problems
    page.context.close()


def test_a_kept_seed_repeats_the_picture(studio):
    page = studio.open()
    page.locator("#create-lock input").check()
    draw(page, "a blue star")
    first, count = studio.pictures()[0], len(studio.pictures())
    page.locator("#create-run").click()
    studio.place.until(lambda: len(studio.pictures()) > count)
    second = studio.pictures()[0]
    assert first != second and Image.open(first).tobytes() == Image.open(second).tobytes()
    page.context.close()


def test_stop_saves_nothing(studio):
    page = studio.open()
    page.get_by_text("How to draw it").click()
    page.locator("#create-steps input[type=number]").fill("128")
    page.locator("#create-count input[type=number]").fill("9")
    before = len(studio.pictures())
    page.locator("#create-prompt textarea, #create-prompt input").first.fill("a green heart")
    page.keyboard.press("Enter")
    api.expect(page.locator("#create-stop")).to_be_enabled(timeout=PATIENCE)
    page.locator("#create-stop").click()
    api.expect(page.locator("#create-live")).to_contain_text("stopped at step", timeout=PATIENCE)
    idle(page, "create")
    assert len(studio.pictures()) == before
    studio.place.until(lambda: studio.place.engine.running == 0)
    page.context.close()


def test_edit_shows_before_and_after(studio):
    page = studio.open("Edit")
    page.locator("#edit-image input[type=file]").set_input_files(samples.picture("circle"))
    page.locator("#edit-prompt textarea, #edit-prompt input").first.fill("make the circle green")
    page.keyboard.press("Enter")
    api.expect(page.locator("#edit-slider img").first).to_be_visible(timeout=PATIENCE)
    idle(page, "edit")
    shoot(page, "edit-light")
    said = read_parameters(studio.pictures()[0])
    assert (said["task"], said["prompt"]) == ("edit", "make the circle green")
    assert History(studio.history).before(studio.pictures()[0]) is not None
    page.context.close()


def test_a_mask_is_painted_with_the_mouse(studio):
    page = studio.open("Paint")
    canvas = page.locator("#paint-editor canvas").first
    canvas.wait_for()
    page.wait_for_timeout(5000)         # the editor takes files only once its canvas is drawn
    page.locator("#paint-editor input[type=file]").first.set_input_files(samples.picture("circle"))
    grid = page.locator("#paint-grid")
    api.expect(grid).to_contain_text("0 of 64 cells", timeout=PATIENCE)
    page.wait_for_timeout(2000)         # the server has the picture; the editor is about to show it
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(box["x"] + box["width"] * (0.7 - step * 0.02), box["y"] + box["height"] * (0.7 + step * 0.01))
    page.mouse.up()
    cells = re.compile(r"[1-9]\d* of 64 cells")        # the first stroke shows, before anything else is touched
    api.expect(grid).to_contain_text(cells, timeout=PATIENCE)
    page.locator("#paint-prompt textarea, #paint-prompt input").first.fill("a red circle and a blue star")
    page.locator("#paint-run").click()
    api.expect(page.locator("#paint-gallery img").first).to_be_visible(timeout=PATIENCE)
    idle(page, "paint")
    shoot(page, "paint-light")
    made = studio.pictures()[0]
    said = read_parameters(made)
    mask = Image.open(studio.history / said["mask"]["path"])
    before, after = Image.open(samples.picture("circle")).convert("RGB"), Image.open(made)
    kept = mask.point(lambda value: 255 - value)
    blank = Image.new("RGB", before.size)
    assert mask.getextrema() == (0, 255)
    assert Image.composite(before, blank, kept).tobytes() == Image.composite(after, blank, kept).tobytes()
    page.context.close()


def test_ask_about_a_picture_in_turns(studio):
    page = studio.open("Ask")
    page.locator("#ask-pictures input[type=file]").first.set_input_files(samples.picture("circle"))
    api.expect(page.locator("#ask-pictures img").first).to_be_visible()
    for turn, question in enumerate(("what color is the circle?", "is there a star?"), 1):
        page.locator("#ask-question textarea, #ask-question input").first.fill(question)
        page.keyboard.press("Enter")
        api.expect(page.locator("#ask-chat .bot").nth(turn - 1)).to_be_visible(timeout=PATIENCE)
        page.wait_for_timeout(300)
        idle(page, "ask")
    said = page.locator("#ask-chat .bot").first.inner_text()
    wanted = studio.place.service.session.pipeline.ask("what color is the circle?", samples.picture("circle"), seed=0)
    assert wanted.texts[0].split()[0] in said
    shoot(page, "ask-light")
    page.context.close()


def test_text_is_written_marked_and_written_again(studio):
    page = studio.open("Text")
    page.locator("#text-prompt textarea, #text-prompt input").first.fill("how many hearts are there?")
    page.locator("#text-run").click()
    api.expect(page.locator("#text-live")).to_contain_text("forwards", timeout=PATIENCE)
    idle(page, "text")
    tokens = page.locator("#text-canvas .token, #text-canvas .textspan")
    first, count = tokens.first.inner_text(), tokens.count()
    tokens.first.click()
    marks = page.locator("#text-marks textarea, #text-marks input").first
    api.expect(marks).to_have_value("1")
    page.locator("#text-lock").click()
    api.expect(page.locator("#text-live")).to_contain_text(f"1 of {count} tokens kept", timeout=PATIENCE)
    idle(page, "text")
    assert tokens.count() == count and tokens.first.inner_text() == first
    written = sum(text.strip() != OPEN for text in tokens.all_inner_texts())       # an answer may end before its room
    page.locator("#text-reopen").click()
    label = f"{written - 1} of {count} tokens kept"
    api.expect(page.locator("#text-live")).to_contain_text(label, timeout=PATIENCE)
    idle(page, "text")
    tokens.nth(1).click()
    api.expect(marks).to_have_value("1-2")
    shoot(page, "text-light")
    page.context.close()


def test_words_are_compared(studio):
    page = studio.open("Compare")
    page.locator("#compare-what input[type=radio]").nth(1).check()
    page.locator("#compare-prompt textarea, #compare-prompt input").first.fill("what color is grass?")
    page.locator("#compare-run").click()
    api.expect(page.locator("#compare-live blockquote")).to_have_count(3, timeout=PATIENCE)
    api.expect(page.locator("#compare-live figcaption").nth(2)).to_contain_text("forwards", timeout=PATIENCE)
    idle(page, "compare")
    shoot(page, "compare-words")
    page.context.close()


def test_a_search_keeps_one_of_several_tries(studio):
    page = studio.open()
    page.get_by_text("How to draw it").click()
    page.get_by_text("Several tries, the best is kept").click()
    page.locator("#create-tries input[type=number]").fill("2")
    draw(page, "a red circle")
    said = read_parameters(studio.pictures()[0])
    assert said["best_of"] == 2 and said["forwards"] > said["num_inference_steps"]
    page.context.close()


def test_compare_and_history_after_a_reload(studio):
    page = studio.open("Compare")
    page.locator("#compare-prompt textarea, #compare-prompt input").first.fill("a star")
    page.locator("#compare-run").click()
    api.expect(page.locator("#compare-live figcaption").nth(2)).to_contain_text("forwards", timeout=PATIENCE)
    idle(page, "compare")
    shoot(page, "compare-light")
    count = len(studio.pictures())
    page.reload()
    page.get_by_role("tab", name="History", exact=True).click()
    api.expect(page.locator("#history-gallery img")).to_have_count(count, timeout=PATIENCE)
    shoot(page, "history-light")
    page.context.close()


def test_two_browsers_do_not_mix(studio):
    pages = [studio.open() for _ in range(2)]
    for page, prompt in zip(pages, ("a red circle", "a blue star"), strict=True):
        page.locator("#create-prompt textarea, #create-prompt input").first.fill(prompt)
        page.keyboard.press("Enter")
    for page, prompt in zip(pages, ("a red circle", "a blue star"), strict=True):
        api.expect(page.locator("#create-gallery img")).to_have_count(1, timeout=PATIENCE)
        body = page.request.get(page.locator("#create-gallery img").first.get_attribute("src")).body()
        assert read_parameters(io.BytesIO(body))["prompt"] == prompt
        page.context.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_tab_fits(studio, size, dark):
    width, height = SIZES[size]
    page = studio.open(width=width, height=height, dark=dark)
    draw(page, "three yellow hearts")
    made, settings = (page.locator(name).bounding_box() for name in ("#create-gallery", "#create-seed"))
    assert size == "wide" or made["y"] < settings["y"], "what is made comes before what may be set"
    for tab in TABS:
        turn_to(page, tab)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{tab} is {wide} pixels wide"
        shoot(page, f"{size}-{'dark' if dark else 'light'}-{tab.lower()}", whole=True)
    assert not page.problems
    page.context.close()
