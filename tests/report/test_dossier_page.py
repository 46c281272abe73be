"""The page of a report: what it tells, and how a browser shows it, in both schemes, on a phone, on paper."""

import re
import shlex

import pytest
from cli.runs import ziplan
from report.browser import Browser, chromium
from report.dossiers import CONFIG, KINDS, dossier

from ziplan.report.dossier_page import page

MOST_BYTES = 500_000
PHONE, WIDE = 360, 1280

CONTRASTS = """
(() => {
  for (const each of document.querySelectorAll('details')) each.open = true;
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const rgb = text => { const n = (text.match(/[0-9.]+/g) || []).map(Number);
                        return n.length < 3 || n[3] === 0 ? null : n.slice(0, 3); };
  const ground = (x, y, own) => {
    for (const each of document.elementsFromPoint(x, y)) {
      if (each === own || each.tagName === 'text') continue;
      const style = getComputedStyle(each);
      const paint = each instanceof SVGElement ? style.fill : style.backgroundColor;
      if (each instanceof SVGElement && !(each instanceof SVGGeometryElement)) continue;
      const colour = paint.startsWith('rgb') ? rgb(paint) : null;
      if (colour) return colour;
    }
    return rgb(getComputedStyle(document.documentElement).backgroundColor);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = []; let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim()) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getClientRects()[0];
    const own = node.parentElement;
    if (!box || box.width < 1 || box.right < 0 || own.closest('.skip')) continue;
    const style = getComputedStyle(own);
    const colour = rgb(own instanceof SVGElement ? style.fill : style.color);
    const under = ground(box.x + box.width / 2, box.y + box.height / 2, own);
    const [a, b] = [light(colour), light(under)].sort((m, n) => n - m);
    seen += 1;
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([node.data.trim().slice(0, 40), colour, under]);
  }
  return {seen, poor};
})()
"""

OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(each => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 1
      && !each.closest('.scroll') && !each.closest('.skip');
}).map(each => each.tagName + '.' + each.className + ' ' + each.textContent.trim().slice(0, 40))
"""

CUT = """
[...document.querySelectorAll('svg text')].filter(each => {
  const text = each.getBoundingClientRect(), svg = each.closest('svg').getBoundingClientRect();
  return text.width && (text.left < svg.left - 1 || text.right > svg.right + 1
      || text.top < svg.top - 1 || text.bottom > svg.bottom + 1);
}).map(each => each.textContent)
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def of(kind):
        path = folder / f"{kind}.html"
        if not path.exists():
            path.write_text(page(dossier(kind)), encoding="utf-8")
        return path

    return of


@pytest.fixture(scope="module")
def browser():
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    opened = Browser(program)
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_holds_everything_and_fetches_nothing(kind, pages):
    text, told = pages(kind).read_text(encoding="utf-8"), dossier(kind)
    assert text.isascii()
    assert len(text) < MOST_BYTES
    assert "<script" not in text
    assert not re.findall(r"(?:src|srcset)=|@import|url\((?!#)|<link|<iframe", text)
    assert told.verdict.replace("_", " ") in text
    for place in ("memory", "time", "roofline", "margins", "prices", "findings", "derivation", "again"):
        assert f'id="{place}"' in text
        assert f'href="#{place}"' in text or place == "again"
    identifiers = re.findall(r'\bid="([^"]+)"', text)
    assert len(identifiers) == len(set(identifiers))
    shown = {each.code for each in told.checked.findings}
    assert all(code in text for code in shown)
    for assumption in told.estimate.assumptions:
        assert assumption.name in text
    assert not re.findall(r"\bnan\b|\binf\b|\bNone\b", re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL))


def test_fewer_gpus_that_are_faster_are_told_of(pages):
    text = pages("slow network").read_text(encoding="utf-8")
    assert "Fewer GPUs are faster than the best plan on all: " in text
    assert "faster, on 8 GPUs" in text
    assert "Fewer GPUs" not in pages("plain").read_text(encoding="utf-8")


def test_the_same_question_gives_the_same_page(pages):
    assert page(dossier("plain")) == pages("plain").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_a_browser_shows_it_whole_and_readable(kind, dark, width, pages, browser):
    browser.complaints.clear()
    browser.show(pages(kind), width, 30_000, dark)
    found = browser.value(CONTRASTS)
    assert found["seen"] > 200
    assert found["poor"] == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(OVERFLOWING) == []
    assert browser.value(CUT) == []
    assert browser.complaints == []


def test_the_grounds_of_the_schemes_differ(pages, browser):
    grounds = []
    for dark in (False, True):
        browser.show(pages("plain"), dark=dark)
        grounds.append(browser.value("getComputedStyle(document.documentElement).backgroundColor"))
    assert len(set(grounds)) == 2


def test_the_keyboard_reaches_the_contents_and_every_table(pages, browser):
    browser.show(pages("offloaded"), WIDE, 900)
    stops = browser.value("document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length")
    reached = []
    for _ in range(stops):
        browser.press("Tab")
        reached.append(
            browser.value(
                "(e => e.tagName + (e.getAttribute('aria-label') || e.textContent))(document.activeElement)"
            )
        )
    assert reached[0].startswith("ASkip")
    assert sum(each.startswith("A") for each in reached) >= 11
    assert sum(each.startswith("SUMMARY") for each in reached) >= 5
    assert any("Purchases, ranked" in each for each in reached)


def test_on_paper_everything_is_there_in_daylight(pages, browser):
    browser.show(pages("offloaded"), 794, 1123, dark=True, media="print")
    assert browser.value("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 254)"
    closed = "document.querySelector('#derivation + details .law').getBoundingClientRect().height"
    assert browser.value(closed) > 0
    assert browser.value("document.documentElement.scrollWidth") <= 794
    assert browser.paper().startswith(b"%PDF")


def test_the_command_on_the_page_makes_it_again(capsys, tmp_path):
    words = ["report", "llama-3.1-8b", "rtx-4090-desktop", "--sequence-length", "2048"]
    words += ["--lora-rank", "8", "--lora-targets", "q_proj,v_proj", "--set", "tiers.dram.capacity=128 GB"]
    words += ["--optimizer", "adamw", "--precision", "bf16", "--checkpointing", "full"]
    first = ziplan(capsys, *words)
    assert first.code == 0, first.err
    (command,) = re.findall(r"<pre>(ziplan report .*?)</pre>", first.out)
    again = ziplan(capsys, *shlex.split(command.replace("&#39;", "'"))[1:])
    assert again.out == first.out


def test_a_config_is_judged_and_held_against_the_best_plan(pages):
    text = pages("config").read_text(encoding="utf-8")
    told = dossier("config")
    assert told.estimate is told.checked.case.estimate
    assert told.estimate.plan != told.answer.best.plan
    assert str(CONFIG) in text
    assert "in the best plan for the same batch" in text
    assert CONFIG.read_text().split()[1].strip('":') in text


def test_what_a_config_settles_cannot_be_asked_for(capsys):
    words = ("report", "llama-2-70b", "dgx-a100-80g", CONFIG, "--sequence-length", "4096")
    ran = ziplan(capsys, *words, "--global-batch-size", "64", "--objective", "wear")
    assert (ran.code, ran.out) == (2, "")
    assert "--global-batch-size, --objective beside a config" in ran.err


def test_names_cannot_write_into_the_page(capsys, tmp_path):
    file = tmp_path / "<b>&.json"
    file.write_text(CONFIG.read_text())
    ran = ziplan(capsys, "report", "llama-2-70b", "dgx-a100-80g", file, "--sequence-length", "4096")
    assert ran.code == 0, ran.err
    assert "<b>" not in ran.out
    assert "&lt;b&gt;&amp;.json" in ran.out
