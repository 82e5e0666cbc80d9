"""What to do about a material that was refused: a sentence for each reason, for people."""

from typing import Final

from schema.refusals import MaterialRefusal

_AGAIN: Final = "Announce the file again and upload it anew."
_ADVICE: Final[dict[str, str]] = {
    MaterialRefusal.SIZE_MISMATCH: "What arrived is not as long as was announced. " + _AGAIN,
    MaterialRefusal.DIGEST_MISMATCH: (
        "What arrived is not the file that was announced: perhaps it was changed meanwhile. "
        + _AGAIN
    ),
    MaterialRefusal.EMPTY: "The file has no content. Export it again, and look at its size.",
    MaterialRefusal.NOT_MEDIA: (
        "This is no film, picture or sound, whatever it is called. Choose another file."
    ),
    MaterialRefusal.CONTAINER_UNSUPPORTED: (
        "Files of this kind are not read. Export it as MP4, MOV, WebM, JPEG, HEIC or PNG; of a "
        "raw photo (DNG, ProRAW) the JPEG or HEIC that the phone makes beside it."
    ),
    MaterialRefusal.CODEC_UNSUPPORTED: (
        "What it is encoded with is not read. Export a film with H.264 or H.265 and AAC sound, a "
        "picture as JPEG or PNG."
    ),
    MaterialRefusal.NAMES_OTHERS: (
        "This file only names others, as a playlist does. Upload the film itself."
    ),
    MaterialRefusal.TWO_IDENTITIES: (
        "The file is two things at once, such as a picture with an archive behind it. Export the "
        "picture or the film alone."
    ),
    MaterialRefusal.OTHER_KIND: (
        "It is a video, a picture or sound, but not the one that was announced. Announce it as "
        "what it is, or choose another file."
    ),
    MaterialRefusal.ENCRYPTED: "The file is encrypted. Upload it without a password or protection.",
    MaterialRefusal.NO_STREAMS: "There is neither picture nor sound in it. Export it again.",
    MaterialRefusal.TRUNCATED: (
        "The end of the file is missing. Copy it from the camera or export it again, whole."
    ),
    MaterialRefusal.DAMAGED: "The file is damaged. Copy it from the camera or export it again.",
    MaterialRefusal.MATERIAL_TOO_LONG: "It lasts too long. Cut it shorter, or take a larger plan.",
    MaterialRefusal.TOO_SHORT: "It is too short to make anything of. Choose a longer one.",
    MaterialRefusal.MATERIAL_TOO_LARGE: (
        "The file is too large. Export it with a lower bit rate, or take a larger plan."
    ),
    MaterialRefusal.PIXELS_TOO_MANY: "Its pictures are too large. Make them smaller.",
    MaterialRefusal.FRAMES_TOO_MANY: (
        "It has too many pictures. Export it with at most 60 a second, or cut it shorter."
    ),
    MaterialRefusal.BIT_RATE_TOO_HIGH: "Its bit rate is too high. Export it with a lower one.",
    MaterialRefusal.STREAMS_TOO_MANY: (
        "It has too many streams. Export it with one for the picture and one for the sound."
    ),
    MaterialRefusal.NOT_CHECKED: "It could not be checked, by no fault of yours. " + _AGAIN,
    MaterialRefusal.PROBE_LIMIT: (
        "To read it took more time or memory than any usual file. Export a film again as MP4, a "
        "picture as JPEG."
    ),
    MaterialRefusal.MATERIAL_ABORTED: "Its upload was left lying for a day. " + _AGAIN,
}
_OLDER: Final = "It is not what was announced. " + _AGAIN
"""Of reasons that older releases gave."""


def advice_on(reason: str) -> str:
    """What to do about a material that was refused for this reason."""
    return _ADVICE.get(reason, _OLDER)
