"""The title of a film, drawn into a transparent picture as large as the film's canvas."""

from pathlib import Path

from PIL import Image

from gpu_runners.pipelines.fonts import TextStyle, text_picture
from gpu_runners.pipelines.render import Geometry
from schema.scenes.smart import Family

_HEIGHT_SHARE = 0.1
"""Of the canvas's shorter side: the em of the letters."""
_WIDTH_SHARE = 0.84
_TALL_MIDDLE = 0.7
"""Of the height: in a tall picture the title stands below the faces, above a player's buttons."""
_WIDE_BOTTOM = 0.9
_LINES_MAX = 3


def draw_title(text: str, canvas: Geometry, path: Path) -> bool:
    """Write the picture; False, if nothing of the text can be drawn."""
    width, height = canvas.canvas_width, canvas.canvas_height
    style = TextStyle(
        pixels=round(min(width, height) * _HEIGHT_SHARE),
        family=Family.SANS,
        weight=800,
        shadow=0.85,
    )
    drawn = text_picture(text, style, width_max=round(width * _WIDTH_SHARE), lines_max=_LINES_MAX)
    if drawn is None:
        return False
    picture = Image.new("RGBA", (width, height), (255, 255, 255, 0))
    top = round(height * _WIDE_BOTTOM) - drawn.height
    if height > width:
        top = round(height * _TALL_MIDDLE - drawn.height / 2)
    picture.paste(drawn, ((width - drawn.width) // 2, max(0, top)))
    picture.save(path, compress_level=1)
    return True
