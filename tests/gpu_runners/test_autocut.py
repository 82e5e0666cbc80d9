"""AutoCut on the known montage: what it finds, what it keeps, and what the film then is."""

import itertools
from pathlib import Path

import pytest

from cutlog.clips import ClipFacts, build_demo_clip
from cutlog.film_check import FilmCheckError, check_film
from gpu_runners.pipelines.autocut import Autocut
from gpu_runners.pipelines.pipeline import InputError, Work
from tests.gpu_runners.conftest import Film, MakeFilm, cut
from tests.support.clips import odd, samples

pytestmark = pytest.mark.media


def test_every_cut_of_the_montage_is_found_to_the_frame(
    known_clip: ClipFacts, known_film: Film
) -> None:
    found = known_film.facts.cuts
    assert len(found) == len(known_clip.cuts) == 7
    for at, truth in zip(found, known_clip.cuts, strict=True):
        assert abs(at - truth) <= 1 / known_clip.rate


def test_both_silences_of_the_montage_are_found_within_50_ms(
    known_clip: ClipFacts, known_film: Film
) -> None:
    found = known_film.facts.silences
    assert len(found) == len(known_clip.silences) == 2
    for span, (start, end) in zip(found, known_clip.silences, strict=True):
        assert abs(span.start - start) <= 0.05
        assert abs(span.end - end) <= 0.05


def test_the_film_is_what_its_keep_list_says(known_clip: ClipFacts, known_film: Film) -> None:
    report = check_film(
        known_film.path, known_film.source, known_film.keep, 15, list(known_clip.silences)
    )
    assert (report.width, report.height) == (1280, 720)
    assert report.seconds == pytest.approx(15, abs=0.05)
    assert report.audio_correlation is not None
    assert report.audio_correlation > 0.95
    assert report.audio_apart_seconds == pytest.approx(0, abs=0.005)
    assert known_film.facts.target_reached


def test_the_ranges_stay_in_their_shots_keep_their_order_and_span_the_clip(
    known_clip: ClipFacts, known_film: Film
) -> None:
    borders = [0.0, *known_clip.cuts, known_clip.seconds]
    kept = known_film.facts.keep
    for one in kept:
        assert borders[one.shot] <= one.start_seconds < one.end_seconds <= borders[one.shot + 1]
    assert all(a.end_seconds <= b.start_seconds for a, b in itertools.pairwise(kept))
    assert len({one.shot for one in kept}) >= 5


@pytest.mark.parametrize("wrong_by", [0.2, -0.12, 1.0])
def test_a_keep_list_that_is_not_the_films_turns_the_check_red(
    known_film: Film, wrong_by: float
) -> None:
    wrong = [(start + wrong_by, end + wrong_by) for start, end in known_film.keep]
    with pytest.raises(FilmCheckError):
        check_film(known_film.path, known_film.source, wrong, 15)


def test_one_wrong_range_of_many_turns_the_check_red(known_film: Film) -> None:
    wrong = list(known_film.keep)
    start, end = wrong[2]
    wrong[2] = (start + 0.3, end + 0.3)
    with pytest.raises(FilmCheckError):
        check_film(known_film.path, known_film.source, wrong, 15)


def test_a_wrong_length_and_a_kept_silence_turn_the_check_red(known_film: Film) -> None:
    with pytest.raises(FilmCheckError, match="were asked for"):
        check_film(known_film.path, known_film.source, known_film.keep, 16)
    inside = known_film.keep[0]
    with pytest.raises(FilmCheckError, match="planted silence"):
        check_film(known_film.path, known_film.source, known_film.keep, 15, [inside])


def test_a_film_whose_index_comes_last_turns_the_check_red(
    known_film: Film, tmp_path: Path
) -> None:
    late = odd(known_film.path, tmp_path / "late.mp4", "-c", "copy")
    with pytest.raises(FilmCheckError, match="index"):
        check_film(late, known_film.source, known_film.keep, 15)


def test_the_same_clip_gives_the_same_film(short_clip: Path, tmp_path: Path) -> None:
    one, other = (
        cut(short_clip, tmp_path / name, None, target_seconds=3) for name in ("one", "other")
    )
    assert one.facts == other.facts
    assert one.path.read_bytes() == other.path.read_bytes()


def test_another_clip_gives_another_list(
    known_film: Film, make_film: MakeFilm, tmp_path: Path
) -> None:
    demo = build_demo_clip(samples(), tmp_path / "demo.mp4")
    assert demo.seconds >= 25
    film = make_film(demo.path)
    assert film.facts.cuts == demo.cuts
    assert film.facts.keep != known_film.facts.keep
    check_film(film.path, demo.path, film.keep, 15, list(demo.silences))


def test_progress_rises_with_the_work_from_0_to_100(known_film: Film) -> None:
    percents = [progress.percent for progress in known_film.progress]
    assert percents[0] == 0
    assert percents[-1] == 100
    assert percents == sorted(percents)
    phases = list(dict.fromkeys(progress.phase for progress in known_film.progress))
    assert phases == ["probing", "analysing", "measuring", "rendering", "checking", "done"]
    rendering = [p for p in known_film.progress if p.phase == "rendering"]
    assert rendering[0].percent < rendering[-1].percent
    assert all(p.eta_seconds is not None for p in rendering)


def test_another_target_gives_a_film_of_that_length(short_clip: Path, make_film: MakeFilm) -> None:
    film = make_film(short_clip, target_seconds=3.5, min_shot_seconds=1.5)
    check_film(film.path, film.source, film.keep, 3.5)
    assert all(one.end_seconds - one.start_seconds >= 1.5 for one in film.facts.keep)


def test_too_little_material_gives_what_there_is_and_says_so(
    short_clip: Path, make_film: MakeFilm
) -> None:
    film = make_film(short_clip, target_seconds=60)
    assert not film.facts.target_reached
    assert 7 < film.facts.duration_seconds < 8
    check_film(film.path, film.source, film.keep, 60, target_reached=False)


@pytest.mark.parametrize(
    "parameters",
    [{"target_seconds": -1}, {"target_seconds": "long"}, {"colour": "red"}, {"silence_db": 3}],
)
def test_wrong_parameters_are_refused(parameters: dict[str, object], tmp_path: Path) -> None:
    work = Work(
        task_id="task",
        token=1,
        scene="autocut",
        parameters=parameters,
        inputs={},
        directory=tmp_path,
    )
    with pytest.raises(InputError) as refused:
        Autocut().run(work, lambda _: None)
    assert refused.value.reason == "parameters"
