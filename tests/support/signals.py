"""Made-up clips whose every frame and sample is known: flashes with clicks, a box, beats."""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cutlog.ffmpeg import run_ffmpeg

X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "18", "-pix_fmt", "yuv420p")
FLASH_SECONDS = 0.48
"""Within each second: when the box flashes for a frame of 25 a second, and the click sounds."""

Floats = NDArray[np.float64]


def flashes(path: Path, *arguments: str, seconds: int = 6, sound: str = "") -> Path:
    """A grey clip with a small white flash and a click once a second, over a quiet noise.

    `arguments` say how it is written; `sound` is a chain of filters for the sound.
    """
    flash = "drawbox=x=144:y=74:w=32:h=32:color=white:t=fill:enable='eq(mod(n,25),12)'"
    until = FLASH_SECONDS + 0.02
    tone = f"0.7*sin(2000*PI*t)*between(mod(t,1),{FLASH_SECONDS},{until})"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-copyts"),
        *("-f", "lavfi", "-i", f"color=c=0x505050:s=320x180:r=25:d={seconds},{flash}"),
        *(
            "-f",
            "lavfi",
            "-i",
            f"aevalsrc='0.06*(random(0)-0.5)+{tone}':s=48000:d={seconds}{sound}",
        ),
        *(arguments or (*X264, "-c:a", "aac")),
        *("-threads", "2", str(path)),
    )
    return path


def flashes_and_clicks(film: Path) -> tuple[Floats, Floats]:
    """When, in seconds, a film's middle flashes and when it clicks."""
    raw, said = run_ffmpeg(
        *("-loglevel", "info", "-i", str(film), "-map", "0:v:0", "-vf"),
        *("showinfo=checksum=0,crop=iw/10:ih/10,scale=8:8:flags=area,format=gray", "-fps_mode"),
        *("passthrough", "-f", "rawvideo", "pipe:1"),
    )
    light = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 64).mean(axis=1)
    times = np.array(
        [float(part.split()[0]) for part in said.split("pts_time:")[1:]], dtype=np.float64
    )
    sound = np.frombuffer(
        run_ffmpeg(
            *("-loglevel", "error", "-i", str(film), "-map", "0:a:0", "-ac", "1", "-ar", "16000"),
            *("-f", "f32le", "pipe:1"),
        )[0],
        dtype="<f4",
    )
    loud = np.abs(sound) > 0.5 * np.abs(sound).max()
    clicks = np.flatnonzero(loud) / 16_000
    first = np.diff(clicks, prepend=-1.0) > 0.3
    bright = light > (light.min() + light.max()) / 2
    return times[bright & ~np.roll(bright, 1)], clicks[first]


def moving_box(path: Path, *, seconds: int = 5, sound: bool = False) -> Path:
    """A red box that goes from the left to the right of a still, uneven background, 640 x 360."""
    still = "nullsrc=s=640x360:r=25,geq=lum='90+40*sin(X/23)*cos(Y/17)':cb=128:cr=128"
    box = f"color=c=red:s=70x90:r=25:d={seconds}"
    noise = f"anoisesrc=amplitude=0.1:seed=3:d={seconds}"
    run_ffmpeg(
        *("-loglevel", "error", "-y", "-f", "lavfi", "-i", f"{still},trim=end_frame=1"),
        *("-f", "lavfi", "-i", box, "-f", "lavfi", "-i", noise, "-filter_complex"),
        "[0:v]loop=-1:size=1,fps=25[b];[b][1:v]overlay=x='20+106*t':y=120:shortest=1[v]",
        *("-map", "[v]", *(("-map", "2:a", "-c:a", "aac") if sound else ()), *X264),
        *("-t", str(seconds), str(path)),
    )
    return path


def red_columns(film: Path, *, fps: int = 5) -> list[tuple[float, float, float]]:
    """Left and right edge of what is red, as parts of the width, and its area, now and then."""
    raw, _ = run_ffmpeg(
        *("-loglevel", "error", "-i", str(film), "-map", "0:v:0", "-vf"),
        *(f"fps={fps},scale=180:320:flags=area,format=rgb24", "-f", "rawvideo", "pipe:1"),
    )
    found: list[tuple[float, float, float]] = []
    for frame in np.frombuffer(raw, dtype=np.uint8).reshape(-1, 320, 180, 3).astype(np.int16):
        red = (frame[:, :, 0] > 150) & (frame[:, :, 1] < 90)
        columns = np.flatnonzero(red.sum(axis=0) > 4)
        left = float(columns[0]) / 180 if len(columns) else 1.0
        right = float(columns[-1] + 1) / 180 if len(columns) else 0.0
        found.append((left, right, float(red.mean())))
    return found


def click_track(path: Path, bpm: float, *, seconds: float = 20.0, first: float = 0.37) -> Floats:
    """Write a click for each beat over a little noise, 44.1 kHz; when they sound, in seconds."""
    rate = 44_100
    random = np.random.default_rng(7)
    sound = random.normal(0, 0.002, int(seconds * rate))
    beats = np.arange(first, seconds - 0.1, 60 / bpm)
    decay = np.arange(2000)
    for beat in beats:
        at = round(beat * rate)
        sound[at : at + 2000] += 0.6 * np.exp(-decay / 400) * np.sin(decay * 0.15)
    write_sound(path, sound, rate)
    return beats


def write_sound(path: Path, sound: Floats, rate: int) -> None:
    """A WAV file of one channel."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def loudness_of(film: Path) -> float:
    """Integrated loudness of a file in LUFS, by ffmpeg's meter."""
    said = run_ffmpeg(
        *("-loglevel", "info", "-i", str(film), "-map", "0:a:0"),
        *("-af", "ebur128=framelog=quiet", "-f", "null", "-"),
    )[1]
    return float(said.rsplit("I:", 1)[1].split("LUFS")[0])
