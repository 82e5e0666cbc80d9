"""One result looked at: measured, laid out on a sheet, and opened in a browser if there is one."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from PIL import Image, ImageStat
from playwright.async_api import Error as BrowserError

from tests.gallery import sheets
from tests.gallery.looking import FilmMeasured, faults, measure
from tests.gallery.orders import Json, Order
from tests.support.browser import MISSING, Browser, find_chromium

_FILMS: Final = frozenset({".mp4", ".webm"})
_PICTURES: Final = frozenset({".png", ".jpg", ".webp"})
_POSTER: Final = "poster.jpg"
_STRIP: Final = "thumbnails.jpg"
_FLAT: Final = 8
"""Deviation of a poster's grey under which there is nothing on it."""
_SECONDS_APART: Final = 0.06


class Viewer:
    """Looks at results; the browser stays open between them."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._browser: Browser | None = None

    def __enter__(self) -> Self:
        executable = find_chromium()
        if executable is None:
            print(MISSING)
        else:
            self._browser = self._ends.enter_context(Browser(executable))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def look(
        self,
        order: Order,
        paths: Mapping[str, Path],
        addresses: Mapping[str, str],
        facts: Json,
        ratio: float | None,
        sheet: Path,
    ) -> tuple[list[FilmMeasured], list[str]]:
        """What was measured, and everything that is wrong."""
        films: list[FilmMeasured] = []
        wrong: list[str] = []
        pictures: list[tuple[str, Path]] = []
        for name, path in paths.items():
            if path.suffix in _FILMS:
                measured = measure(path)
                films.append(measured)
                told = facts.get("duration_seconds")
                wrong += faults(measured, shape=ratio, lines=order.lines, seconds=told)
                wrong += self._played(addresses[name], measured)
                sheets.film_sheet(order.name, path, paths.get(_POSTER), sheet)
            elif path.suffix in _PICTURES:
                wrong += self._shown(addresses[name], path)
                pictures.append((name, path))
        if _POSTER in paths:
            wrong += _poster(paths[_POSTER], films if order.scene != "matting" else [])
        if not films:
            sheets.picture_sheet(order.name, pictures, sheet)
        return films, wrong

    def _played(self, address: str, film: FilmMeasured) -> list[str]:
        if self._browser is None:
            return []
        try:
            with self._browser.open() as tab:
                seen = tab.film(address)
        except (BrowserError, TimeoutError) as error:
            return [f"browser: {error}"]
        found: list[str] = []
        if (seen.width, seen.height) != (film.width, film.height):
            found.append(f"browser: {seen.width}x{seen.height}")
        if abs(seen.seconds - film.seconds) > _SECONDS_APART:
            found.append(f"browser: {seen.seconds} s long")
        if not seen.ended or any(place.ready_state < 2 for place in seen.places):
            found.append("browser: does not play through")
        if (film.lufs is not None) != (seen.sound_bytes > 0):
            found.append(f"browser: {seen.sound_bytes} bytes of sound")
        return found

    def _shown(self, address: str, path: Path) -> list[str]:
        if self._browser is None:
            return []
        with Image.open(path) as opened:
            size = opened.size
        try:
            with self._browser.open() as tab:
                seen = tab.picture(address)
        except (BrowserError, TimeoutError) as error:
            return [f"browser: {path.name}: {error}"]
        return [] if (seen.width, seen.height) == size else [f"browser: {path.name} {seen.width}"]


def _poster(path: Path, films: list[FilmMeasured]) -> list[str]:
    with Image.open(path) as opened:
        grey, size = ImageStat.Stat(opened.convert("L")), opened.size
    found = [f"the poster is {size}" for film in films if size != (film.width, film.height)]
    if grey.stddev[0] < _FLAT:
        found.append("nothing is on the poster")
    return found
